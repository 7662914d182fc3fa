"""A ring to do harm to: tables, and short forms of what every scenario needs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from headgate.store.model.consistency import Consistency, SerialLevel
from headgate.store.model.statements import Delete, Insert, InsertIfAbsent, Select, UpdateIf, is_
from headgate.store.model.table import Column, Table, WrittenBy
from headgate.store.model.types import Type
from headgate.store.store import Outcome, OutcomeUnknown
from tests.kit.simulated_store import Cluster, Settings, SimulatedStore
from tests.kit.simulated_world import World

T = TypeVar("T")
LWT = WrittenBy.LWT

ONE, LOCAL_QUORUM, QUORUM, ALL = Consistency.ONE, Consistency.LOCAL_QUORUM, Consistency.QUORUM, Consistency.ALL
SERIAL = Consistency.SERIAL
DAY_S = 24 * 3600

ROWS = Table(
    "rows",
    "rows written plainly",
    (Column("p", Type.TEXT),),
    (Column("c", Type.INT),),
    (Column("v", Type.TEXT),),
    gc_grace_s=DAY_S,
)

LOCKS = Table(
    "locks",
    "a lock with an epoch, by LWT",
    (Column("p", Type.TEXT),),
    (),
    (Column("lock", Type.UUID, LWT), Column("epoch", Type.INT, LWT), Column("attempt", Type.UUID, LWT)),
    rows=LWT,
    attempt="attempt",
)

GLOBAL_LOCKS = Table(
    "global_locks",
    "the same, agreed on by all data centres",
    (Column("p", Type.TEXT),),
    (),
    (Column("lock", Type.UUID, LWT), Column("epoch", Type.INT, LWT), Column("attempt", Type.UUID, LWT)),
    rows=LWT,
    attempt="attempt",
    serial=SerialLevel.SERIAL,
)


@dataclass
class Ring:
    """A world with a cluster and one client."""

    world: World
    cluster: Cluster
    store: SimulatedStore

    def client(self, name: str, *, data_centre: str = "dc1") -> SimulatedStore:
        """One more client, in a process of its own."""
        return SimulatedStore(self.cluster, self.world.process(name, data_centre=data_centre))

    def now_us(self) -> int:
        """The client's clock."""
        return self.store.process.clock.wall_us()

    def uuid(self) -> UUID:
        """A fresh uuid."""
        return self.store.process.uuid()

    async def put(
        self, value: str, *, p: str = "a", c: int = 1, to: Consistency = LOCAL_QUORUM, ttl_s: int | None = None
    ) -> None:
        """One try of a plain write, stamped now."""
        await self.store.attempt(self.insert(value, p=p, c=c, to=to, ttl_s=ttl_s), 10)

    def insert(
        self, value: str, *, p: str = "a", c: int = 1, to: Consistency = LOCAL_QUORUM, ttl_s: int | None = None
    ) -> Insert:
        """A plain write, stamped now."""
        values = {"p": p, "c": c, "v": value}
        return Insert(ROWS, values, timestamp_us=self.now_us(), ttl_s=ttl_s, consistency=to)

    async def remove(self, *, p: str = "a", c: int = 1, to: Consistency = LOCAL_QUORUM) -> None:
        """Delete a row, stamped now."""
        await self.store.attempt(Delete(ROWS, {"p": p, "c": c}, timestamp_us=self.now_us(), consistency=to), 10)

    async def get(self, *, p: str = "a", to: Consistency = LOCAL_QUORUM) -> list[str]:
        """The values of a partition."""
        return [row.v for row in await self.store.read(Select(ROWS, {"p": p}, ["v"], consistency=to))]

    def held_by(self, name: str, *, p: str = "a") -> list[str]:
        """Rows on the disk of one replica, without tombstones; no process can know this."""
        node = self.cluster.nodes[name]
        held = [entry for entry in node.replica.tables.get("rows", {}).values() if entry.values == (p,)]
        rows = [entry.partition.rows[key] for entry in held for key in entry.partition.keys]
        return [str(row.cells["v"].value) for row in rows if row.is_live(node.now_s)]

    def holders(self, *, p: str = "a") -> set[str]:
        """The replicas that have anything of a partition."""
        return {name for name in self.cluster.nodes if self.held_by(name, p=p)}

    async def create_lock(self, *, p: str = "a", table: Table = LOCKS) -> Outcome:
        """Make a lock that nobody holds."""
        return await self.store.decide(InsertIfAbsent(table, {"p": p, "epoch": 0}, attempt=self.uuid()))

    def take(self, lock: UUID, *, p: str = "a", ttl_s: int | None = None, table: Table = LOCKS) -> UpdateIf:
        """Take a lock that nobody holds."""
        return UpdateIf(table, {"p": p}, {"lock": lock}, is_("lock", None), attempt=self.uuid(), ttl_s=ttl_s)

    async def owner(self, *, p: str = "a", table: Table = LOCKS, store: SimulatedStore | None = None) -> UUID | None:
        """The holder of a lock, by a serial read."""
        rows = await (store or self.store).read(Select(table, {"p": p}, ["lock"], consistency=SERIAL))
        return rows[0].lock if rows else None


async def ends_unknown(work: Coroutine[Any, Any, object]) -> bool:
    """Whether it ends as Unknown."""
    try:
        await work
    except OutcomeUnknown:
        return True
    return False


def simulate(
    scenario: Callable[[Ring], Coroutine[Any, Any, T]],
    seed: int = 1,
    *,
    settings: Settings | None = None,
    data_centres: Mapping[str, int] | None = None,
    shuffled: bool = False,
) -> T:
    """Run a scenario on a fresh ring."""
    with World(seed, shuffled=shuffled) as world:
        cluster = Cluster(world, settings=settings, data_centres=data_centres)
        ring = Ring(world, cluster, SimulatedStore(cluster, world.process("client")))
        return world.run(scenario(ring))
