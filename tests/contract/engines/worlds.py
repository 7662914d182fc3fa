"""The ground a case stands on: a store, time that passes, and processes that open queues and may be killed.

Cases see nothing else of their world. Members record each action in the ledger of their queue, and when a case is
over its queues are read by a new member: all invariants have to hold, what was not settled has to be seen by
`peek`, and the books of `stats` have to balance.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.contract import (
    Ack,
    Cancelled,
    Delivery,
    Engine,
    MessageLocation,
    NewMessage,
    Peeked,
    Settle,
    Settled,
    Stats,
)
from headgate.errors import HeadgateError
from headgate.store.model.rows import Row
from headgate.store.model.statements import Scan
from headgate.store.store import AttemptAnswer, Store
from tests.contract.engines.kinds import Kind, Opened
from tests.contract.engines.terms import SECOND_US, Terms
from tests.kit.invariants import Ledger
from tests.kit.process import real_host, simulated_host
from tests.kit.simulated_store import Cluster, SimulatedStore
from tests.kit.simulated_world import Process
from tests.kit.simulated_world import World as Simulation

T = TypeVar("T")

PEEK_MAX = 1_000
REFRESH_S = 20.0
BALANCED_WITHIN_S = 10
COMES_WITHIN_S = 20.0
"""A bound for anything that has to come: the longest is a lease and a search for free lanes."""


class Place(ABC):
    """Where one member runs."""

    host: Host

    @abstractmethod
    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the member's process."""

    @abstractmethod
    def keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin a loop there."""

    @abstractmethod
    def kill(self) -> None:
        """End the process as kill -9 does."""


class CaseWorld(ABC):
    """The surroundings of a case."""

    kind_of_world: str

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.queues: list[QueueUnderTest] = []
        self._numbers = itertools.count()

    @abstractmethod
    def place(self, name: str) -> Place:
        """A new process."""

    @abstractmethod
    async def advance(self, seconds: float) -> None:
        """Let time pass."""

    @abstractmethod
    def now_us(self) -> int:
        """The true time."""

    async def queue(self, **terms: Any) -> QueueUnderTest:
        """A queue of its own for the case, with a dead-letter queue if its terms ask for one."""
        given = Terms(**terms)
        dead_letter_queue = None
        if given.dead_letters:
            dead_letter_queue = await self._make(replace(given, dead_letters=False), None)
        made = await self._make(given, dead_letter_queue)
        self.queues.append(made)
        return made

    async def _make(self, terms: Terms, dead_letters: QueueUnderTest | None) -> QueueUnderTest:
        maker = self.place(f"maker-{next(self._numbers)}")
        queue = QueueUnderTest(self, maker.host.uuid(), terms, dead_letters)
        await maker.run(self.kind.make(maker.host, queue.id, terms))
        return queue

    async def run_case(self, case: Coroutine[Any, Any, None]) -> None:
        """A case, and what holds after every case."""
        await case
        for queue in self.queues:
            await queue.read_back()


class QueueUnderTest:
    """One queue, its members and the ledger of what they did."""

    def __init__(self, world: CaseWorld, queue: UUID, terms: Terms, dead_letters: QueueUnderTest | None) -> None:
        self.world = world
        self.id = queue
        self.terms = terms
        self.dead_letters = dead_letters
        self.members: list[Member] = []
        self.ledger = Ledger(world.now_us, retention_us=terms.retention_s * SECOND_US, skew_us=SECOND_US // 4)

    async def member(self, name: str = "one") -> Member:
        """A process that has the queue open."""
        place = self.world.place(f"{name}-{len(self.members)}")
        member = Member(self, name, place)
        await place.run(member.open())
        self.members.append(member)
        return member

    async def read_back(self) -> None:
        """End all members in good order, read what is left, and hold the ledger against it."""
        ledger_is_whole = not any(member.is_dead for member in self.members)
        for member in self.members:
            if not member.is_dead:
                await member.close()
        observer = await self.member("observer")
        there = {each.message_id for each in await observer.peek(PEEK_MAX)}
        self.ledger.dead(await self._dead_ids())
        self.ledger.check(there=there)
        if ledger_is_whole:
            await self._balance(observer)
        await observer.close()

    async def _balance(self, observer: Member) -> None:
        """The books balance, at the latest once somebody has owned the lanes for a while: what was put in more than
        one try may count until its lane has met all of it. What that owner is given is live still."""
        wrong = list(self.ledger.check_balance(await observer.stats()))
        for _ in range(BALANCED_WITHIN_S):
            if not wrong:
                return
            await observer.receive(1, wait_s=1, visibility_s=600)
            wrong = list(self.ledger.check_balance(await observer.stats()))
        assert not wrong, "\n".join(map(str, wrong))

    async def _dead_ids(self) -> list[str]:
        """Messages that are in the dead-letter queue, or were received from it and settled."""
        if self.dead_letters is None:
            return []
        for member in self.dead_letters.members:
            if not member.is_dead:
                await member.close()
        observer = await self.dead_letters.member("observer")
        there = [each.message_id for each in await observer.peek(PEEK_MAX)]
        await observer.close()
        settled = [each.id for each in self.dead_letters.ledger.tales.values() if each.honoured()]
        return there + settled


class Member:
    """One process with the queue open. Its actions are recorded in the ledger."""

    def __init__(self, queue: QueueUnderTest, name: str, place: Place) -> None:
        self.queue = queue
        self.name = f"{name}-{len(queue.members)}"
        self.place = place
        self.is_dead = False
        self._opened: Opened | None = None

    async def open(self) -> None:
        """To be called in its process."""
        dead_letters = self.queue.dead_letters
        self._opened = self.queue.world.kind.open(
            self.place.host, self.queue.id, self.queue.terms, dead_letters.id if dead_letters is not None else None
        )
        self.place.keep_running(self._keep_fresh(self._opened))

    async def _keep_fresh(self, opened: Opened) -> None:
        while not self.is_dead:
            await asyncio.sleep(REFRESH_S)
            opened.refresh()

    @property
    def engine(self) -> Engine:
        """As its process has it."""
        assert self._opened is not None
        return self._opened.engine

    def kill(self) -> None:
        """As kill -9."""
        self.is_dead = True
        assert self._opened is not None
        self._opened.crash()
        self.place.kill()

    async def close(self) -> None:
        """End in good order: lanes are handed over."""
        await self.place.run(self._close())
        self.is_dead = True

    async def _close(self) -> None:
        assert self._opened is not None
        await self._opened.close()

    def now_us(self) -> int:
        """The time of its clock."""
        return self.place.host.now_us()

    def in_us(self, seconds: float) -> int:
        """A time this far from now."""
        return self.now_us() + round(seconds * SECOND_US)

    # ---- putting

    async def put(self, *messages: NewMessage) -> list[str]:
        """Put them in one call."""
        return await self.place.run(self.queue.ledger.put(self.engine.put, messages, self.name))

    async def put_each(self, *messages: NewMessage) -> list[str | HeadgateError]:
        """Put them in one call that answers for each."""
        outcomes: list[str | HeadgateError] = await self.place.run(self.engine.put_each(messages))
        put = [
            (message, outcome) for message, outcome in zip(messages, outcomes, strict=True) if type(outcome) is str
        ]
        tries = self.queue.ledger.trying([message for message, _ in put], self.name)
        self.queue.ledger.acknowledged(tries, [str(message_id) for _, message_id in put])
        return outcomes

    async def put_one(self, payload: bytes = b"x", **options: Any) -> str:
        """Put one message."""
        return (await self.put(NewMessage(payload, **options)))[0]

    async def cancel(self, message_id: str) -> Cancelled:
        """Cancel it."""
        self.queue.ledger.cancelling(message_id)
        answer: Cancelled = await self.place.run(self.engine.cancel(message_id))
        self.queue.ledger.cancel_answered(message_id, answer)
        return answer

    async def reschedule(self, message_id: str, due_us: int) -> tuple[Cancelled, str | None]:
        """Deliver it at another time."""
        put = self.queue.ledger.message(message_id)
        self.queue.ledger.cancelling(message_id)
        answer, new_id = await self.place.run(self.engine.reschedule(message_id, due_us))
        if new_id is not None:
            message = NewMessage(b"") if put is None else replace(put, due_us=due_us)
            self.queue.ledger.acknowledged(self.queue.ledger.trying([message], self.name), [new_id])
        self.queue.ledger.cancel_answered(message_id, answer)
        return answer, new_id

    async def purge(self, before_us: int | None = None) -> int:
        """Purge the queue, of messages put before a given time or before now."""
        purge = self.queue.ledger.purging()
        before_us = int(await self.place.run(self.engine.purge(before_us)))
        self.queue.ledger.purged(purge, before_us)
        return before_us

    # ---- receiving

    async def receive(
        self, limit: int = 10, *, wait_s: float = COMES_WITHIN_S, visibility_s: float | None = None
    ) -> list[Delivery]:
        """One call."""
        visibility_us = None if visibility_s is None else round(visibility_s * SECOND_US)
        wait_us = round(wait_s * SECOND_US)
        matches: list[Delivery] = await self.place.run(
            self.engine.receive(limit, visibility_us=visibility_us, wait_us=wait_us)
        )
        self.queue.ledger.delivered(
            self.name,
            matches,
            clock_us=self.now_us(),
            visibility_us=self.queue.terms.visibility_us if visibility_us is None else visibility_us,
        )
        return matches

    async def one(self, **options: Any) -> Delivery:
        """The one message that comes."""
        result = await self.receive(**options)
        assert 1 == len(result), f"{len(result)} messages came"
        return result[0]

    async def take(self, count: int, **options: Any) -> list[Delivery]:
        """This number of messages, in as many calls as it takes."""
        matches: list[Delivery] = []
        while len(matches) < count:
            some = await self.receive(count - len(matches), **options)
            assert some, f"{len(matches)} of {count} messages came"
            matches += some
        return matches

    async def settle(self, *settles: Settle) -> list[Settled]:
        """One call."""
        return await self.place.run(self.queue.ledger.settle(self.engine.settle, settles, self.name))

    async def ack(self, *result: Delivery) -> list[Settled]:
        """Acknowledge them in one call."""
        return await self.settle(*(Ack(each.receipt) for each in result))

    async def settle_unseen(self, settle: Settle) -> Settled:
        """A settle whose receipt the ledger cannot know."""
        (answer,) = await self.place.run(self.engine.settle([settle]))
        return answer  # type: ignore[no-any-return]

    # ---- reading

    async def peek(self, limit: int = 100, *, from_us: int | None = None) -> list[Peeked]:
        """Read without taking."""
        return await self.place.run(self.engine.peek(limit, from_us=from_us))

    async def stats(self) -> Stats:
        """The queue's figures."""
        return await self.place.run(self.engine.stats())

    async def where(self, message_id: str) -> MessageLocation:
        """Where a message lies."""
        return await self.place.run(self.engine.where(message_id))

    async def repair(self) -> None:
        """One pass over what is owed."""
        await self.place.run(self.engine.repair())


# ---- in the simulation


class SimulatedWorld(CaseWorld):
    """Three simulated nodes, in virtual time; a world of its own for each case."""

    kind_of_world = "simulated"

    def __init__(self, kind: Kind, seed: int) -> None:
        super().__init__(kind)
        self.simulation = Simulation(seed)
        self.cluster = Cluster(self.simulation)
        self._truth = self.simulation.process("truth")

    def place(self, name: str) -> Place:
        """A simulated process."""
        return SimulatedPlace(self.cluster, self.simulation.process(f"{name}-{next(self._numbers)}"))

    async def advance(self, seconds: float) -> None:
        """At once."""
        await self.simulation.sleep(seconds)

    def now_us(self) -> int:
        """A clock that is right."""
        return self._truth.clock.wall_us()


class SimulatedPlace(Place):
    """A process of the simulated world."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._process = process
        self.host = simulated_host(process, SimulatedStore(cluster, process))

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In its context."""
        return await self._process.start(work)

    def keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        """Until the process ends."""
        self._process.start(work)

    def kill(self) -> None:
        """Nothing of it runs any more."""
        self._process.kill()


# ---- on a real server


class RealWorld(CaseWorld):
    """A real server, in real time. All members share this process, its connections and the machine's clock, which is
    the server's too."""

    kind_of_world = "real"

    def __init__(self, kind: Kind, store: Store) -> None:
        super().__init__(kind)
        self._store = store
        self._places: list[RealPlace] = []

    def place(self, name: str) -> Place:
        """A host of its own."""
        self._places.append(RealPlace(name, self._store, self.now_us))
        return self._places[-1]

    async def advance(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    def now_us(self) -> int:
        """The machine's clock."""
        return time.time_ns() // 1000

    def end(self) -> None:
        """Ends everything that killed processes left running."""
        for place in self._places:
            place.end()


class RealPlace(Place):
    """A member of this process, with a store that ends with it."""

    def __init__(self, name: str, store: Store, now_us: Callable[[], int]) -> None:
        self._store = MortalStore(store)
        self._loops: list[asyncio.Task[None]] = []
        self.host = real_host(self._store, now_us, name)

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Here."""
        return await work

    def keep_running(self, work: Coroutine[Any, Any, None]) -> None:
        """Until the case is over."""
        self._loops.append(asyncio.get_running_loop().create_task(work))

    def kill(self) -> None:
        """Nothing of it is sent, and nothing that was sent is answered: so it appears to all others."""
        self._store.is_dead = True

    def end(self) -> None:
        """Stop the loops."""
        for loop in self._loops:
            loop.cancel()


class MortalStore(Store):
    """A store, until the process that has it is killed."""

    def __init__(self, store: Store) -> None:
        self.is_dead = False
        self._store = store
        self.within_s = store.within_s
        self.attempt_s = store.attempt_s

    @property
    def data_center(self) -> str:
        """As the other's."""
        return self._store.data_center

    async def attempt(self, statement: Any, within_s: float) -> AttemptAnswer:
        """As the other does; for ever where the process is dead."""
        answer = None if self.is_dead else await self._store.attempt(statement, within_s)
        if answer is None or self.is_dead:
            await asyncio.get_running_loop().create_future()
            raise AssertionError("a killed process continued")
        return answer

    def scan(self, scan: Scan) -> AsyncIterator[Row]:
        """As the other does."""
        return self._store.scan(scan)

    def monotonic_s(self) -> float:
        """As the other does."""
        return self._store.monotonic_s()

    async def pause(self, seconds: float) -> None:
        """As the other does."""
        await self._store.pause(seconds)

    async def close(self) -> None:
        """It is shared, and closed by its owner."""


def texts(result: Sequence[Delivery]) -> list[str]:
    """Payloads, as text."""
    return [each.payload.decode() for each in result]
