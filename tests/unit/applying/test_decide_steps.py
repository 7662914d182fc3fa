"""Which steps are left in the store: each case is a world as it was found, and the steps that follow from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
import yaml

from headgate.api.read.parse import parse_resource
from headgate.applying.decide_steps import (
    HEARD_AFTER_US,
    Activate,
    Adopt,
    Announce,
    CreateKeyspace,
    CreateTable,
    CurrentState,
    Decided,
    DeclareEntry,
    DropTable,
    FixDrift,
    Forget,
    ForgetRows,
    MakeLanes,
    MakeSure,
    MarkDeleting,
    NoteTables,
    Step,
    TooManyTables,
    Turn,
    decide_removal,
    decide_steps,
)
from headgate.applying.desired_state import PlacementDefaults, Wanted, wanted_of
from headgate.engines.registry import tables_of
from headgate.expiry import others_may_act_after
from headgate.store.catalogue.decide_generation import (
    NOTICE_US,
    ChangeUnderWay,
    Generation,
    Generations,
    first,
    turned,
)
from headgate.store.catalogue.entry import BeingDeleted, Entry, EntryState, OwnedByAnother
from headgate.store.model.drift import Drift, DriftStatus

NOW = 1_750_000_000_000_000
SKEW = 500_000
OURS = "operator/c1/u1"
SURROUNDINGS = PlacementDefaults("headgate", "dc1", 3)


def wanted(spec: str = "{shards: 3}", kind: str = "Queue") -> Wanted:
    """The wanted state of a resource."""
    document = {"apiVersion": "headgate.io/v1beta1", "kind": kind, "metadata": {"name": "x", "namespace": "shop"}}
    return wanted_of(parse_resource({**document, "spec": yaml.safe_load(spec)}), SURROUNDINGS)


def entry(
    of: Wanted, state: EntryState = EntryState.ACTIVE, owner: str = OURS, generations: Generations | None = None
) -> Entry:
    """An entry as this resource would have made it."""
    known = generations or first(of.shards)
    return Entry(of.name, UUID(int=7), owner, state, 1, of.document, of.place, known, NOW)


def names(of: Wanted) -> frozenset[str]:
    """Its tables."""
    return frozenset(table.name for table in tables_of(of.resource, UUID(int=7)) or ())


def current_state(of: Wanted, standing: Entry, **but: Any) -> CurrentState:
    """All tables there and noted."""
    return replace(CurrentState(standing, there=names(of), noted=names(of)), **but)


def decide(of: Wanted, at: CurrentState, **but: Any) -> Decided:
    """As for the operator."""
    document: dict[str, Any] = {"owner": OURS, "data_center": "dc1", "now_us": NOW, **but}
    return decide_steps(of, at, **document)


def kinds(steps: tuple[Step, ...]) -> list[type[Step]]:
    """Of what kind they are, in order; of several in a row one."""
    of_each = [type(step) for step in steps]
    return [kind for at, kind in enumerate(of_each) if at == 0 or of_each[at - 1] is not kind]


QUEUE = wanted()
COUNTER = wanted("{type: sum}", kind="Counter")


def test_without_an_entry_only_the_entry_is_asked_for_since_all_else_follows_from_its_id() -> None:
    assert (DeclareEntry(QUEUE.name, OURS, QUEUE.document, QUEUE.place, 3),) == decide(QUEUE, CurrentState()).steps


def test_of_a_new_entry_tables_come_before_lanes_and_lanes_before_anybody_hears_of_it() -> None:
    at = CurrentState(entry(QUEUE, EntryState.MAKING), keyspace_there=False)
    steps = decide(QUEUE, at).steps
    assert [CreateKeyspace, CreateTable, NoteTables, MakeLanes, Activate] == kinds(steps)
    assert names(QUEUE) == {step.table.name for step in steps if isinstance(step, CreateTable)}
    assert [names(QUEUE)] == [frozenset(step.names) for step in steps if isinstance(step, NoteTables)]


def test_a_counter_has_no_lanes_to_be_made() -> None:
    at = CurrentState(entry(COUNTER, EntryState.MAKING))
    assert [CreateTable, NoteTables, Activate] == kinds(decide(COUNTER, at).steps)


@pytest.mark.parametrize("of", [QUEUE, COUNTER, wanted("{shards: 3, storage: {tables: shared}}")])
def test_where_all_is_as_wanted_nothing_is_left_to_do(of: Wanted) -> None:
    assert Decided() == decide(of, current_state(of, entry(of)))


def test_what_was_made_and_not_noted_is_noted_and_not_recreated() -> None:
    some = frozenset(sorted(names(QUEUE))[:2])
    steps = decide(QUEUE, current_state(QUEUE, entry(QUEUE, EntryState.MAKING), there=some, noted=frozenset())).steps
    assert names(QUEUE) - some == {step.table.name for step in steps if isinstance(step, CreateTable)}
    assert [names(QUEUE)] == [frozenset(step.names) for step in steps if isinstance(step, NoteTables)]


def test_a_table_that_was_dropped_is_never_recreated_and_nothing_continues_without_it() -> None:
    lost = min(names(QUEUE))
    decided = decide(QUEUE, current_state(QUEUE, entry(QUEUE, EntryState.MAKING), there=names(QUEUE) - {lost}))
    assert () == decided.steps
    assert [(lost, "dropped")] == [(drift.table, drift.actual) for drift in decided.by_hand]


def test_what_can_be_fixed_is_and_what_only_a_person_can_stops_the_rest() -> None:
    mendable = Drift("t", "gc_grace", "1", "2", DriftStatus.MENDABLE, "ALTER TABLE t ...")
    by_hand = Drift("t", "column c", "int", "text", DriftStatus.BY_HAND)
    at = current_state(QUEUE, entry(QUEUE, EntryState.MAKING), drifts=(mendable, by_hand))
    decided = decide(QUEUE, at)
    assert (FixDrift("headgate", mendable),) == decided.steps
    assert (by_hand,) == decided.by_hand


def test_another_number_of_shards_has_its_lanes_before_it_is_announced_and_is_made_sure_of() -> None:
    more = wanted("{shards: 5}")
    steps = decide(more, current_state(more, entry(QUEUE))).steps
    assert [DeclareEntry, MakeLanes, Announce, MakeSure] == kinds(steps)
    assert Generation(2, 5) == next(step.generation for step in steps if isinstance(step, MakeLanes))
    assert (2, 5) == next((step.number, step.shards) for step in steps if isinstance(step, Announce))


def announced(sure_us: int | None) -> Generations:
    """From three shards to five."""
    return Generations(Generation(1, 3), Generation(2, 5, NOW + NOTICE_US), sure_us)


def test_what_was_announced_is_made_sure_of_by_whichever_process_finds_it() -> None:
    more = wanted("{shards: 5}")
    standing = entry(more, generations=announced(None))
    assert (MakeSure(standing, SKEW),) == decide(more, current_state(more, standing)).steps


def test_while_a_change_is_under_way_another_waits_and_states_until_when() -> None:
    sure_us = NOW + 2 * NOTICE_US
    other = wanted("{shards: 9}")
    decided = decide(other, current_state(other, entry(other, generations=announced(sure_us))))
    assert () == decided.steps
    assert isinstance(decided.stopped, ChangeUnderWay)
    assert others_may_act_after(sure_us, SKEW) == decided.again_at_us


def test_once_a_change_is_over_it_is_turned_to_and_then_all_is_as_wanted() -> None:
    more = wanted("{shards: 5}")
    standing = entry(more, generations=announced(NOW + NOTICE_US))
    over_us = others_may_act_after(NOW + NOTICE_US, SKEW)
    assert () == decide(more, current_state(more, standing), now_us=over_us - 1).steps
    assert (Turn(standing, SKEW),) == decide(more, current_state(more, standing), now_us=over_us).steps
    after = entry(more, generations=turned(standing.generations))
    assert Decided() == decide(more, current_state(more, after), now_us=over_us)


def test_of_an_engine_that_is_not_supported_there_is_an_entry_and_nothing_else() -> None:
    decided = decide(QUEUE, CurrentState(entry(QUEUE, EntryState.MAKING)), engines={})
    assert ((), False) == (decided.steps, decided.is_supported)


def test_dedicated_tables_past_the_bound_are_refused_before_there_is_an_entry() -> None:
    decided = decide(QUEUE, CurrentState(tables_total=295))
    assert isinstance(decided.stopped, TooManyTables)
    assert () == decided.steps
    assert decide(wanted("{storage: {tables: shared}}"), CurrentState(tables_total=295)).steps


def test_of_another_owner_nothing_is_changed_unless_it_is_to_be_adopted() -> None:
    standing = entry(QUEUE, owner="cli/headgate")
    assert isinstance(decide(QUEUE, current_state(QUEUE, standing)).stopped, OwnedByAnother)
    assert (Adopt(standing, OURS, QUEUE.document),) == decide(
        QUEUE, current_state(QUEUE, standing), adopting=True
    ).steps


def test_what_was_retained_by_mistake_is_taken_back_by_its_owner() -> None:
    standing = entry(QUEUE, EntryState.RETAINED)
    assert (Adopt(standing, OURS, QUEUE.document),) == decide(QUEUE, current_state(QUEUE, standing)).steps


def test_a_name_that_is_being_given_up_is_waited_for() -> None:
    decided = decide(QUEUE, current_state(QUEUE, entry(QUEUE, EntryState.DELETING, owner="operator/c1/u0")))
    assert ((), BeingDeleted) == (decided.steps, type(decided.stopped))


def test_a_fixed_field_is_refused_with_its_name() -> None:
    decided = decide(wanted("{shards: 3, engine: extent}"), current_state(QUEUE, entry(QUEUE)))
    assert () == decided.steps
    assert "engine is fixed" in str(decided.stopped)


def test_a_home_elsewhere_is_refused() -> None:
    assert "DATA_CENTER=dc1" in str(decide(QUEUE, current_state(QUEUE, entry(QUEUE)), data_center="dc2").stopped)


# ---- removal


def test_nothing_is_removed_before_everybody_has_heard_that_it_will_be() -> None:
    standing = entry(QUEUE)
    assert (MarkDeleting(standing),) == decide_removal(standing, current_state(QUEUE, standing), now_us=NOW).steps
    marked = replace(standing, state=EntryState.DELETING)
    waiting = decide_removal(marked, current_state(QUEUE, marked), now_us=NOW + HEARD_AFTER_US - 1)
    assert ((), NOW + HEARD_AFTER_US) == (waiting.steps, waiting.again_at_us)


def test_dedicated_tables_are_noted_dropped_and_then_the_name_is_free() -> None:
    marked = entry(QUEUE, EntryState.DELETING)
    at = current_state(QUEUE, marked, noted=frozenset())
    steps = decide_removal(marked, at, now_us=NOW + HEARD_AFTER_US).steps
    assert [NoteTables, DropTable, Forget] == kinds(steps)
    assert names(QUEUE) == {step.name for step in steps if isinstance(step, DropTable)}


def test_of_shared_tables_only_its_own_rows_go() -> None:
    shared = wanted("{storage: {tables: shared}}")
    marked = entry(shared, EntryState.DELETING)
    steps = decide_removal(marked, current_state(shared, marked), now_us=NOW + HEARD_AFTER_US).steps
    assert (ForgetRows("timeline", marked), Forget(marked)) == steps


def test_a_removal_that_was_broken_off_continues_with_what_is_left() -> None:
    marked = entry(QUEUE, EntryState.DELETING)
    left = max(names(QUEUE))
    steps = decide_removal(
        marked, current_state(QUEUE, marked, there=frozenset({left})), now_us=NOW + HEARD_AFTER_US
    ).steps
    assert (DropTable(marked, "headgate", left), Forget(marked)) == steps
