"""Properties of the operator's decisions in every world: they are total, and settled by their own plans."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import DropTable, Forget, ForgetRows, MarkDeleting
from headgate.engines.summary.decide_marks import LaterMark
from headgate.expiry import SECOND_US
from headgate.store.catalogue.entry import EntryState
from headgate_operator.model.names import ADOPT, FINALIZER
from headgate_operator.model.plan import (
    ApplyObject,
    DeleteObject,
    Emit,
    PatchStatus,
    ReconcilePlan,
    StopLane,
    StoreStep,
)
from headgate_operator.model.world import (
    UNKNOWN,
    BulkRun,
    ChildName,
    DecisionMemory,
    LaneHealth,
    LaneProblem,
    Passes,
    PodStatus,
    QueueLoad,
    ResourceFailure,
    Sibling,
)
from tests.kit.operator_world import NOW_US, TinyWorld, resource_document

MINUTE_US = 60 * SECOND_US
MAX = 6
EXAMPLES = settings(max_examples=int(os.environ.get("OPERATOR_EXAMPLES", "30")), deadline=None)

AUTO = {"mode": "auto", "min": 1, "max": MAX, "backlogPerWorker": 100}
SCALINGS = (None, AUTO, {**AUTO, "min": 0}, {**AUTO, "mode": "external"})
BULK = [{"name": "nightly", "mode": "drain", "schedule": "0 2 * * *", "backlogAbove": 500, "handler": "a.b:c"}]


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """Specs of a queue that are valid."""
    spec: dict[str, Any] = {
        "shards": draw(st.integers(1, 8)),
        "storage": {"tables": draw(st.sampled_from(("shared", "dedicated")))},
        "deletionPolicy": draw(st.sampled_from(("Retain", "Delete"))),
    }
    scaling = draw(st.sampled_from((*SCALINGS, "none")))
    if scaling != "none":
        consumer = {"name": "mailer", "image": "mailer:1", "handler": "a.b:c"}
        spec["consumers"] = [consumer if scaling is None else consumer | {"scaling": scaling}]
    if draw(st.booleans()):
        spec["deadLetter"] = "dead"
    if draw(st.booleans()):
        spec["bulk"] = BULK
    return spec


def figures_at(now_us: int) -> st.SearchStrategy[QueueLoad]:
    """Figures that were read just now, or too long ago."""
    number = st.one_of(st.none(), st.integers(0, 2000))
    marks = st.builds(
        lambda due_s: LaterMark(now_us + due_s * SECOND_US, now_us + (due_s + 60) * SECOND_US), st.integers(-90, 90)
    )
    return st.builds(
        QueueLoad,
        at_us=st.sampled_from((now_us, now_us - 10 * SECOND_US, now_us - 20 * SECOND_US)),
        backlog=number,
        counted=number,
        in_flight=st.integers(0, 3),
        oldest_us=st.one_of(st.none(), st.integers(0, 300).map(lambda age_s: now_us - age_s * SECOND_US)),
        owners=st.integers(0, 3),
        leased=st.integers(0, 4),
        held=st.integers(0, 1),
        awake=st.booleans(),
        later=st.lists(marks, max_size=2).map(tuple),
    )


LANE = st.builds(LaneProblem, st.sampled_from(("1/0", "1/1")), st.integers(1, 3), st.just("stands"))
LANES = st.builds(
    lambda age_s, **problems: (age_s, problems),
    st.integers(0, 90),
    unprocessed=st.lists(LANE, max_size=2).map(tuple),
    suspicious=st.lists(LANE, max_size=2).map(tuple),
    held=st.lists(LANE, max_size=1).map(tuple),
)
FAILURES = st.builds(
    ResourceFailure,
    st.sampled_from((Reason.CASSANDRA_UNAVAILABLE, Reason.CLOCK_OUT_OF_BOUNDS, Reason.CONNECTION_MISSING)),
    st.just("it gives a reason"),
    st.sampled_from((0, NOW_US, NOW_US + MINUTE_US)),
)


@st.composite
def worlds(draw: st.DrawFn) -> TinyWorld:
    """Worlds in which a change was already under way."""
    world = TinyWorld(resource_document("Queue", draw(specs())))
    world.siblings = (
        {"dead": Sibling("dead", draw(st.sampled_from(((), ("emails",)))))} if draw(st.booleans()) else {}
    )
    if draw(st.booleans()):
        world.settle()
        world.now_us += draw(st.sampled_from((1, 7, 200))) * SECOND_US
    for change in draw(st.lists(st.sampled_from(CHANGES), max_size=4)):
        change(world, draw)
    return world


def _edit(world: TinyWorld, draw: st.DrawFn) -> None:
    assert world.document is not None
    world.edit({**draw(specs()), "storage": world.document["spec"]["storage"]})


def _change_policy(world: TinyWorld, draw: st.DrawFn) -> None:
    assert world.document is not None
    world.edit({**world.document["spec"], "deletionPolicy": draw(st.sampled_from(("Retain", "Delete")))})


def _pause(world: TinyWorld, _draw: st.DrawFn) -> None:
    assert world.document is not None
    world.edit({**world.document["spec"], "paused": True})


def _delete(world: TinyWorld, _draw: st.DrawFn) -> None:
    assert world.document is not None
    if "deletionTimestamp" not in world.document["metadata"]:
        world.delete()


def _lose_child(world: TinyWorld, draw: st.DrawFn) -> None:
    if world.live:
        child = draw(st.sampled_from(sorted(world.live)))
        del world.live[child]
        world.checked.discard(child)


def _scale_by_hand(world: TinyWorld, draw: st.DrawFn) -> None:
    for child, live in world.live.items():
        if child.kind == "Deployment":
            live["spec"]["replicas"] = draw(st.integers(0, MAX + 2))
            live["metadata"]["generation"] += 1


def _entry(world: TinyWorld, draw: st.DrawFn) -> None:
    if world.entry is None:
        world.make_entry()
    assert world.entry is not None
    owner = draw(st.sampled_from((world.entry.owner, "operator/c1/u0", "operator/c2/u1", "cli/headgate")))
    state = draw(st.sampled_from((EntryState.ACTIVE, EntryState.RETAINED, EntryState.DELETING, EntryState.MAKING)))
    world.entry = replace(world.entry, owner=owner, state=state)
    world.owner_lives = draw(st.sampled_from((True, False, UNKNOWN)))


def _adopt(world: TinyWorld, _draw: st.DrawFn) -> None:
    assert world.document is not None
    world.document["metadata"]["annotations"] = {ADOPT: "by-name"}


def _figures(world: TinyWorld, draw: st.DrawFn) -> None:
    world.figures = draw(figures_at(world.now_us))


def _lanes(world: TinyWorld, draw: st.DrawFn) -> None:
    age_s, failures = draw(LANES)
    world.lanes = LaneHealth(world.now_us - age_s * SECOND_US, 4, 4, **failures)


def _pods(world: TinyWorld, draw: st.DrawFn) -> None:
    code = draw(st.sampled_from((None, 1, 2, 137)))
    world.pods = (PodStatus("mailer", "pod", False, draw(st.integers(0, 2)), code, "last words"),)


def _passes(world: TinyWorld, draw: st.DrawFn) -> None:
    time = st.one_of(st.none(), st.sampled_from((NOW_US, NOW_US - 100 * MINUTE_US, NOW_US - 3000 * MINUTE_US)))
    world.passes = Passes(
        ended_us=draw(time),
        owed_us=draw(time),
        waits_for_all_us=draw(time),
        failed_runs=draw(st.integers(0, 3)),
    )


def _runs(world: TinyWorld, draw: st.DrawFn) -> None:
    states = draw(st.lists(st.sampled_from(("Pending", "Running", "Succeeded", "Failed")), max_size=4))
    world.runs = tuple(
        BulkRun("nightly", f"emails-nightly-{number}", f"r{number}", number, state, NOW_US, NOW_US)
        for number, state in enumerate(states, start=1)
    )


def _namespace(world: TinyWorld, draw: st.DrawFn) -> None:
    world.namespace = replace(world.namespace, terminating=draw(st.booleans()), ready=draw(st.booleans()))


def _unavailable(world: TinyWorld, draw: st.DrawFn) -> None:
    if draw(st.booleans()):
        world.unread_store = draw(st.one_of(st.just(UNKNOWN), FAILURES))
    else:
        world.connection = draw(st.one_of(st.just(UNKNOWN), FAILURES))


def _forget(world: TinyWorld, _draw: st.DrawFn) -> None:
    world.memory = DecisionMemory()


Change = Callable[[TinyWorld, st.DrawFn], None]
CHANGES: tuple[Change, ...] = (
    _edit, _change_policy, _pause, _delete, _lose_child, _scale_by_hand, _entry, _adopt, _figures, _lanes, _pods,
    _passes, _runs, _namespace, _unavailable, _forget,
)  # fmt: skip


def replicas_of(plan: ReconcilePlan) -> dict[str, int]:
    """The replicas that a plan sets, by Deployment."""
    return {
        effect.document["metadata"]["name"]: effect.document["spec"]["replicas"]
        for effect in plan.effects
        if isinstance(effect, ApplyObject) and "replicas" in effect.document.get("spec", {})
    }


def live_replicas(world: TinyWorld) -> dict[str, int]:
    return {child.name: live["spec"]["replicas"] for child, live in world.live.items() if child.kind == "Deployment"}


def all_plans(world: TinyWorld) -> list[tuple[TinyWorld, ReconcilePlan]]:
    """Each plan up to the fixed point, with the world that it was made for."""
    matches = []
    for _ in range(24):
        before = copy.deepcopy(world)
        plan = world.decide()
        matches.append((before, plan))
        world.perform(plan)
        if plan.is_settled:
            return matches
    raise AssertionError(f"it does not settle: {matches[-1][1].trail}")


@EXAMPLES
@given(worlds())
def test_decisions_are_total_and_depend_on_nothing_but_what_they_are_reported(world: TinyWorld) -> None:
    assert world.decide() == world.decide()


@EXAMPLES
@given(worlds())
def test_a_world_after_its_plans_has_nothing_left_to_do(world: TinyWorld) -> None:
    all_plans(world)
    assert world.decide().is_settled
    world.memory = DecisionMemory()
    assert [
        type(effect) for effect in world.decide().effects if not isinstance(effect, StopLane | PatchStatus | Emit)
    ] == []


@EXAMPLES
@given(worlds())
def test_a_paused_resource_is_only_reported_about(world: TinyWorld) -> None:
    assert world.document is not None
    if "deletionTimestamp" not in world.document["metadata"]:
        _pause(world, None)  # type: ignore[arg-type]
        for _, plan in all_plans(world):
            assert [effect for effect in plan.effects if not isinstance(effect, PatchStatus | Emit)] == []
            assert plan.ask == frozenset()


@st.composite
def worlds_that_end(draw: st.DrawFn) -> TinyWorld:
    """Resources that are being deleted, under either policy, and what may have been changed before."""
    world = TinyWorld(resource_document("Queue", draw(specs())))
    world.settle()
    for change in draw(
        st.lists(st.sampled_from((_change_policy, _entry, _pause, _namespace, _lose_child)), max_size=3)
    ):
        change(world, draw)
    assert world.document is not None
    if draw(st.booleans()):
        world.document["metadata"]["finalizers"] = draw(st.sampled_from(([], [FINALIZER], ["other", FINALIZER])))
    world.delete()
    return world


@EXAMPLES
@given(worlds_that_end())
def test_data_are_dropped_only_under_delete_with_our_finalizer_in_flight(world: TinyWorld) -> None:
    for _ in range(4):
        for before, plan in all_plans(world):
            steps = [effect.step for effect in plan.effects if isinstance(effect, StoreStep)]
            if any(isinstance(step, MarkDeleting | DropTable | ForgetRows | Forget) for step in steps):
                assert before.document is not None
                metadata = before.document["metadata"]
                assert FINALIZER in metadata.get("finalizers", ())
                assert before.document["spec"]["deletionPolicy"] == "Delete"
                assert before.entry is not None
                assert before.entry.owner == "operator/c1/u1"
        world.now_us += 30 * SECOND_US


@EXAMPLES
@given(worlds())
def test_replicas_are_within_their_bounds_and_the_lanes(world: TinyWorld) -> None:
    for before, plan in all_plans(world):
        assert before.document is not None or not replicas_of(plan)
        for replicas in replicas_of(plan).values():
            assert before.document is not None
            scaling = before.document["spec"]["consumers"][0].get("scaling")
            lanes = sum(window.shards for window in before.entry.generations.windows()) if before.entry else 8
            if scaling is not None and scaling["mode"] == "auto" and before.unread_store is None:
                assert min(scaling["min"], lanes) <= replicas <= min(scaling["max"], lanes)
            elif scaling is not None and scaling["mode"] == "auto":
                assert scaling["min"] <= replicas <= scaling["max"]


@EXAMPLES
@given(
    st.sampled_from((AUTO, {**AUTO, "min": 0})),
    st.lists(st.tuples(st.integers(0, MAX + 2), st.sampled_from((0, 20, 60)), st.booleans()), min_size=1, max_size=4),
    st.data(),
)
def test_replicas_never_go_down_while_nobody_knows_what_is_behind(
    scaling: dict[str, Any], changes: list[tuple[int, int, bool]], data: st.DataObject
) -> None:
    consumer = {"name": "mailer", "image": "mailer:1", "handler": "a.b:c", "scaling": scaling}
    world = TinyWorld(resource_document("Queue", {"storage": {"tables": "shared"}, "consumers": [consumer]}))
    world.settle()
    for replicas, pause_s, forgets in changes:
        for child, live in world.live.items():
            if child.kind == "Deployment":
                live["spec"]["replicas"] = replicas
        world.now_us += pause_s * SECOND_US
        world.memory = DecisionMemory() if forgets else world.memory
        old_us = world.now_us - data.draw(st.integers(16, 60)) * SECOND_US
        world.figures = data.draw(st.sampled_from((UNKNOWN, QueueLoad(old_us, backlog=0, owners=1))))
        all_plans(world)
        kept = min(replicas, scaling["max"], 4)
        assert all(after >= kept for after in live_replicas(world).values())


PARTS: tuple[Callable[[TinyWorld], None], ...] = (
    lambda world: setattr(world, "connection", UNKNOWN),
    lambda world: setattr(world, "unread_store", UNKNOWN),
    lambda world: setattr(world, "siblings", UNKNOWN),
    lambda world: setattr(world, "figures", UNKNOWN),
    lambda world: setattr(world, "lanes", UNKNOWN),
    lambda world: setattr(world, "passes", UNKNOWN),
)


@EXAMPLES
@given(worlds(), st.lists(st.sampled_from(PARTS), min_size=1))
def test_from_what_was_not_read_nothing_follows(world: TinyWorld, parts: list[Callable[[TinyWorld], None]]) -> None:
    assert world.document is not None
    metadata = world.document["metadata"]
    if "deletionTimestamp" in metadata:
        return
    world.unread_store, world.namespace = None, replace(world.namespace, terminating=False)
    all_plans(world)
    assert world.document is not None
    before = {one["type"]: one for one in world.document.get("status", {}).get("conditions", ())}
    replicas = live_replicas(world)
    world.now_us += 6 * SECOND_US
    for part in parts:
        part(world)
    for observation, plan in all_plans(world):
        assert [effect for effect in plan.effects if isinstance(effect, DeleteObject)] == []
        lowered = {
            name for name, number in replicas_of(plan).items() if number < live_replicas(observation).get(name, 0)
        }
        assert lowered == set() or observation.figures is not UNKNOWN
        if observation.unread_store is UNKNOWN or observation.connection is UNKNOWN:
            assert [effect for effect in plan.effects if isinstance(effect, StoreStep)] == []
    assert world.document is not None
    after = {one["type"]: one for one in world.document.get("status", {}).get("conditions", ())}
    assert world.connection is not UNKNOWN or live_replicas(world) == replicas
    unread = {
        "DeadLetterResolved": world.siblings is UNKNOWN and "deadLetter" in world.document["spec"],
        "RepairHealthy": world.passes is UNKNOWN,
        "TablesReady": world.unread_store is UNKNOWN or world.connection is UNKNOWN,
        "LanesHealthy": world.lanes is UNKNOWN and world.figures is UNKNOWN,
    }
    for type_, is_unread in unread.items():
        if is_unread and type_ in before:
            assert (type_, after[type_]["status"]) == (type_, before[type_]["status"])


@EXAMPLES
@given(worlds(), st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_being_killed_between_any_two_effects_leads_to_the_same_world(world: TinyWorld, cuts: list[int]) -> None:
    undisturbed = copy.deepcopy(world)
    undisturbed.memory = DecisionMemory()
    all_plans(undisturbed)
    for cut in cuts:
        world.memory = DecisionMemory()
        plan = world.decide()
        if cut == 0:
            world.checked |= plan.ask
        for effect in plan.effects[:cut]:
            world.do(effect)
    world.memory = DecisionMemory()
    all_plans(world)
    assert (undisturbed.entry and undisturbed.entry.state) == (world.entry and world.entry.state)
    assert undisturbed.there == world.there
    assert undisturbed.noted == world.noted
    assert undisturbed.live.keys() == world.live.keys()
    assert live_replicas(undisturbed) == live_replicas(world)


@EXAMPLES
@given(worlds(), st.lists(st.integers(0, 4), min_size=5, max_size=30), st.data())
def test_a_status_is_written_at_most_once_in_five_seconds(world: TinyWorld, pauses: list[int], data: Any) -> None:
    world.memory = DecisionMemory()
    written: list[int] = []
    for pause_s in pauses:
        world.now_us += pause_s * SECOND_US
        data.draw(st.sampled_from((_figures, _lanes, _pods, _passes)))(world, data.draw)
        plan = world.decide()
        written += [world.now_us for effect in plan.effects if isinstance(effect, PatchStatus)]
        world.perform(plan)
    gaps = [after - before for before, after in pairwise(written)]
    assert [gap for gap in gaps if gap < 5 * SECOND_US] == []


@EXAMPLES
@given(worlds())
def test_nothing_of_somebody_elses_is_touched(world: TinyWorld) -> None:
    all_plans(world)
    world.foreign = dict.fromkeys(world.live, "somebody else's")
    theirs = set(world.live)
    world.live = {}
    for _, plan in all_plans(world):
        touched = {
            ChildName(effect.document["kind"], effect.document["metadata"]["name"])
            for effect in plan.effects
            if isinstance(effect, ApplyObject)
        }
        assert touched & theirs == set()
