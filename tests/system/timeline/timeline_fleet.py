"""Processes of timeline_process.py as a test commands them: started, paused, killed, believed by what they wrote.

A fleet ends all its processes with the test. Their records are one story, since all of them take the time from the
boot time of one machine; `ledger_of` passes that story to the invariants that judge the simulation too.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dev.servers.cassandra import HostedRing, Ring
from dev.servers.owned_server import OwnedServer
from headgate.engines.contract import Ack, Cancelled, Delivery, NackDelivery, NewMessage, Settled
from headgate.local.processes import wait_until
from tests.kit.client_history.history import PutRecord
from tests.kit.invariants import Ledger
from tests.system.timeline.timeline_process import SECOND, Order, boot_us

ROOT = Path(__file__).parents[3]
STARTS_WITHIN_S = 60.0
WITHIN_S = 60.0
SKEW_US = SECOND // 2
Measured = Callable[[str], None]
"""The fixture that shows what was measured."""


@dataclass(frozen=True)
class Event:
    """One thing that a process wrote down."""

    at_us: int
    actor: str
    what: str
    facts: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.facts[name]


class Member:
    """One process of a fleet."""

    def __init__(self, role: str, order: Order, fleet: Fleet, environment: Mapping[str, str]) -> None:
        self.name = order.name
        self.order = order
        self.events: list[Event] = []
        self.ended_us: int | None = None
        """When it was killed, asked to end, or is known to have been at work no more."""
        log = fleet.directory / f"{order.name}.jsonl"
        self._read_up_to = 0
        self._server = OwnedServer(
            order.name,
            [sys.executable, "-m", "tests.system.timeline.timeline_process", role, order.text()],
            log=log,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": "workers:.", **fleet.environment, **environment},
            namespace=fleet.namespace,
        )
        self._server.start()

    # ---- what it wrote

    def read(self) -> list[Event]:
        """All that it wrote so far."""
        with self._server.log.open("rb") as log:
            log.seek(self._read_up_to)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._read_up_to += len(line)
                self.events.append(self._event(line.decode()))
        return self.events

    def _event(self, line: str) -> Event:
        if not line.startswith("{"):
            return Event(boot_us(), self.name, "stderr", {"line": line.rstrip("\n")})
        document = json.loads(line)
        return Event(document.pop("at"), self.name, document.pop("what"), document)

    def those(self, *whats: str, after_us: int = 0) -> list[Event]:
        """Its records of these kinds, after a given time."""
        return [each for each in self.read() if each.what in whats and each.at_us > after_us]

    def wait_for(
        self,
        what: str,
        *,
        more: int = 1,
        after_us: int = 0,
        within_s: float = WITHIN_S,
        where: Callable[[Event], bool] = lambda event: True,
    ) -> list[Event]:
        """Return when it wrote this number of a kind after a given time; fail with its last words if it does not."""
        matches: list[Event] = []

        def enough() -> bool:
            matches[:] = [each for each in self.those(what, after_us=after_us) if where(each)]
            return len(matches) >= more or not self._server.alive()

        wait_until(enough, timeout_s=within_s, every_s=0.02)
        if len(matches) < more:
            state = "runs" if self._server.alive() else "has ended"
            last = "\n  ".join(f"{each.what} {dict(each.facts)}"[:300] for each in self.events[-8:])
            raise AssertionError(f"{self.name} ({state}) wrote {len(matches)} of {more} {what!r}; at last:\n  {last}")
        return matches

    # ---- what is done to it

    def pause(self) -> int:
        """SIGSTOP; its time."""
        self._server.pause()
        return boot_us()

    def resume(self) -> int:
        """SIGCONT; a time just before."""
        instant = boot_us()
        self._server.resume()
        return instant

    def kill(self) -> int:
        """kill -9; a time after which it did nothing."""
        self._server.kill()
        self.ended_us = boot_us()
        return self.ended_us

    def hold(self) -> None:
        """Return when a message is in flight that it will not settle."""
        os.kill(self._server.pid, signal.SIGUSR1)
        self.wait_for("holding")

    def end(self, *, within_s: float = 30.0) -> None:
        """Let it end in its own way; a report to the contrary is an error."""
        if self._server.alive():
            self._server.stop(grace_s=within_s)
        self.ended_us = boot_us()
        self.wait_for("ended", within_s=1.0)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._server.alive()


class Fleet:
    """The processes of one scenario on one queue; `common` is what their orders have in common."""

    def __init__(self, ring: Ring, directory: Path, *, queue: str | None = None, **common: Any) -> None:
        self.environment = ring.environment()
        self.directory = directory
        self.queue = queue or str(uuid.uuid4())
        self._common = common
        self.members: list[Member] = []
        self.namespace: str | None = None
        if isinstance(ring, HostedRing):
            self.namespace = ring.client(near="n1").namespace

    def order(self, name: str, **wishes: Any) -> Order:
        """An order for a process on this queue."""
        return Order(name=name, queue=self.queue, **{**self._common, **wishes})

    def start(self, role: str, name: str, environment: Mapping[str, str] | None = None, **wishes: Any) -> Member:
        """Start a process, and do not wait for it."""
        member = Member(role, self.order(name, **wishes), self, environment or {})
        self.members.append(member)
        return member

    def consumer(self, name: str, **wishes: Any) -> Member:
        """A process that receives and settles."""
        return self.start("consume", name, **wishes)

    def producer(self, name: str, **wishes: Any) -> Member:
        """A process that puts."""
        return self.start("produce", name, **wishes)

    def those(self, *whats: str, after_us: int = 0) -> list[Event]:
        """The records of all of them of these kinds, after a given time, in order of time."""
        return [each for each in self.story() if each.what in whats and each.at_us > after_us]

    def wait_until(self, holds: Callable[[], bool], what: str, *, within_s: float = WITHIN_S) -> None:
        """Return when something holds of all that was written."""
        assert wait_until(holds, timeout_s=within_s, every_s=0.1), f"not within {within_s} s: {what}"

    def story(self) -> list[Event]:
        """All that all of them wrote, in order of time."""
        return sorted((event for each in self.members for event in each.read()), key=lambda event: event.at_us)

    def ledger(self) -> Ledger:
        """The same, as the invariants judge it."""
        return ledger_of(self.story())

    def wait_until_all_is_settled(self, *, within_s: float = WITHIN_S) -> Ledger:
        """Return when nothing that was put and acknowledged is still to come; producers have ended before."""
        matches: list[Ledger] = []

        def settled() -> bool:
            matches[:] = [self.ledger()]
            return not matches[0].open_ids()

        if not wait_until(settled, timeout_s=within_s, every_s=0.2):
            ledger = matches[0]
            missing = sorted(ledger.open_ids())
            stories = "\n".join(map(ledger.story, missing[:3]))
            raise AssertionError(f"{len(missing)} messages are not settled after {within_s} s\n{stories}")
        return matches[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.members:
            each.kill()


# ---- the story, for the invariants


@dataclass
class _Narrator:
    """Records the story in a ledger, and holds what waits for its answer."""

    ledger: Ledger
    puts: dict[str, Sequence[PutRecord]] = field(default_factory=dict)
    settles: dict[str, str] = field(default_factory=dict)

    def narrate(self, event: Event) -> None:
        """Records an event; events without a message are left out."""
        report = getattr(self, f"_{event.what.replace(' ', '_')}", None)
        if report is not None:
            report(event)

    def _putting(self, event: Event) -> None:
        message = NewMessage(event["payload"].encode(), event["due_us"], group=event["group"])
        self.puts[event["payload"]] = self.ledger.trying([message], event["caller"])

    def _put(self, event: Event) -> None:
        self.ledger.acknowledged(self.puts[event["payload"]], [event["id"]])

    def _error(self, event: Event) -> None:
        if event["of"] == "put":
            self.ledger.not_acknowledged(self.puts[event["payload"]], RuntimeError(event["line"]))

    def _cancelling(self, event: Event) -> None:
        self.ledger.cancelling(event["id"])

    def _cancelled(self, event: Event) -> None:
        self.ledger.cancel_answered(event["id"], Cancelled.CANCELLED)

    def _given(self, event: Event) -> None:
        facts = dict(event.facts)
        clock_us, visibility_us = facts.pop("clock_us"), facts.pop("visibility_us")
        facts.pop("lane")
        delivery = Delivery(message_id=facts.pop("id"), payload=facts.pop("payload").encode(), **facts)
        self.ledger.delivered(event.actor, [delivery], clock_us=clock_us, visibility_us=visibility_us)

    def _asked(self, event: Event) -> None:
        settle = Ack(event["receipt"]) if event["how"] == "ack" else NackDelivery(event["receipt"])
        (self.settles[event["receipt"]],) = self.ledger.settling(event.actor, [settle])

    def _settled(self, event: Event) -> None:
        self.ledger.settled(event.actor, [self.settles[event["receipt"]]], [Settled(event["answer"])])


def wall_us_at(at_us: int) -> int:
    """The machine's wall clock at a given boot time."""
    return at_us + time.time_ns() // 1000 - boot_us()


def ledger_of(story: Iterable[Event]) -> Ledger:
    """The invariants' ledger of a story, by the time of the machine."""
    ahead_us = wall_us_at(0)
    reports = list(story)
    now_us = [reports[0].at_us + ahead_us if reports else 0]
    ledger = Ledger(lambda: now_us[0], skew_us=SKEW_US)
    narrator = _Narrator(ledger)
    for event in reports:
        now_us[0] = event.at_us + ahead_us
        narrator.narrate(event)
    return ledger
