"""Deletion: nothing is dropped but under Delete and with our finalizer set, and nothing is ever stuck."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.api.resources.reasons import Reason
from headgate.applying.decide_steps import DropTable, Forget, ForgetRows, MarkDeleting
from headgate.expiry import SECOND_US
from headgate.store.catalogue.entry import EntryState
from headgate_operator.model.names import FINALIZER
from headgate_operator.model.plan import ApplyObject, DeleteObject, ReconcilePlan, StoreStep
from headgate_operator.model.world import UNKNOWN, ChildName, NamespaceState, ResourceFailure
from tests.kit.operator_world import TinyWorld, has_finalizer, reported_at, resource_document

CONSUMER = {"name": "mailer", "image": "m:1", "handler": "a:b", "scaling": {"min": 1, "max": 4}}
DELETE = {"consumers": [CONSUMER], "deletionPolicy": "Delete"}
UNAVAILABLE = ResourceFailure(Reason.CASSANDRA_UNAVAILABLE, "no answer", 1)
LONG_US = 600 * SECOND_US


def settled(**spec: Any) -> TinyWorld:
    """A queue that is Ready."""
    world = TinyWorld(resource_document("Queue", spec))
    world.settle()
    world.now_us += 60 * SECOND_US
    return world


def deleted(**spec: Any) -> TinyWorld:
    """One that somebody deletes now."""
    world = settled(**spec)
    world.delete()
    return world


def order(plans: list[ReconcilePlan]) -> list[str]:
    """The effects, in short; repeated ones of a kind once."""
    matches: list[str] = []
    for effect in (effect for plan in plans for effect in plan.effects):
        text = ""
        if isinstance(effect, StoreStep):
            text = type(effect.step).__name__
        elif isinstance(effect, DeleteObject):
            text = f"delete {effect.kind} {effect.propagation}"
        elif isinstance(effect, ApplyObject):
            text = "remove finalizer" if effect.merges else f"apply {effect.document['kind']}"
        if text and matches[-1:] != [text]:
            matches.append(text)
    return matches


def message(world: TinyWorld) -> str:
    assert world.document is not None
    return str(next(one["message"] for one in world.document["status"]["conditions"] if one["type"] == "Ready"))


def test_workers_end_before_tables_go_and_the_finalizer_is_the_last() -> None:
    world = deleted(**DELETE)
    assert order(world.settle(world.now_us + LONG_US)) == [
        "MarkDeleting", "delete Deployment Foreground", "DropTable", "Forget", "remove finalizer",
    ]  # fmt: skip
    assert (world.document, world.there) == (None, set())


def test_shared_tables_stay_and_rows_are_forgotten() -> None:
    world = deleted(**DELETE, storage={"tables": "shared"})
    steps = order(world.settle(world.now_us + LONG_US))
    assert [step for step in steps if step in ("DropTable", "ForgetRows", "Forget")] == ["ForgetRows", "Forget"]
    assert world.there != set()


def test_under_retain_nothing_is_done_before_it_goes() -> None:
    world = deleted(consumers=[CONSUMER])
    assert not has_finalizer(world)
    plan = world.decide()
    assert plan.is_settled


def test_what_is_gone_is_kept_as_retained_and_only_if_it_was_ours() -> None:
    world = settled(consumers=[CONSUMER])
    world.document = None
    world.settle()
    assert world.entry is not None
    assert world.entry.state is EntryState.RETAINED
    theirs = settled(consumers=[CONSUMER])
    theirs.make_entry(owner="operator/c2/u9")
    theirs.document = None
    assert theirs.decide().is_settled


@pytest.mark.parametrize("unread", [UNKNOWN, UNAVAILABLE])
def test_what_is_gone_while_cassandra_is_unavailable_too_is_left_to_the_sweep(unread: Any) -> None:
    world = settled()
    world.document = None
    world.unread_store = unread
    assert world.decide().is_settled


@pytest.mark.parametrize("name", ["connection", "unread_store"])
def test_without_cassandra_it_waits_and_gives_the_reason_and_retain_lets_it_go(name: str) -> None:
    world = deleted(**DELETE)
    setattr(world, name, UNAVAILABLE)
    world.settle()
    assert "waiting for Cassandra since 1970-01-01T00:00:00Z: no answer" in message(world)
    assert has_finalizer(world)
    world.edit({**DELETE, "deletionPolicy": "Retain"})
    assert order(world.settle()) == ["remove finalizer"]
    assert (world.document, world.entry and world.entry.state) == (None, EntryState.ACTIVE)


def test_a_namespace_that_terminates_is_let_go_after_one_try_of_ten_seconds() -> None:
    world = deleted(**DELETE)
    world.unread_store = UNKNOWN
    world.namespace = NamespaceState(terminating=True)
    began_us = world.now_us
    plans = world.settle(world.now_us + LONG_US)
    assert (world.document, (world.now_us - began_us) // SECOND_US) == (None, 10)
    assert [plan.left_behind for plan in plans].count(True) == 1
    assert world.dropped == []


def test_a_namespace_that_terminates_with_cassandra_there_is_dropped_as_asked() -> None:
    world = deleted(**DELETE)
    world.namespace = NamespaceState(terminating=True)
    world.settle(world.now_us + LONG_US)
    assert (world.document, world.entry and world.entry.state) == (None, EntryState.GONE)


def test_workers_that_do_not_end_hold_it_for_ninety_seconds() -> None:
    world = deleted(**DELETE)
    world.settle()
    world.live[ChildName("Deployment", "emails-mailer-f6240f9c")] = {
        "metadata": {"uid": "d1", "namespace": "shop", "deletionTimestamp": reported_at(world.now_us)}
    }
    began_us = world.now_us
    world.settle(world.now_us + LONG_US)
    assert (world.document, (world.now_us - began_us) // SECOND_US) == (None, 90)


def test_a_spec_that_is_wrong_can_be_deleted_and_names_what_becomes_of_its_data() -> None:
    for policy, dropped in (("Delete", True), ("Retain", False)):
        world = settled(**DELETE)
        world.edit({**DELETE, "shards": 0, "deletionPolicy": policy})
        world.delete()
        world.settle(world.now_us + LONG_US)
        assert (world.document, bool(world.dropped)) == (None, dropped)


def test_finalizers_of_others_stay_and_ours_goes_whichever_process_put_it_there() -> None:
    world = deleted(**DELETE)
    assert world.document is not None
    world.document["metadata"] |= {"finalizers": ["example.org/audit", FINALIZER], "resourceVersion": "7"}
    plans = world.settle(world.now_us + LONG_US)
    merged = [
        effect.document["metadata"] for plan in plans for effect in plan.effects if isinstance(effect, ApplyObject)
    ]
    assert [(each["finalizers"], each["resourceVersion"]) for each in merged] == [(["example.org/audit"], "7")]
    assert message(world) == "waiting for the finalizers of others: example.org/audit"


def test_a_finalizer_without_an_entry_holds_nothing() -> None:
    world = deleted(**DELETE)
    world.entry = None
    assert order(world.settle()) == ["remove finalizer"]


def test_an_entry_of_another_owner_is_not_dropped_though_the_finalizer_is_there() -> None:
    world = deleted(**DELETE)
    world.make_entry(owner="cli/headgate")
    assert order(world.settle(world.now_us + LONG_US)) == ["remove finalizer"]
    assert world.entry is not None
    assert world.entry.state is EntryState.ACTIVE


def test_it_is_heard_by_everybody_before_anything_is_dropped() -> None:
    world = deleted(**DELETE)
    marked_us = dropped_us = 0
    for _ in range(12):
        plan = world.decide()
        steps = [effect.step for effect in plan.effects if isinstance(effect, StoreStep)]
        marked_us = world.now_us if any(isinstance(step, MarkDeleting) for step in steps) else marked_us
        if any(isinstance(step, DropTable | ForgetRows | Forget) for step in steps):
            dropped_us = world.now_us
            break
        world.perform(plan)
        if plan.is_settled and plan.again_at_us:
            world.now_us = plan.again_at_us
    assert dropped_us - marked_us >= 15 * SECOND_US


def test_no_child_comes_back_while_it_is_being_deleted() -> None:
    for spec in (DELETE, {**DELETE, "deletionPolicy": "Retain"}):
        world = deleted(**spec)
        world.live.clear()
        plans = world.settle(world.now_us + LONG_US)
        assert [report for report in order(plans) if report.startswith("apply")] == []
