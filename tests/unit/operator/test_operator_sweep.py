"""The sweep retains what nobody owns any more, and only what two lists and the watches all lack."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headgate.applying.decide_steps import Retain, Step
from headgate.store.catalogue.decide_generation import first
from headgate.store.catalogue.entry import Entry, EntryState, Name, StoragePlace
from headgate_operator.cluster.port import Denial, Denied, ListPage
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.store.orphans import OrphanSweep
from tests.kit.simulated_world import World

OURS = "operator/this-cluster/u1"


def entry(owner: str = OURS, state: EntryState = EntryState.ACTIVE) -> Entry:
    return Entry(
        name=Name("Queue", "shop", "emails"),
        id=UUID(int=7),
        owner=owner,
        state=state,
        revision=1,
        document={},
        place=StoragePlace("dc1", "headgate", "shared"),
        generations=first(2),
        changed_us=0,
    )


class Scene:
    """Entries, and the server's listings at each sweep: Queues, then Counters."""

    def __init__(self, *checks: set[str] | None, result: Entry | None = None) -> None:
        self.checks = [*checks]
        self.entries = [result or entry()]
        self.taken: list[Step] = []
        self.asked = 0
        self.may_act = True
        self.cache = ObjectCache()

    async def list(self, kind: Any, **_: Any) -> ListPage | Denied:
        check = self.checks[min(self.asked // 2, len(self.checks) - 1)]
        self.asked += 1
        if check is None:
            return Denied(Denial.UNKNOWN, 0, "", "")
        items = [{"kind": kind.kind, "metadata": {"uid": uid}} for uid in sorted(check)]
        return ListPage(tuple(items) if kind.kind == "Queue" else (), "1")

    async def owned(self) -> Any:
        return [(object(), each) for each in self.entries]

    def performer(self, _: object) -> Any:
        return SimpleNamespace(perform=self._perform)

    async def _perform(self, step: Step) -> None:
        self.taken.append(step)

    async def reach_default(self) -> None:
        """There is one."""

    def turn(self) -> list[Step]:
        with World(1) as world:
            sweep = OrphanSweep(
                cast(Any, self), self.cache, cast(Any, self), cast(Any, self), may_act=lambda: self.may_act
            )
            world.run(sweep.turn())
        return self.taken


def test_what_two_lists_lack_is_retained() -> None:
    assert [Retain(entry())] == Scene(set(), set()).turn()


def test_what_one_list_has_is_left_alone() -> None:
    assert [] == Scene(set(), {"u1"}).turn()
    assert [] == Scene({"u1"}, set()).turn()


def test_what_the_watches_know_is_left_alone() -> None:
    scene = Scene(set(), set())
    metadata = {"name": "emails", "namespace": "shop", "uid": "u1", "resourceVersion": "1"}
    scene.cache.update({"kind": "Queue", "metadata": metadata})
    assert [] == scene.turn()


def test_without_a_list_nothing_is_judged() -> None:
    assert [] == Scene(None, set()).turn()
    assert [] == Scene(set(), None).turn()


@pytest.mark.parametrize("state", [EntryState.RETAINED, EntryState.GONE])
def test_what_is_retained_or_gone_stays(state: EntryState) -> None:
    assert [] == Scene(set(), set(), result=entry(state=state)).turn()


def test_nothing_is_marked_once_another_leads() -> None:
    scene = Scene(set(), set())
    scene.may_act = False
    assert [] == scene.turn()


def test_a_creation_that_came_between_the_checks_is_another() -> None:
    scene = Scene(set(), set())
    whole = scene.owned

    async def changing() -> Any:
        result = await whole()
        scene.entries = [replace(entry(), id=UUID(int=8))]
        return result

    scene.owned = changing  # type: ignore[method-assign]
    assert [] == scene.turn()
