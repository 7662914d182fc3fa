"""Plain writes and reads of a coordinator: replicas are queried concurrently, answers counted, differences repaired.

- A write goes to every replica that is believed alive; for the others, and for those that do not acknowledge in time,
  a hint is kept. It succeeds when its consistency is met, and otherwise stays on the replicas that it reached.
- A read queries exactly as many replicas as its consistency needs (and one more when they are slow) and merges their
  answers. Before it answers it writes the missing part to each of those: blocking read repair, so that of two reads
  at quorum, one after the other, the later never returns less.
- With a limit, rows that one replica has and another has deleted do not count: it reads again, for more.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headgate.store.memory.mutations import Mutation, Part, mutations_of
from headgate.store.memory.selections import StoredCommand, command_of, selected_rows
from headgate.store.model.consistency import Consistency, SerialLevel
from headgate.store.model.shapes import SelectShape
from headgate.store.model.statements import Batch, Plain, Select
from headgate.store.store import NotEnoughReplicas, OutcomeUnknown
from tests.kit.simulated_store.answers import Answers
from tests.kit.simulated_store.images import ReplicaImage, images_agree, merge_images, missing_from
from tests.kit.simulated_store.topology import ReplicaGroup

if TYPE_CHECKING:
    from tests.kit.simulated_store.node import SimulatedNode

LIMIT_GROWTH = 4


class SimulatedCoordinator:
    """A node's handling of a plain request."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self._cluster = node.cluster
        self._loop = node.cluster.world.loop

    async def write(self, statement: Plain | Batch) -> None:
        """Each partition's mutation at the consistency of the whole."""
        mutations = mutations_of(statement, self._node.now_s)
        if len(mutations) == 1:
            await self.replicate(mutations[0], statement.consistency)
            return
        started: list[Answers] = []
        try:
            for mutation in mutations:
                started.append(self.begin(mutation, statement.consistency))
        except NotEnoughReplicas as error:
            # Other partitions of it may be written, or may still be: this cannot promise that nothing was done.
            raise OutcomeUnknown(error.message, **error.facts) from error  # type: ignore[arg-type]
        await wait_for_all(started)

    async def replicate(self, mutation: Mutation, consistency: Consistency, kind: str = "write") -> None:
        """Write one mutation, and wait for its consistency."""
        await self.begin(mutation, consistency, kind).future

    def begin(self, mutation: Mutation, consistency: Consistency, kind: str = "write") -> Answers:
        """Send one mutation to its replicas, and see to the hints."""
        node = self._node
        groups = self._cluster.topology.groups(mutation.token, consistency, node.data_centre)
        up, down = self.split(self._cluster.topology.replicas(mutation.token))
        require(groups, up)
        answers = Answers(self._loop, groups)
        for name in down:
            node.hints.keep(name, mutation)
        nodes = self._cluster.nodes
        for name in up:
            target = nodes[name]
            node.send(kind, target, target.on_write, node, answers, mutation)
        self._loop.call_later(self._cluster.settings.write_timeout_s, self.see_to_hints, answers, up, mutation)
        return answers

    def see_to_hints(self, answers: Answers, asked: tuple[str, ...], mutation: Mutation) -> None:
        """The time for acknowledgements is up: keep a hint for each missing one, and notify the waiting caller."""
        self.hint_the_silent(answers, asked, mutation)
        answers.fail("too few replicas acknowledged in time", acknowledged=len(answers.replies))

    def hint_the_silent(self, answers: Answers, asked: tuple[str, ...], mutation: Mutation) -> None:
        """Keep a hint for each replica that was written to and did not acknowledge."""
        if len(answers.replies) < len(asked):
            for name in asked:
                if name not in answers.replies:
                    self._node.hints.keep(name, mutation)

    def split(self, replicas: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Replicas that this node takes for alive, and the others."""
        if self._cluster.all_links_are_fine:
            return replicas, ()
        sees = self._node.sees
        return tuple(name for name in replicas if sees(name)), tuple(name for name in replicas if not sees(name))

    # ---- reading

    async def select(self, select: Select) -> list[Any]:
        """The rows of a Select."""
        table = select.shape.table
        command = command_of(select, self._node.now_s)
        consistency = select.consistency
        if consistency is Consistency.SERIAL:
            consistency = plain_consistency(table.serial)
        image = await self.read(command, consistency, _queried(select.shape))
        return selected_rows(select, command, image)

    async def read(
        self, command: StoredCommand, consistency: Consistency, queried: frozenset[str] | None = None
    ) -> ReplicaImage:
        """The merged state of a part of a partition at enough replicas, repaired where they differed: the queried
        columns (None: all), and no others."""
        groups = self._cluster.topology.groups(command.token, consistency, self._node.data_centre)
        while True:
            images = await self._ask(command, groups)
            known = list(images.values())
            if len(known) == 1 or images_agree(known):
                return known[0]
            merged = merge_images(known, command.cut.backwards)
            await self._repair(command, images, merged, queried)
            limit = command.cut.limit
            if limit is None or not merged.truncated:
                return merged
            if sum(row.is_live(command.cut.now_s) for row in merged.rows) >= limit:
                return merged
            # Rows of one replica that another one has deleted have used up the limit: read more of them.
            command = replace(command, cut=replace(command.cut, limit=limit * LIMIT_GROWTH))

    async def _ask(self, command: StoredCommand, groups: tuple[ReplicaGroup, ...]) -> dict[str, ReplicaImage]:
        node = self._node
        eligible = self._nearest_first(self.split(self._cluster.topology.replicas(command.token))[0])
        require(groups, eligible)
        answers = Answers(self._loop, groups)
        asked = self._fewest(eligible, groups)
        nodes = self._cluster.nodes
        for name in asked:
            target = nodes[name]
            node.send("read", target, target.on_read, node, answers, command)
        settings = self._cluster.settings
        give_up = self._loop.call_later(
            settings.read_timeout_s, answers.fail, "too few replicas answered a read in time"
        )
        spare = [name for name in eligible if name not in asked and any(name in group.names for group in groups)]
        hurry = None
        if spare and settings.speculative_retry_s is not None:
            hurry = self._loop.call_later(
                settings.speculative_retry_s, self._ask_one_more, spare[0], answers, command
            )
        try:
            await answers.future
        finally:
            give_up.cancel()
            if hurry is not None:
                hurry.cancel()
        return dict(answers.replies)

    def _ask_one_more(self, name: str, answers: Answers, command: StoredCommand) -> None:
        target = self._cluster.nodes[name]
        self._node.send("read", target, target.on_read, self._node, answers, command)

    def _nearest_first(self, names: tuple[str, ...]) -> tuple[str, ...]:
        local, own = self._node.data_centre, self._node.name
        places = self._cluster.topology.data_centre_of
        return tuple(sorted(names, key=lambda name: (name != own, places[name] != local)))

    @staticmethod
    def _fewest(eligible: tuple[str, ...], groups: tuple[ReplicaGroup, ...]) -> list[str]:
        asked: list[str] = []
        for group in groups:
            have = sum(name in group.names for name in asked)
            asked += [name for name in eligible if name in group.names and name not in asked][: group.needed - have]
        return asked

    async def _repair(
        self,
        command: StoredCommand,
        images: dict[str, ReplicaImage],
        merged: ReplicaImage,
        queried: frozenset[str] | None,
    ) -> None:
        updates = {name: missing_from(image, merged, queried) for name, image in images.items()}
        lacking = {name: update for name, update in updates.items() if update is not None}
        if not lacking:
            return
        answers = Answers(self._loop, (ReplicaGroup(frozenset(lacking), len(lacking)),))
        for name, update in lacking.items():
            mutation = Mutation(command.key, command.token, [Part(command.table, command.values, update)])
            target = self._cluster.nodes[name]
            self._node.send("repair", target, target.on_write, self._node, answers, mutation)
        timer = self._loop.call_later(
            self._cluster.settings.write_timeout_s,
            answers.fail,
            "replicas that lacked a write were not repaired in time",
        )
        try:
            await answers.future
        finally:
            timer.cancel()


@lru_cache(4096)
def _queried(shape: SelectShape) -> frozenset[str] | None:
    names = frozenset((*shape.columns, *shape.write_times_of))
    return None if names >= {column.name for column in shape.table.columns} else names


def plain_consistency(serial: SerialLevel) -> Consistency:
    """The consistency at which an LWT reads and commits: the plain one that its serial level implies."""
    return Consistency.LOCAL_QUORUM if serial is SerialLevel.LOCAL_SERIAL else Consistency.QUORUM


def require(groups: tuple[ReplicaGroup, ...], up: tuple[str, ...]) -> None:
    """Reject at once a request that cannot succeed."""
    for group in groups:
        alive = sum(name in group.names for name in up)
        if alive < group.needed:
            raise NotEnoughReplicas(needed=group.needed, alive=alive)


async def wait_for_all(started: list[Answers]) -> None:
    """Wait until each has ended; if any failed, raise the first failure."""
    await asyncio.wait([answers.future for answers in started])
    failures = [answers.future.exception() for answers in started]
    for failure in failures:
        if failure is not None:
            raise failure
