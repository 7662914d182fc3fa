"""Hints: writes that a coordinator keeps for replicas that were down, or did not answer, and sends when they are
back.

A hint is tried every ten seconds while its target is believed alive. It is dropped silently once it is older than the
gc_grace at its creation, or the table's current one if that is shorter: delivered later, it could bring back deleted
data. A replica that has been down for longer than the hint window gets no hint at all.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headgate.store.memory.mutations import Mutation
from tests.kit.simulated_store.replica import Hint

if TYPE_CHECKING:
    from tests.kit.simulated_store.node import SimulatedNode


class Hints:
    """The hints of one node. They are on its disk; the task that sends them is not."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._cluster = node.cluster
        self._timer: asyncio.TimerHandle | None = None
        if node.replica.hints:
            self.wake()

    def keep(self, target: str, mutation: Mutation) -> None:
        """Keep a write for a replica."""
        cluster = self._cluster
        down_s = cluster.out_of_reach_s(self._node.name, target)
        gc_grace_s = self._gc_grace_s(mutation)
        if down_s > cluster.settings.max_hint_window_s or gc_grace_s == 0:
            cluster.world.history.note(self._node.name, "keeps no hint", mutation, ("for", target))
            return
        hint = Hint(self._now_s(), gc_grace_s, mutation)
        self._node.replica.hints.setdefault(target, []).append(hint)
        cluster.world.history.note(self._node.name, "keeps a hint", mutation, ("for", target))
        self.wake()

    def wake(self) -> None:
        """See to it that hints are tried again."""
        if self._timer is None and self._node.name not in self._cluster.hints_held:
            self._timer = self._cluster.world.loop.call_later(
                self._cluster.settings.hints_every_s, self._try, context=self._node.process.context
            )

    def _try(self) -> None:
        self._timer = None
        if self._node.name in self._cluster.hints_held:
            return
        hints = self._node.replica.hints
        for target in sorted(hints):
            if self._node.sees(target):
                for hint in list(hints[target]):
                    self._deliver(target, hint)
            if not hints[target]:
                del hints[target]
        if hints:
            self.wake()

    def _deliver(self, target: str, hint: Hint) -> None:
        age_s = self._now_s() - hint.made_s
        if age_s > min(hint.gc_grace_s, self._gc_grace_s(hint.mutation)):
            self._cluster.world.history.note(self._node.name, "drops a hint", hint.mutation, ("for", target))
            self._forget(target, hint)
            return
        node = self._cluster.nodes[target]
        self._node.send("hint", node, node.on_hint, self._node, hint.mutation, lambda: self._forget(target, hint))

    def _forget(self, target: str, hint: Hint) -> None:
        held = self._node.replica.hints.get(target, [])
        held[:] = [each for each in held if each is not hint]

    def _gc_grace_s(self, mutation: Mutation) -> int:
        return min(self._cluster.gc_grace_s(part.table) for part in mutation.parts)

    def _now_s(self) -> float:
        return self._node.process.clock.wall_us() / 1_000_000
