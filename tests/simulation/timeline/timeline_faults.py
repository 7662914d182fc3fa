"""The faults of a life: of replicas, links, clocks and processes, in sequence or at once, drawn from the seed.

Each fault ends by itself, and the last call ends those that are left. This module knows which processes work on a
queue, and not what they do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.kit.simulated_world import ProcessState
from tests.simulation.timeline.timeline_members import Life, Member
from tests.simulation.timeline.timeline_puts import SECOND

KINDS = (
    "request",
    "answer",
    "write",
    "write-ack",
    "read",
    "rows",
    "prepare",
    "promise",
    "propose",
    "accept",
    "commit",
    "commit-ack",
)
LATE_S = (0.5, 3.0, 12.0, 40.0)
VERY_LATE_S = (*LATE_S, 1_000.0, 10_000.0)
"""For lives that check again after hours."""


class Storm:
    """The faults of one life."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._world = life.world
        self._network = life.world.network
        self._cluster = life.cluster
        self._rng = life.rng("storm")
        acts: dict[str, Callable[[], None]] = {
            "stopped replicas": self._stop_replica,
            "killed replicas": self._kill_replica,
            "cut replicas": self._cut_replica,
            "cut processes": self._cut_process,
            "slow replicas": self._slow_replica,
            "lost messages": self._lose,
            "late messages": self._delay,
            "held hints": self._hold_hints,
            "paused consumers": lambda: self._pause({**life.consumers, **life.helpers}),
            "killed consumers": lambda: self._kill({**life.consumers, **life.helpers}),
            "paused producers": lambda: self._pause(life.producers),
            "killed producers": lambda: self._kill(life.producers),
            "stepped clocks": self._step_clock,
            "late writes": self._delay_writes,
            "held batches": self._hold_batches,
            "refused tables": self._refuse_table,
            "revoked rights": self._revoke,
        }
        self._acts = [acts[name] for name in sorted(life.plan.faults)]

    async def rage(self, until_s: float) -> None:
        """One after the other."""
        while self._world.now_s() < until_s:
            await asyncio.sleep(self._rng.expovariate(1 / self._life.plan.fault_every_s))
            if self._acts:
                self._rng.choice(self._acts)()

    def heal(self) -> None:
        """End all faults: of links, replicas and processes; and of hints, but where a life waits for them."""
        self._network.calm()
        self._cluster.allow()
        if not self._life.plan.has("late"):
            self._cluster.release_hints()
            self._cluster.release_batchlog()
        for name, node in self._cluster.nodes.items():
            self._cluster.go_on(name)
            if node.process.state is ProcessState.DEAD:
                self._cluster.restart(name)
        for member in self._life.members():
            member.process.resume()

    def _replica(self) -> str:
        return self._rng.choice(sorted(self._cluster.nodes))

    def _outside(self, least_s: float, most_s: float, act: Callable[[], object]) -> None:
        self._world.outside(self._rng.uniform(least_s, most_s), act)

    def _stop_replica(self) -> None:
        self._cluster.stop(self._replica(), for_s=self._rng.uniform(0.3, 12))

    def _kill_replica(self) -> None:
        name = self._replica()
        running = [each for each in self._cluster.nodes.values() if each.process.state is ProcessState.RUNNING]
        if len(running) > 1 and self._cluster.nodes[name].process.state is ProcessState.RUNNING:
            self._cluster.kill(name)
            self._outside(0.5, 12, lambda: self._start_again(name))

    def _start_again(self, name: str) -> None:
        if self._cluster.nodes[name].process.state is ProcessState.DEAD:
            self._cluster.restart(name)

    def _cut_replica(self) -> None:
        name = self._replica()
        others = [each for each in self._world.processes if each != name]
        self._network.cut(name, others, one_way=self._rng.random() < 0.5)
        self._outside(0.3, 12, lambda: self._network.heal(name, others))

    def _cut_process(self) -> None:
        """One process and some of the replicas do not hear each other."""
        names = sorted({*self._life.consumers, *self._life.producers})
        name = self._rng.choice(names)
        count = self._rng.randint(1, len(self._cluster.nodes))
        replicas = self._rng.sample(sorted(self._cluster.nodes), count)
        if self._rng.random() < 0.4:
            self._network.cut(replicas, name, one_way=True)
        else:
            self._network.cut(name, replicas)
        self._outside(0.3, 15, lambda: self._network.heal(name, replicas))

    def _slow_replica(self) -> None:
        name = self._replica()
        self._network.slow(name, self._rng.uniform(0.02, 1.5))
        self._outside(0.5, 10, lambda: self._network.slow(name, 0))

    def _lose(self) -> None:
        self._network.lose(self._rng.choice(KINDS), count=self._rng.randint(1, 6))

    def _delay(self) -> None:
        target = self._replica() if self._rng.random() < 0.5 else None
        self._network.delay(
            self._rng.choice(KINDS),
            by_s=self._rng.choice(VERY_LATE_S if self._life.plan.has("late") else LATE_S)
            * self._rng.uniform(0.5, 1.5),
            target=target,
            count=self._rng.randint(1, 4),
        )

    def _delay_writes(self) -> None:
        """Whole writes, to all replicas or from one producer, land after hours."""
        by_s = self._rng.choice(VERY_LATE_S[1:]) * self._rng.uniform(0.5, 1.5)
        producers = sorted(self._life.producers)
        if self._rng.random() < 0.5:
            source = self._rng.choice(producers)
            self._network.delay("request", by_s=by_s, source=source, count=self._rng.choice((1, 3, 30)))
        else:
            self._network.delay("write", by_s=by_s, count=3 * self._rng.choice((1, 3, 30)))

    def _hold_hints(self) -> None:
        self._cluster.hold_hints(self._replica())

    def _hold_batches(self) -> None:
        """The log of batches is not replayed, and parts of batches are lost, so that only a replay brings them."""
        self._cluster.hold_batchlog()
        self._network.lose("write", count=self._rng.choice((2, 6)))

    def _refuse_table(self) -> None:
        """Of everybody, or of one process."""
        tables = sorted(each.name for each in vars(self._life.settings.tables).values())
        self._refuse(self._rng.choice(tables), self._rng.uniform(1, 8))

    def _revoke(self) -> None:
        self._refuse(None, self._rng.uniform(5, 10))

    def _refuse(self, table: str | None, for_s: float) -> None:
        names = sorted({**self._life.consumers, **self._life.producers, **self._life.helpers})
        client = self._rng.choice(names) if self._rng.random() < 0.5 else None
        refusal = self._cluster.refuse(table=table, client=client)
        now_us = self._life.ledger.now_us()
        self._life.disturbed_us.append((now_us, now_us + round(for_s * SECOND)))
        self._world.outside(for_s, lambda: self._cluster.allow(refusal))

    def _member(self, of: dict[str, Member]) -> Member | None:
        running = [name for name in sorted(of) if of[name].is_running]
        return of[self._rng.choice(running)] if running else None

    def _pause(self, of: dict[str, Member]) -> None:
        member = self._member(of)
        if member is not None:
            for_s = self._rng.choice((self._rng.uniform(0.1, 2), self._rng.uniform(2, 25)))
            member.process.pause(for_s=for_s, machine=self._rng.random() < 0.2)

    def _kill(self, of: dict[str, Member]) -> None:
        member = self._member(of)
        if member is None:
            return
        if self._rng.random() < 0.5:
            member.process.kill()
        else:  # in the midst of what it does, and not between two turns of the storm
            member.process.kill_before_step(self._rng.randint(1, 200))

    def _step_clock(self) -> None:
        """Of a process or a replica, and set right again after a while."""
        if self._rng.random() < 0.3:
            process = self._cluster.nodes[self._replica()].process
            by_s = NODE_STEP_S
        else:
            member = self._member({**self._life.consumers, **self._life.producers})
            if member is None:
                return
            process = member.process
            by_s = self._rng.choice((0.15, 0.4, 2.0, 30.0))
        clock = process.clock
        by_s *= self._rng.choice((-1, 1))
        process.note("its clock is set", ("by_s", by_s))
        clock.step(by_s)
        self._outside(1, 10, lambda: clock.step(-by_s))


NODE_STEP_S = 0.1
"""A node that is off by more is found at the next check, which may be a minute later."""
