"""A background loop that outlives the errors it meets.

Nothing awaits the tasks that maintain leases, the membership list or the clock. An error would end such a task
silently, and the process would run on without it. A `SupervisedLoop` logs the error, pauses, and restarts its work.
The liveness check asks it whether it is dead nevertheless.

A fault of one check, list or sweep may cost that check. It may not end the process, which would restart, meet the
same fault and end again.

Invariant: it ends only when its work returns or when it is stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from headgate.errors import HeadgateError
from headgate.process.background_tasks import end_task, is_being_cancelled, start_task
from headgate.process.pacing import ExponentialPause

PAUSE_S_MIN, PAUSE_S_MAX = 0.5, 2.0
"""The pause doubles with each failure. It stays short, so that a stalled queue works again within seconds after the
cause is gone."""
CALM_S = 30.0
"""Work that ran for this long without an error has recovered."""
FAILING_S_MAX = 60.0
"""A loop that has had only unexpected errors for this long is dead; a new process may recover."""


class SupervisedLoop:
    """One background task: started once, started again after each error, stopped by its owner."""

    def __init__(
        self,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        *,
        log: logging.Logger,
        pause_s_max: float = PAUSE_S_MAX,
        **fields: object,
    ) -> None:
        self.name = name
        self._work = work
        self._log = log
        self._pause = ExponentialPause(PAUSE_S_MIN, pause_s_max)
        self._fields = fields
        self._task: asyncio.Task[None] | None = None
        self._logged: set[str] = set()
        self._failing_since_s: float | None = None
        self._unexpected: BaseException | None = None

    def start(self) -> None:
        """Run the work from now on, unless it runs already."""
        if self._task is None or self._task.done():
            self._task = start_task(self.name, self.run())

    async def stop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            await end_task(task)

    def cancel(self) -> None:
        """End it without waiting."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    def why_dead(self) -> str | None:
        """Why only a new process can bring this loop back; None while it runs or is not wanted."""
        task = self._task
        if task is not None and task.done() and (task.cancelled() or task.exception() is not None):
            return f"the loop of {self.name} has ended"
        since_s = self._failing_since_s
        if since_s is None or self._unexpected is None:
            return None
        failing_s = asyncio.get_running_loop().time() - since_s
        if failing_s < FAILING_S_MAX:
            return None
        return f"the loop of {self.name} has failed for {failing_s:.0f} s: {self._unexpected!r}"

    async def run(self) -> None:
        """The loop itself, for an owner that runs it in a task of its own."""
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            calm = loop.call_later(CALM_S, self._recover)
            try:
                await self._work()
                return
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and is_being_cancelled():
                    raise
                if loop.time() - began_s >= CALM_S:
                    self._pause.reset()
                self._note(error, loop.time())
            finally:
                calm.cancel()
            await asyncio.sleep(self._pause.next_s())

    def _recover(self) -> None:
        if self._failing_since_s is not None:
            self._log.info("background loop recovered", extra={**self._fields, "loop": self.name})
        self._failing_since_s = self._unexpected = None
        self._logged.clear()

    def _note(self, error: BaseException, now_s: float) -> None:
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        expected = isinstance(error, HeadgateError)
        self._unexpected = None if expected else error
        if repr(error) in self._logged:
            return
        self._logged.add(repr(error))
        fields = {**self._fields, "loop": self.name, "error": str(error) or repr(error)}
        self._log.error("background loop failed; restarting", extra=fields, exc_info=None if expected else error)
