"""Shares the lanes of one queue with the other processes that want some, without a coordinator. The prose is
docs/internals/protocols/balance.md.

It keeps this process in the list of members, with the lanes that it claims, and reads the other members from it.
decide_shares.py decides the distribution. This module takes and releases nothing itself, and knows no engine. Two
members may read different lists for a while, which costs time and nothing else: lanes are owned by lease.

Each generation is distributed separately, with all its lanes, retired or not: so no member needs to know the others'
knowledge.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import groupby
from uuid import UUID

from headgate.engines.context import Host
from headgate.engines.contract import LaneOwner
from headgate.engines.crash_suspects import ProcessLife
from headgate.engines.lanes.balance.decide_dual_owners import HeldLanes, LaneClaims, decode_held, encode_held
from headgate.engines.lanes.balance.decide_shares import GivingBack, Member, decide_shares, watchers
from headgate.engines.lanes.lane_name import LaneName
from headgate.errors import Unavailable
from headgate.process.background_tasks import SupervisedLoop
from headgate.store.catalogue.tables import MEMBERS
from headgate.store.model.statements import Delete, Insert, Select
from headgate.store.model.types import Value
from headgate.store.store import STORE_ERRORS

log = logging.getLogger("headgate.lanes")

WRITE_EVERY_S = 5.0
READ_EVERY_S = 2.0
BEGIN_AGAIN_S = 0.2
"""A member that does not know the others yet can take nothing, so the first read is retried sooner."""
KEPT_S = 15

Held = Callable[[int], HeldLanes]
"""The lanes that a process claims at a given time."""


def _nothing(_: int) -> HeldLanes:
    return HeldLanes()


class Sharing:
    """This process among the members of a queue. Its store is that of the catalogue's keyspace."""

    def __init__(self, host: Host, queue: UUID, *, address: str = "") -> None:
        """`address`: where this process answers calls about its lanes, as "host:port"; empty where it does not."""
        self.me = host.uuid()
        self.address = address
        self.members: tuple[Member, ...] = ()
        """As read last, this process among them; none before the first read."""
        self.other_claims: tuple[LaneClaims, ...] = ()
        """The other members' claims of lanes, from the last read."""
        self._host = host
        self._queue = queue
        self._capacity = 0
        self._held: Held = _nothing
        self._began_us = 0
        self._stamped_us = 0
        self._giving = GivingBack()
        self._known = asyncio.Event()
        self._read_us = 0
        """When the last read of the list began."""
        self._shared: tuple[tuple[LaneName, ...], tuple[Member, ...], dict[LaneName, UUID]] = ((), (), {})
        self._watched_among: tuple[Member, ...] = ()
        self._watched: dict[LaneName, bool] = {}
        """Whether this process watches a lane, among those members."""
        self.loop = SupervisedLoop("members", self._keep, log=log, member=host.name)
        """Keeps this process in the list, and reads the list."""

    # ---- its life

    def join(self, capacity: int, held: Held = _nothing) -> None:
        """Be a member that holds up to this many lanes, from now on, and publish them."""
        changed, self._capacity = capacity != self._capacity, capacity
        self._held = held
        if changed:
            self.loop.cancel()
        self.loop.start()

    async def leave(self) -> None:
        """Be none any more; the others learn of it at their next read."""
        if not self.loop.is_running:
            return
        await self.loop.stop()
        self.members, self.other_claims = (), ()
        self._known.clear()
        try:
            await self._host.store.write(Delete(MEMBERS, self._key(), timestamp_us=self._stamp()))
        except STORE_ERRORS:
            return  # the row expires by itself

    async def until_known(self, within_s: float) -> None:
        """Wait until the other members are known, but no longer than this: the caller has other work too."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._known.wait()

    async def _keep(self) -> None:
        next_write_s = 0.0
        refused = False
        while True:
            try:
                now_s = asyncio.get_running_loop().time()
                if now_s >= next_write_s:
                    await self._write()
                    next_write_s = now_s + WRITE_EVERY_S
                await self._read()
                self._known.set()
                refused = False
            except STORE_ERRORS as error:  # the last sharing stays
                if not refused and not isinstance(error, Unavailable):
                    log.error(
                        "the membership list cannot be updated",
                        extra={"member": self._host.name, "error": str(error)},
                    )
                    refused = True
            await asyncio.sleep(READ_EVERY_S if self._known.is_set() else BEGIN_AGAIN_S)

    # ---- distribution of lanes

    def mine(self, lanes: Collection[LaneName]) -> set[LaneName]:
        """Those of this process's share; none before it knows the other members. `lanes` are all existing ones."""
        return {lane for lane, member in self._share(lanes).items() if member == self.me}

    @property
    def sharers(self) -> int:
        """How many members have a share of the lanes, as known now; at least one."""
        return max(1, len(set(self._shared[2].values())))

    def to_give_back(self, held: Collection[LaneName], lanes: Collection[LaneName]) -> Collection[LaneName]:
        """Of those held, the ones that have been another's for long enough."""
        return self._giving.decide(held, self._share(lanes), self.me, now_us=self._host.now_us())

    def took(self, lane: LaneName, lanes: Collection[LaneName]) -> None:
        """This lane was taken; if it is in another member's share, because that one did not take it."""
        if self._share(lanes).get(lane, self.me) != self.me:
            self._giving.took_extra(lane, now_us=self._host.now_us())

    def to_watch(self, lanes: Collection[LaneName]) -> list[LaneName]:
        """Of these lanes of others', those that this process keeps an eye on."""
        if self._watched_among != self.members:
            self._watched_among, self._watched = self.members, {}
        for lane in lanes:
            if lane not in self._watched:
                self._watched[lane] = self.me in watchers(lane, self.members)
        return [lane for lane in lanes if self._watched[lane]]

    async def owner_of(self, lane: LaneName) -> LaneOwner | None:
        """The member that claims a lane, by the list of members; None where none is known to."""
        claims = self.other_claims
        if not self._known.is_set():
            claims = tuple(each for _, each in await read_members(self._host, self._queue))
        owners = [(claim.epoch, each) for each in claims for claim in each.lanes if claim.lane == lane]
        if not owners:
            return None
        _, owner = max(owners, key=lambda each: each[0])
        return LaneOwner(owner.member, owner.address, owner.until_us)

    def _share(self, lanes: Collection[LaneName]) -> dict[LaneName, UUID]:
        wanted = tuple(sorted(lanes))
        if self._shared[:2] != (wanted, self.members):
            owners: dict[LaneName, UUID] = {}
            for _, of_one in groupby(wanted, lambda lane: lane[0]):
                owners |= decide_shares(list(of_one), self.members)
            self._shared = wanted, self.members, owners
        return self._shared[2]

    def life_of(self, member: UUID, *, since_us: int) -> ProcessLife:
        """Whether a process has written its row of the list since that time. One that has ended is in no list that
        was read later."""
        if member == self.me:
            return ProcessLife.ALIVE
        written_us = [claims.at_us for claims in self.other_claims if claims.member == member]
        if any(each > since_us for each in written_us):
            return ProcessLife.ALIVE
        return ProcessLife.ENDED if not written_us and self._read_us > since_us else ProcessLife.UNKNOWN

    # ---- the list

    async def _write(self) -> None:
        now_us, stamp_us = self._host.now_us(), self._stamp()
        self._began_us = self._began_us or now_us
        values: dict[str, Value] = {**self._key(), "name": self._host.name, "room": self._capacity}
        values |= {"began_us": self._began_us, "held_us": now_us}
        values["held"] = encode_held(replace(self._held(now_us), address=self.address))
        await self._host.store.write(Insert(MEMBERS, values, timestamp_us=stamp_us, ttl_s=KEPT_S))

    async def _read(self) -> None:
        """All that there are, and this process: its own row may be late."""
        began_us = self._host.now_us()
        member_claims = await read_members(self._host, self._queue)
        self._read_us = began_us
        self.other_claims = tuple(claims for _, claims in member_claims if claims.member != self.me)
        members = {member.id: member for member, _ in member_claims} | {self.me: Member(self.me, self._capacity)}
        self.members = tuple(sorted(members.values()))

    def _key(self) -> dict[str, Value]:
        return {"queue": self._queue, "member": self.me}

    def _stamp(self) -> int:
        self._stamped_us = max(self._stamped_us + 1, self._host.now_us())
        return self._stamped_us


async def read_members(host: Host, queue: UUID) -> list[tuple[Member, LaneClaims]]:
    """The members of a queue, and each one's claims of lanes."""
    columns = ("member", "room", "held", "held_us")
    members: list[tuple[Member, LaneClaims]] = []
    for row in await host.store.read(Select(MEMBERS, {"queue": queue}, columns)):
        if row.room is not None:
            held = decode_held(row.held)
            claims = LaneClaims(row.member, row.held_us or 0, held.lanes, held.address, held.until_us)
            members.append((Member(row.member, row.room), claims))
    return members
