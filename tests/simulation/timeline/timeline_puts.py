"""Producers of a timeline queue in the simulated world, and a reader that follows the prose on readers.

The reader is a model, kept as small as it can be: it reads every lane up to its own now, drops restamped rows whose
family has
been passed, and at the end does what repair does. It shares no code with the engine's reading side, so that the two
sides of the queue are held against the prose and not against each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.contract import NewMessage
from headgate.engines.packed_row import unpack
from headgate.engines.timeline.model.layout import DAY_US, MessagePlace, RowPlace, id_text
from headgate.engines.timeline.model.settings import GenerationSettings, TimelineSettings
from headgate.engines.timeline.model.tables import shared_tables
from headgate.engines.timeline.put.cancel import Cancels
from headgate.engines.timeline.put.once import OncePuts
from headgate.engines.timeline.put.producer import Producer
from headgate.engines.timeline.read.ended_places import see_to_late_copy
from headgate.errors import HeadgateError
from headgate.store.model.consistency import Consistency
from headgate.store.model.positions import first_at, is_after, last_at, time_us_of
from headgate.store.model.statements import Select, Slice, SliceBound
from headgate.store.store import AttemptAnswer, OutcomeUnknown
from tests.kit.process import simulated_host
from tests.kit.simulated_store import Cluster, Settings, SimulatedStore
from tests.kit.simulated_world import Process, World

T = TypeVar("T")
SECOND = 1_000_000
SKEW = 500_000
QUEUE = UUID("11111111-2222-4333-8444-555555555555")
SETTINGS = TimelineSettings(
    QUEUE, "emails", shared_tables(), (GenerationSettings(1, 3),), part_us=2 * SECOND, retention_us=3600 * SECOND
)


class GatedStore(SimulatedStore):
    """A store whose statements can be inspected, and held back, before they are sent."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        super().__init__(cluster, process)
        self.sent: list[Any] = []
        self.gate: Callable[[Any], Coroutine[Any, Any, None]] | None = None
        self.answers_late_s = 0.0

    async def attempt(self, statement: Any, within_s: float) -> AttemptAnswer:
        """Noted, held as long as the gate wants (or it has time), then sent."""
        self.sent.append(statement)
        if self.gate is not None:
            try:
                await asyncio.wait_for(self.gate(statement), within_s)
            except TimeoutError:
                raise OutcomeUnknown("held back in this test") from None
        answer = await super().attempt(statement, within_s)
        if self.answers_late_s:
            try:
                await asyncio.wait_for(asyncio.sleep(self.answers_late_s), within_s)
            except TimeoutError:
                raise OutcomeUnknown("the answer comes late in this test") from None
        return answer

    def sent_to(self, table: str) -> list[Any]:
        """The single statements, batches taken apart, that went to a table."""
        parts = [part for one in self.sent for part in getattr(one, "statements", (one,))]
        return [part for part in parts if part.shape.table.name == f"timeline_{table}"]


@dataclass
class Client:
    """One process that puts."""

    process: Process
    store: GatedStore
    host: Host
    producer: Producer
    once: OncePuts
    cancels: Cancels


@dataclass
class Delivered:
    """One message as the reader got it."""

    message_id: str
    payload: bytes
    at_us: int
    due_us: int
    order: tuple[Any, ...]
    by_repair: bool = False


@dataclass
class Queue:
    """A queue on a simulated ring, and all that a scenario has to know about it."""

    world: World
    cluster: Cluster
    settings: TimelineSettings = SETTINGS
    acknowledged: dict[str, bytes] = field(default_factory=dict)
    failed: list[HeadgateError] = field(default_factory=list)

    def client(self, name: str, *, ahead_us: int = 0, read_us: int | None = None) -> Client:
        """A process that puts, its clock ahead of the truth."""
        process = self.world.process(name)
        process.clock.step(ahead_us / SECOND)
        store = GatedStore(self.cluster, process)
        host = simulated_host(process, store)
        return self.client_on(host, store, process, read_us)

    def client_on(self, host: Host, store: GatedStore, process: Process, read_us: int | None = None) -> Client:
        """The same on a host of one's own making."""
        producer = Producer(host, self.settings, read_us=process.clock.wall_us() if read_us is None else read_us)
        return Client(process, store, host, producer, OncePuts(producer, see_to=see_to_late_copy), Cancels(producer))

    async def put(self, client: Client, *messages: NewMessage) -> list[str] | None:
        """Put, and remember what was acknowledged; None when it was not."""
        try:
            ids = await client.producer.put(messages)
        except HeadgateError as error:
            self.failed.append(error)
            return None
        self.acknowledged.update(zip(ids, (message.payload for message in messages), strict=True))
        return ids

    async def keep_fresh(self, client: Client) -> None:
        """Read the catalogue now and then, as every process does."""
        while True:
            await asyncio.sleep(20)
            client.producer.settings_changed(self.settings, read_us=client.process.clock.wall_us())


class Reader:
    """Reads all lanes of a queue by the prose, in a process of its own."""

    def __init__(self, queue: Queue, *, ahead_us: int = 0) -> None:
        self.queue = queue
        self.process = queue.world.process("reader")
        self.process.clock.step(ahead_us / SECOND)
        self.store = SimulatedStore(queue.cluster, self.process)
        self.began_us = self.process.clock.wall_us() - SECOND
        self.last: dict[tuple[int, int], UUID] = {}
        self.passed: set[tuple[int, int, UUID]] = set()
        self.delivered: list[Delivered] = []

    async def run(self, every_s: float = 0.2) -> None:
        """Continue reading."""
        while True:
            await self.turn()
            await asyncio.sleep(every_s)

    async def turn(self) -> None:
        """Read every lane up to now."""
        now_us = self.process.clock.wall_us()
        index = await self._index(now_us)
        for generation in self.queue.settings.generations:
            for shard in range(generation.shards):
                await self._read_lane(generation.number, shard, index, now_us)

    async def _index(self, now_us: int) -> set[tuple[int, int, int]]:
        """All index rows, read before any slice: and every open part, which the index is not believed for."""
        matches = set()
        settings = self.queue.settings
        for generation in settings.generations:
            for day in range(self.began_us // DAY_US, now_us // DAY_US + 1):
                key: dict[str, Any] = {"queue": QUEUE, "generation": generation.number, "day": day}
                rows = await self.store.read(Select(settings.tables.parts, key, ("part", "sub")))
                matches |= {(generation.number, row.part, row.sub) for row in rows}
            first_open = (now_us - 2 * SKEW) // settings.part_us
            matches |= {(generation.number, part, 0) for part in range(first_open, now_us // settings.part_us + 1)}
        return matches

    async def _read_lane(self, generation: int, shard: int, index: set[tuple[int, int, int]], now_us: int) -> None:
        last = self.last.get((generation, shard), first_at(self.began_us))
        until = last_at(now_us)
        part_us = self.queue.settings.part_us
        rows: list[tuple[RowPlace, Any]] = []
        for number, part, sub in index:
            if number == generation and part * part_us <= now_us and (part + 1) * part_us > time_us_of(last):
                for row in await self.rows_of(generation, part, sub, shard, after=last, until=until):
                    rows.append((RowPlace(generation, sub, shard, row.due), row))
        rows.sort(key=lambda each: _order(each[0]))
        for place, row in rows:
            self._meet(place, row, by_repair=False)
        if is_after(until, last):
            self.last[generation, shard] = until

    async def rows_of(
        self, generation: int, part: int, sub: int, shard: int, *, after: UUID, until: UUID, to: Any = None
    ) -> Any:
        """A slice of a partition."""
        place = RowPlace(generation, sub, shard, after)
        tables = self.queue.settings.tables
        return await self.store.read(
            Select(
                tables.later if place.lies_later else tables.work,
                {"queue": QUEUE, "generation": generation, "part": part, "sub": sub, "shard": shard},
                within=Slice("due", SliceBound(after, False), SliceBound(until, True)),
                consistency=to or Consistency.LOCAL_QUORUM,
            )
        )

    def _meet(self, place: RowPlace, row: Any, *, by_repair: bool) -> None:
        if row.run is None:
            return
        run = unpack(row.run)
        mine = (place.generation, place.shard, place.due)
        first = MessagePlace.from_bytes(run.replaces).row if run.replaces is not None else place
        family = (first.generation, first.shard, first.due)
        new = not ({mine, family} & self.passed)
        self.passed |= {mine, family}
        if not new or row.cancelled is not None:
            return
        for index, payload in enumerate(run.payload):
            given = run.message_id[index] if run.message_id is not None else b""
            message_id = id_text(given or MessagePlace(place, index).to_bytes())
            self.delivered.append(
                Delivered(
                    message_id,
                    payload,
                    self.process.clock.wall_us(),
                    run.due_us[index],
                    (*_order(place), index),
                    by_repair,
                )
            )

    async def repair(self) -> None:
        """Everything that is there and was not passed, as repair finds it in the end."""
        settings = self.queue.settings
        now_us = self.process.clock.wall_us()
        for generation, part, sub in sorted(await self._index(now_us)):
            shards = next(each.shards for each in settings.generations if each.number == generation)
            for shard in range(shards):
                span = first_at(part * settings.part_us), last_at((part + 1) * settings.part_us)
                rows = await self.rows_of(
                    generation, part, sub, shard, after=span[0], until=span[1], to=Consistency.ALL
                )
                for row in rows:
                    place = RowPlace(generation, sub, shard, row.due)
                    if not is_after(row.due, self.last.get((generation, shard), first_at(0))):
                        self._meet(place, row, by_repair=True)

    def times(self, message_id: str) -> int:
        """How often a message was delivered."""
        return sum(each.message_id == message_id for each in self.delivered)

    def payloads(self) -> list[bytes]:
        """The delivered payloads, in order."""
        return [each.payload for each in self.delivered]


def _order(place: RowPlace) -> tuple[Any, ...]:
    low = place.due.bytes[8:]
    return place.due.time, tuple(byte - 256 if byte > 127 else byte for byte in low)


def check(queue: Queue, reader: Reader) -> None:
    """In every run, nothing acknowledged is lost, late for its reader, early, or delivered twice."""
    counts: dict[str, int] = {}
    for each in reader.delivered:
        counts[each.message_id] = counts.get(each.message_id, 0) + 1
        assert each.at_us >= each.due_us, "delivered early"
    assert {} == {message_id: count for message_id, count in counts.items() if count > 1}
    assert set() == set(queue.acknowledged) - set(counts)
    late = {each.message_id for each in reader.delivered if each.by_repair}
    assert set() == late & set(queue.acknowledged)


def simulate(
    scenario: Callable[[Queue], Coroutine[Any, Any, T]],
    seed: int = 1,
    *,
    settings: TimelineSettings = SETTINGS,
    ring: Settings | None = None,
    options: Mapping[str, Any] | None = None,
) -> T:
    """Run a scenario on a fresh queue."""
    with World(seed, **(options or {})) as world:
        return world.run(scenario(Queue(world, Cluster(world, settings=ring), settings)))
