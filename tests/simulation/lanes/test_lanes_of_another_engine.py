"""Lanes, dispatchers and members serve an engine that is not timeline: one whose lanes are consumer groups of extents
named by uuids, and whose orders are no times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.contract import Ack, Delivery, LaneOwner, Settled
from headgate.engines.lanes.balance.membership import Sharing
from headgate.engines.lanes.delivery.rows import DeliveryTerms, HandOut, LaneRow, Move
from headgate.engines.lanes.dispatcher import Dispatcher, DispatchTerms, SettleRequest
from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.lanes.log.settle_log import Piece
from headgate.engines.lanes.log.settle_log_format import Facts, decode, merge_facts
from headgate.engines.lanes.ownership.decide_lease import LaneState, LeaseTerm, LeaseTerms
from headgate.engines.lanes.ownership.engine_lanes import Work
from headgate.engines.lanes.ownership.lane_set import LaneSet
from headgate.engines.lanes.ownership.lease import Lane
from headgate.engines.lanes.source import RangeReservation, RowSlice
from headgate.engines.receipts import receipts_of
from headgate.engines.summary.decide_figures import LaneStand
from headgate.process.live import Live
from headgate.store.model.statements import InsertIfAbsent
from headgate.store.model.table import Column, Table, WrittenBy
from headgate.store.model.types import Type, Value
from tests.kit.simulated_store.cluster import Cluster
from tests.kit.simulated_world.world import World
from tests.simulation.timeline.timeline_puts import SECOND, Client, Queue

QUEUE = UUID("5e0f7a52-0000-4000-8000-00000000000a")
GROUPS = (UUID("11111111-0000-4000-8000-000000000001").int, UUID("11111111-0000-4000-8000-000000000002").int)
EXTENTS = (UUID("eeeeeeee-0000-4000-8000-000000000001").int, UUID("eeeeeeee-0000-4000-8000-000000000002").int)
NAMES: list[LaneName] = [(group, extent) for group in GROUPS for extent in EXTENTS]
EVERYTHING = 2**60
BY_LWT = ("epoch", "stop", "progress", "taken", "touched", "last", "read_to", "lent_to", "purged_before")
LANES = Table(
    "log_lanes",
    "the owner of each extent for each consumer group",
    partition=(Column("queue", Type.UUID), Column("group", Type.UUID), Column("extent", Type.UUID)),
    columns=(
        *(Column(name, Type.BIGINT, WrittenBy.LWT) for name in BY_LWT),
        Column("lock", Type.UUID, WrittenBy.LWT),
        Column("lent", Type.BLOB, WrittenBy.LWT),
        Column("lent_seen", Type.BLOB, WrittenBy.LWT),
        Column("attempt", Type.UUID, WrittenBy.LWT),
    ),
    rows=WrittenBy.LWT,
    attempt="attempt",
)


@dataclass
class Log:
    """What all processes share: the messages of each extent, and what owners wrote down."""

    messages: dict[int, list[bytes]] = field(default_factory=lambda: {extent: [] for extent in EXTENTS})
    facts: dict[LaneName, Facts] = field(default_factory=dict)
    reads: int = 0


class LogSource:
    """A `LaneSource` over an extent."""

    def __init__(self, log: Log, name: LaneName) -> None:
        self._log = log
        self._name = name
        self._recalled = False

    def order_of(self, stored: Value) -> int:
        return stored if isinstance(stored, int) else 0

    def stored(self, order: int) -> int:
        return order

    def order_at(self, time_us: int) -> int:
        return EVERYTHING

    def quiet_up_to(self, after: int) -> int | None:
        return None

    async def known(self, after: int, up_to: int) -> Facts:
        return dict(self._log.facts.get(self._name, {}))

    async def recall(self, after: int) -> Facts:
        facts = {} if self._recalled else await self.known(after, EVERYTHING)
        self._recalled = True
        return facts

    async def read(self, after: int, *, bytes_max: int) -> RowSlice:
        self._log.reads += 1
        messages = self._log.messages[self._name[1]]
        rows = [LaneRow(b"%d" % order, order, 1, 10) for order in range(after + 1, len(messages) + 1)]
        return RowSlice(rows, len(messages), False)

    async def write_record(self, pieces: Sequence[Piece[Any]]) -> None:
        for piece in pieces:
            merge_facts(self._log.facts.setdefault(self._name, {}), decode(piece.content))

    async def write_passed(self, rows: Sequence[LaneRow]) -> None:
        return

    def fix_place(self, move: Move) -> bytes:
        raise NotImplementedError

    async def write_copy(self, move: Move) -> None:
        raise NotImplementedError

    def deliveries(self, given: Iterable[HandOut], epoch: int) -> list[Delivery]:
        made = []
        for each in given:
            of_row = receipts_of(QUEUE, b"secret").of_row(self._name, epoch, each.attempt, each.row.key, count=1)
            payload = self._log.messages[self._name[1]][each.row.order - 1]
            text = of_row.text(each.index)
            made.append(Delivery(payload.decode(), payload, {}, None, each.attempt, 0, 0, epoch, each.until_us, text))
        return made

    def put_before(self, row: LaneRow, time_us: int) -> int:
        return 0

    def purge(self, before_us: int) -> None:
        return

    def met(self, keys: Iterable[bytes]) -> None:
        return

    def settled_elsewhere(self, rows: Iterable[LaneRow], facts: Facts) -> Mapping[bytes, int]:
        return {}

    def decode_reservation(self, reserved: bytes) -> RangeReservation:
        raise NotImplementedError

    def encode_reservation(self, reservation: RangeReservation) -> bytes:
        raise NotImplementedError


class LogLanes:
    """An `EngineLanes`."""

    queue = QUEUE
    queue_name = "shop/log"
    lease = LeaseTerms(ttl_s=10, touch_us=2 * SECOND, skew_us=SECOND // 2)

    def __init__(self, host: Host, log: Log, terms: DispatchTerms) -> None:
        self.terms = terms
        self._host = host
        self._log = log

    def names(self) -> list[LaneName]:
        return list(NAMES)

    def lane(self, name: LaneName) -> Lane:
        group, extent = name
        key: dict[str, Value] = {"queue": QUEUE, "group": UUID(int=group), "extent": UUID(int=extent)}
        return Lane(self._host, LANES, key, self.lease)

    async def make(self, name: LaneName) -> bool:
        begin = {"epoch": 0, "stop": 0, "purged_before": 0, "last": 0, "read_to": 0}
        row = InsertIfAbsent(LANES, {**self.lane(name).key, **begin}, attempt=self._host.uuid())
        await self._host.store.decide(row)
        return True

    def source(self, name: LaneName, lease_term: LeaseTerm) -> LogSource:
        return LogSource(self._log, name)

    def engine_work(self, name: LaneName, dispatcher: Dispatcher, source: LogSource) -> Work | None:
        return None

    arrivals_every_s = 1.0

    async def find_arrivals(self, empty: Collection[LaneName]) -> Collection[LaneName]:
        return ()

    def lanes_before(self, name: LaneName) -> list[LaneName]:
        return []

    async def first_due_us(self, name: LaneName, state: LaneState) -> int | None:
        return None

    async def announce_next_due(self) -> None:
        return

    def stand(self, name: LaneName, dispatcher: Dispatcher, now_us: int) -> LaneStand:
        return LaneStand(NAMES.index(name), dispatcher.delivery_state.unsettled, 0, None, 0, False, False)


def terms_with(**poll: float) -> DispatchTerms:
    """Those of this engine."""
    deliveries = DeliveryTerms(max_receives=2**31, hold_us_max=2**60, remembered_us=SECOND, dead_letters=False)
    return DispatchTerms(Live(deliveries), **poll)  # type: ignore[arg-type]


class Member:
    """One process that works lanes."""

    def __init__(self, queue: Queue, log: Log, name: str, terms: DispatchTerms) -> None:
        self.client: Client = queue.client(name)
        self.process = self.client.process
        host = self.client.host
        self.sharing = Sharing(host, QUEUE, address=f"{name}.example:4711")
        self.changed = asyncio.Event()
        self.lanes = LaneSet(host, LogLanes(host, log, terms), changed=self.changed, sharing=self.sharing)

    async def receive(self) -> list[Delivery]:
        """What its lanes have now."""
        visibility_us = 30 * SECOND
        given = [await each.receive(100, visibility_us=visibility_us) for each in self.lanes.held.values()]
        return [each for of_lane in given for each in of_lane]

    async def ack(self, delivery: Delivery) -> Settled:
        """By its receipt alone."""
        row, index = receipts_of(QUEUE, b"secret").read(delivery.receipt)
        request = SettleRequest(row.key, index, row.attempt, row.epoch, Ack(delivery.receipt))
        (settled,) = await self.lanes.held[row.lane].settle([request])
        return settled

    async def owner_of(self, delivery: Delivery) -> LaneOwner | None:
        """By its receipt alone."""
        row, _ = receipts_of(QUEUE, b"secret").read(delivery.receipt)
        return await self.lanes.owner_of(row.lane)


def simulate(scenario: Callable[[Queue], Coroutine[Any, Any, None]]) -> None:
    """Run it in a world of its own."""
    with World(1) as world:
        world.run(scenario(Queue(world, Cluster(world))))


async def until(reached: Callable[[], bool], *, within_s: float) -> None:
    """As soon as that is so."""
    async with asyncio.timeout(within_s):
        while not reached():  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.05)


def test_two_members_share_lanes_named_by_uuids_and_each_receipt_shows_where_it_is_settled() -> None:
    async def scenario(queue: Queue) -> None:
        log = Log({extent: [b"%d" % number for number in range(20)] for extent in EXTENTS})
        members = [Member(queue, log, name, terms_with()) for name in ("one", "other")]
        for each in members:
            each.process.start(_want(each))
        await until(lambda: [2, 2] == [len(each.lanes.held) for each in members], within_s=40)
        assert [{*GROUPS}, {*GROUPS}] == [{group for group, _ in each.lanes.held} for each in members]
        await asyncio.sleep(10)
        got = [await each.process.start(each.receive()) for each in members]
        assert 2 * 2 * 20 == sum(map(len, got))
        for mine, theirs, of_mine in ((members[0], members[1], got[0]), (members[1], members[0], got[1])):
            for process in (mine, theirs):
                owner = await process.process.start(process.owner_of(of_mine[0]))
                assert owner is not None
                now_us = process.process.clock.wall_us()
                expected = (mine.sharing.me, mine.sharing.address, True)
                assert expected == (owner.member, owner.address, owner.until_us > now_us)
            settled = [await mine.process.start(mine.ack(delivery)) for delivery in of_mine]
            assert {Settled.DONE} == set(settled)
        await members[0].process.start(members[0].lanes.leave())
        await until(lambda: [0, 4] == [len(each.lanes.held) for each in members], within_s=40)
        await asyncio.sleep(2)
        assert [] == await members[1].process.start(members[1].receive()), "what was settled is not delivered again"

    simulate(scenario)


async def _want(member: Member) -> None:
    member.lanes.want(100)


def test_a_hint_ends_the_pause_between_two_reads_and_an_idle_lane_is_read_seldom() -> None:
    async def scenario(queue: Queue) -> None:
        log = Log()
        member = Member(queue, log, "one", terms_with(poll_s_min=60.0, poll_s_max=60.0))
        member.process.start(_want(member))
        await until(lambda: len(NAMES) == len(member.lanes.held), within_s=20)
        await asyncio.sleep(200)
        before = log.reads
        for extent in EXTENTS:
            log.messages[extent].append(b"news")
        for dispatcher in member.lanes.held.values():
            dispatcher.wake()
        await asyncio.sleep(0.2)
        assert before + len(NAMES) <= log.reads <= before + 2 * len(NAMES)
        assert len(NAMES) == len(await member.process.start(member.receive()))

    simulate(scenario)
