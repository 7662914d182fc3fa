"""Leader election: one Lease, taken and renewed here. The prose is docs/internals/protocols/operator.md, "Leading and
living".

It knows neither resources nor kopf. Invariants:

- no process acts after `trusted_until`, which counts from the time a renewal was sent (rule R2), by boot time, so
that
  a machine that slept does not continue;
- a Lease of another process is taken only if it was unchanged for its whole length by our own clock, or was given up;
  by resourceVersion, so that of two takers one wins.

An effect that is late all the same is harmless (uids, LWT), so no fencing token is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from headgate_operator.cluster.port import Denial, Denied, LeaderLease
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.model.names import LEASE_NAME

log = logging.getLogger("headgate.operator")

TTL_S: Final = 15
RENEW_EVERY_S: Final = 5.0
MARGIN_S: Final = 5.0
POLL_EVERY_S: Final = 2.0
AGAIN_S: Final = 1.0
WITHIN_S: Final = 4.0


@dataclass(frozen=True)
class _Observed:
    """Somebody's Lease, and since when it has been like this."""

    lease: LeaderLease
    since_boot_s: float


class LeaderElection:
    def __init__(
        self,
        port: ClusterPort,
        *,
        namespace: str,
        identity: str,
        boot_s: Callable[[], float],
        wall_us: Callable[[], int],
        rng: Random,
        name: str = LEASE_NAME,
    ) -> None:
        self.identity = identity
        self._port = port
        self._namespace = namespace
        self._name = name
        self._boot_s = boot_s
        self._wall_us = wall_us
        self._rng = rng
        self._held: LeaderLease | None = None
        self._trusted_until_s = float("-inf")
        self._observed: _Observed | None = None
        self.taken = asyncio.Event()
        """Set once the Lease was taken for the first time."""
        self.lost = asyncio.Event()
        """Set once another process holds it after this one did: this process has to restart as a standby."""
        self.has_read_lease = asyncio.Event()
        """Set once the Lease was read."""

    def may_act(self) -> bool:
        return self._held is not None and not self.lost.is_set() and self._boot_s() < self._trusted_until_s

    def holder(self) -> str:
        if self._held is not None:
            return self.identity
        return self._observed.lease.holder if self._observed else ""

    async def keep(self) -> None:
        """Take it, renew it, for ever; ends when it is lost to another."""
        while not self.lost.is_set():
            done = await self.turn()
            after_s = RENEW_EVERY_S if done else AGAIN_S
            pause_s = after_s if self._held is not None else POLL_EVERY_S
            await asyncio.sleep(pause_s * self._rng.uniform(0.9, 1.0))

    async def turn(self) -> bool:
        return await (self._renew() if self._held is not None else self._try_to_take())

    async def give_up(self) -> None:
        """Let another take it at once; nothing is done here any more."""
        held, self._held = self._held, None
        if held is not None:
            await self._port.write_lease(replace(held, holder="", ttl_s=1), within_s=WITHIN_S)

    async def _renew(self) -> bool:
        assert self._held is not None  # noqa: S101 - asked only while it is held
        sent_s = self._boot_s()
        written = await self._port.write_lease(replace(self._held, renewed_us=self._wall_us()), within_s=WITHIN_S)
        if isinstance(written, LeaderLease):
            if self._held is not None:
                self._holds(written, sent_s)
            return True
        if written.denial in (Denial.CONFLICT, Denial.NOT_FOUND):
            await self._reread_lease()
        return False

    async def _reread_lease(self) -> None:
        """Somebody wrote it: another holder, or ourselves by a renewal whose answer was lost."""
        lease = await self._port.read_lease(self._namespace, self._name, within_s=WITHIN_S)
        if isinstance(lease, Denied):
            if lease.denial is Denial.NOT_FOUND and self._held is not None:
                self._held = replace(self._held, version=None)
            return
        if self._held is None:
            return
        if lease.holder == self.identity:
            self._held = replace(lease, transitions=self._held.transitions)
            return
        log.error("leadership lost", extra={"holder": lease.holder})
        self._held = None
        self._observed = _Observed(lease, self._boot_s())
        self.lost.set()

    async def _try_to_take(self) -> bool:
        lease = await self._port.read_lease(self._namespace, self._name, within_s=WITHIN_S)
        now_s = self._boot_s()
        if isinstance(lease, Denied):
            if lease.denial is not Denial.NOT_FOUND:
                return False
            self.has_read_lease.set()
            return await self._take(LeaderLease(self._namespace, self._name, "", TTL_S, 0, 0))
        self.has_read_lease.set()
        if self._observed is None or self._observed.lease != lease:
            self._observed = _Observed(lease, now_s)
        if lease.holder and now_s < self._observed.since_boot_s + max(lease.ttl_s, 1):
            return True
        return await self._take(lease)

    async def _take(self, lease: LeaderLease) -> bool:
        sent_s, now_us = self._boot_s(), self._wall_us()
        mine = replace(
            lease,
            holder=self.identity,
            ttl_s=TTL_S,
            acquired_us=now_us,
            renewed_us=now_us,
            transitions=lease.transitions + (1 if lease.version is not None else 0),
        )
        written = await self._port.write_lease(mine, within_s=WITHIN_S)
        if isinstance(written, Denied):
            return False
        log.info("leadership gained", extra={"identity": self.identity})
        self._holds(written, sent_s)
        self.taken.set()
        return True

    def _holds(self, lease: LeaderLease, sent_boot_s: float) -> None:
        self._held = lease
        self._trusted_until_s = sent_boot_s + TTL_S - MARGIN_S
