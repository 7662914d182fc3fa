"""Runs crash suspects in child processes, in groups: one that kills its process kills no other work of the worker.

After a process died, every message that it may have had in flight is a crash suspect
(docs/internals/protocols/dispatcher.md). A child runs a group of them at full concurrency. If it dies, those that it
had not answered run again in halves (`decide_groups.py`): docs/decisions/0007. The worker holds all of them
meanwhile, and its lanes are not touched. Children are kept for the next suspects, restarted after a death, and ended
after a while without suspects.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from headgate.engines.contract import Delivery, NackDelivery, Settle
from headgate.errors import EnvironmentProblem
from headgate.process.background_tasks import BackgroundTasks
from headgate.runtime.handler.context import Attempt, HandlerControl
from headgate.runtime.handler.decide_retry import Backoff, delay_after
from headgate.runtime.isolation.decide_groups import CHILDREN_MAX, GroupQueue, SuspectGroup, decide_after_death

log = logging.getLogger("headgate.worker")

IDLE_S = 60.0
STARTS_MAX = 3
STOP_WITHIN_S = 0.5
"""How long a handler that is cancelled may take to end, before its process is ended."""
UNSTARTED_AS_ATTEMPT = 5
"""Where no child can be started, waiting longer than after a first failure is better."""


@dataclass(frozen=True)
class PoolTerms:
    timeout_s: float | None = None
    """Of a handler, from its start in a child: the wait for a child is not part of it."""
    backoff: Backoff = field(default_factory=Backoff)
    idle_s: float = IDLE_S


class Suspect:
    """One message of a group, from its receipt by the pool until it is settled."""

    def __init__(self, attempt: Attempt, control: HandlerControl, timeout_s: float | None) -> None:
        self.attempt = attempt
        self.control = control
        self.timeout_s = timeout_s
        self.settled: asyncio.Future[Settle] = asyncio.get_running_loop().create_future()
        self.stopped = asyncio.Event()
        """Whether no handler of it runs."""
        self.begun = False
        self.wait()

    @property
    def delivery(self) -> Delivery:
        return self.attempt.delivery

    @property
    def is_settled(self) -> bool:
        """Answered, or cancelled by the worker."""
        return self.settled.done()

    def wait(self) -> None:
        """It waits for a process."""
        self.begun = False
        self.stopped.set()
        self.control.limit(math.inf)

    def begin(self) -> None:
        self.begun = True
        self.stopped.clear()
        if self.timeout_s is not None and not self.is_settled:
            self.control.limit(self.timeout_s)

    def end(self, settle: Settle | None) -> None:
        """Its handler ended, or was stopped."""
        self.stopped.set()
        if settle is not None and not self.is_settled:
            self.settled.set_result(settle)

    def fail(self, error: BaseException) -> None:
        if not self.is_settled:
            self.settled.set_exception(error)


class ChildRunner(Protocol):
    """One child process, or none until the next group needs it."""

    ran: int
    """Messages that have begun in the process since its start."""
    is_killed: bool
    """Whether `kill` ended it, so that its death concerns no message."""

    @property
    def pid(self) -> int | None: ...

    async def run(self, members: Sequence[Suspect]) -> str | None:
        """Run those that are not settled until each has ended; how the process died, if it died before.
        EnvironmentProblem where it does not start."""

    def cancel(self, member: Suspect) -> None:
        """Stop its handler, where it can be stopped."""

    def kill(self) -> None:
        """End the process now: `run` returns."""

    async def end(self) -> object:
        """Wait for the end of the process too."""


class ChildPool:
    """A `HandlerRunner` of suspects."""

    batch = False
    wants_context = True

    def __init__(
        self,
        make_child: Callable[[], ChildRunner],
        terms: PoolTerms,
        on_death: Callable[[], None] = lambda: None,
        *,
        rng: Random,
    ) -> None:
        self._make_child = make_child
        self._terms = terms
        self._on_death = on_death
        self._rng = rng
        self._waiting: GroupQueue[Suspect] = GroupQueue()
        self._idle: list[ChildRunner] = []
        self._busy: dict[ChildRunner, SuspectGroup[Suspect]] = {}
        self._ending: asyncio.TimerHandle | None = None
        self._tasks = BackgroundTasks("crash suspects")
        self._ends = BackgroundTasks("end of a crash suspect process")
        self._context = contextvars.copy_context()
        """Without the log fields of a message."""

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in (*self._idle, *self._busy) if child.pid is not None]

    async def perform(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        (attempt,) = attempts
        assert attempt.context is not None  # noqa: S101  `wants_context`
        member = Suspect(attempt, attempt.context.control, self._terms.timeout_s)
        self._waiting.add(member)
        # Those that come in the same step of the loop make one group.
        asyncio.get_running_loop().call_soon(self._start_groups, context=self._context)
        try:
            return (await member.settled,)
        except asyncio.CancelledError:
            await self._stop(member)
            raise

    def drain(self) -> None:
        """Running handlers continue; messages that wait for a process are returned."""
        for member in self._waiting.take_all():
            member.end(NackDelivery(member.delivery.receipt, charged=False))

    async def close(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
        await self._tasks.stop()
        await asyncio.gather(*(child.end() for child in (*self._idle, *self._busy)), self._ends.wait())

    # ---- groups

    def _start_groups(self) -> None:
        while len(self._busy) < CHILDREN_MAX and (group := self._waiting.take()) is not None:
            if all(member.is_settled for member in group.members):
                continue
            if self._ending is not None:
                self._ending.cancel()
                self._ending = None
            child = self._idle.pop() if self._idle else self._make_child()
            self._busy[child] = group
            self._tasks.start(self._run(group, child), context=self._context.copy())

    async def _run(self, group: SuspectGroup[Suspect], child: ChildRunner) -> None:
        try:
            if group.is_alone:
                await child.end()
            why = await self._run_until_begun(group, child)
            if why is not None:
                self._judge_death(group, child, why)
        except EnvironmentProblem as error:
            self._give_up(group, error)
        except Exception as error:  # a bug: `perform` raises it, and the worker ends
            for member in group.members:
                member.fail(error)
        finally:
            del self._busy[child]
            self._idle.append(child)
        self._start_groups()
        if not self._busy:
            self._ending = asyncio.get_running_loop().call_later(self._terms.idle_s, self._end_idle)

    async def _run_until_begun(self, group: SuspectGroup[Suspect], child: ChildRunner) -> str | None:
        """A process that died before a message began counts against no message, and is started again."""
        why = None
        for _ in range(STARTS_MAX):
            why = await child.run(group.members)
            if why is None or child.is_killed or any(member.begun for member in group.members):
                return why
        raise EnvironmentProblem("The crash suspect process ended before a message began", result=why)

    def _judge_death(self, group: SuspectGroup[Suspect], child: ChildRunner, why: str) -> None:
        left = [member for member in group.members if not member.is_settled]
        begun = [member for member in left if member.begun]
        waiting = [member for member in left if not member.begun]
        for member in left:
            member.wait()
        if child.is_killed:
            self._waiting.put_back([SuspectGroup(tuple(left))] if left else [])
            return
        self._on_death()
        after = decide_after_death(begun, waiting, ran=child.ran)
        self._waiting.put_back(after.groups)
        if after.charged is None:
            log.warning("crash suspects ended their process", extra={"messages": len(begun), "result": why})
        else:
            self._charge(after.charged, why)

    def _charge(self, member: Suspect, why: str) -> None:
        delivery = member.delivery
        fields = {"message_id": delivery.message_id, "attempt": delivery.attempt, "result": why}
        log.error("crash suspect ended its process", extra=fields)
        delay_us = delay_after(self._terms.backoff, delivery.attempt, self._rng.random())
        member.end(NackDelivery(delivery.receipt, delay_us, why, killed=True))

    def _give_up(self, group: SuspectGroup[Suspect], error: EnvironmentProblem) -> None:
        log.error("crash suspects cannot be run", extra={"error": str(error)})
        for member in group.members:
            delay_us = delay_after(self._terms.backoff, UNSTARTED_AS_ATTEMPT, self._rng.random())
            member.end(NackDelivery(member.delivery.receipt, delay_us, str(error), charged=False))

    async def _stop(self, member: Suspect) -> None:
        """Stop its handler. Where it does not end, its process is ended; the others of its group run again."""
        child = next((child for child, group in self._busy.items() if member in group.members), None)
        if child is None:
            return
        child.cancel(member)
        try:
            await asyncio.wait_for(member.stopped.wait(), STOP_WITHIN_S)
        except (TimeoutError, asyncio.CancelledError):
            child.kill()

    def _end_idle(self) -> None:
        """They cost memory, and there may be no suspect again for months."""
        idle, self._idle = self._idle, []
        for child in idle:
            self._ends.start(child.end())
