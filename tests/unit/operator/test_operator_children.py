"""Deployments and budgets: created, fixed, handed over and removed, with their events."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from headgate.api.resources.reasons import Reason
from headgate_operator.decide.child import DRIFT_FOUGHT, FOUGHT_AGAIN_US, MINUTE_US, REFUSED_AGAIN_US
from headgate_operator.decide.children import ChildrenPlan, ConsumerState, all_removed, decide_children
from headgate_operator.manifests.deployment import build_disruption_budget
from headgate_operator.manifests.document_diff import stamp_of, stamped
from headgate_operator.model.kinds import Document
from headgate_operator.model.names import MANAGER, REPLICAS_MANAGER, consumer_name
from headgate_operator.model.plan import ApplyObject, DeleteObject, Emit, PartialPlan
from headgate_operator.model.world import ChildName, DecisionMemory, LastApply
from tests.unit.operator.operator_children_cases import (
    CONNECTION,
    CONSUMERS,
    OWNER,
    PYTHON,
    consumer,
    live,
    made,
    name_of,
    queue,
    world,
)

NAME = consumer_name("emails", "mailer")
DEPLOYMENT = ChildName("Deployment", NAME)
BUDGET = ChildName("PodDisruptionBudget", NAME)
NOW_US = 1_800_000_000_000_000
RUNS: dict[str, Any] = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2}


def decide(
    consumers: list[dict[str, Any]] | None = None,
    wanted: int | None = 2,
    memory: DecisionMemory | None = None,
    now_us: int = NOW_US,
    **around: Any,
) -> ChildrenPlan:
    resource = queue(*([PYTHON] if consumers is None else consumers))
    numbers = {} if wanted is None else {"mailer": wanted}
    return decide_children(world(resource, **around), CONNECTION, numbers, memory or DecisionMemory(), now_us)


def there(
    case: str = "python", replicas: int | None = 2, budget: bool = True, status: dict[str, Any] = RUNS
) -> dict[ChildName, Any]:
    """An applied consumer, running."""
    matches = [live(stamped(made(case, replicas=replicas)), **status)]
    if budget:
        matches.append(live(stamped(build_disruption_budget(OWNER, consumer(CONSUMERS[case])))))
    return {name_of(one): one for one in matches}


def changed(result: dict[ChildName, Any], **spec: Any) -> dict[ChildName, Any]:
    """The same with the Deployment's spec edited by hand."""
    edited = copy.deepcopy(result)
    edited[DEPLOYMENT]["spec"] |= spec
    edited[DEPLOYMENT]["metadata"]["resourceVersion"] = str(abs(hash(str(spec))))
    return edited


def kinds_of(decided: PartialPlan) -> list[str]:
    return [
        f"{type(effect).__name__} {getattr(effect, 'kind', None) or effect.document['kind']}"  # type: ignore[union-attr]
        for effect in decided.effects
        if not isinstance(effect, Emit)
    ]


def applied(decided: ChildrenPlan) -> ApplyObject:
    (effect,) = (one for one in decided.effects if not isinstance(one, Emit))
    assert isinstance(effect, ApplyObject)
    return effect


def stand(decided: ChildrenPlan) -> ConsumerState:
    (result,) = decided.consumers
    return result


# ---- making


def test_a_place_that_nobody_checked_is_asked_for_and_nothing_is_made() -> None:
    decided = decide()
    assert ((), frozenset((DEPLOYMENT, BUDGET))) == (decided.effects, decided.ask)


def test_in_a_free_place_it_is_made_without_force_so_that_a_stranger_that_comes_first_keeps_it() -> None:
    decided = decide(checked=frozenset((DEPLOYMENT, BUDGET)))
    assert ["ApplyObject Deployment", "ApplyObject PodDisruptionBudget"] == kinds_of(decided)
    for effect in decided.effects:
        assert isinstance(effect, ApplyObject)
        assert (False, MANAGER, False) == (effect.force, effect.manager, "uid" in effect.document["metadata"])


def test_what_is_there_as_it_should_be_is_left() -> None:
    decided = decide(live=there())
    assert ((), frozenset(), None) == (decided.effects, decided.ask, decided.again_at_us)


def test_a_stranger_in_its_place_is_left_alone_reported_and_checked_again() -> None:
    decided = decide(foreign={DEPLOYMENT: "helm's"}, live={BUDGET: there()[BUDGET]})
    failure = stand(decided).failure
    assert failure is not None
    assert (Reason.NAME_TAKEN, f"Deployment {NAME} exists already and is helm's") == (failure.reason, failure.message)
    assert (NOW_US + MINUTE_US // 2, failure) == (decided.again_at_us, decided.blocked_by)
    assert ((), frozenset()) == (decided.effects, decided.ask)


def test_one_consumer_s_trouble_does_not_keep_another_from_what_it_needs() -> None:
    other = {"name": "audit", "image": "i", "handler": "a:b"}
    name = ChildName("Deployment", consumer_name("emails", "audit"))
    decided = decide([PYTHON, other], foreign={DEPLOYMENT: "x"}, checked=frozenset((name,)))
    assert ["ApplyObject Deployment"] == kinds_of(decided)
    assert [Reason.NAME_TAKEN, None] == [one.failure and one.failure.reason for one in decided.consumers]


# ---- fixing drift


def test_a_deployment_that_was_edited_is_set_back_whole_with_its_uid_and_by_force() -> None:
    decided = decide(live=changed(there(), replicas=9))
    effect = applied(decided)
    assert ("uid-Deployment", True, 2) == (
        effect.document["metadata"]["uid"],
        effect.force,
        effect.document["spec"]["replicas"],
    )
    assert (f"revert Deployment {NAME}: spec.replicas",) == decided.trail


def test_a_field_that_the_consumer_dropped_is_taken_out() -> None:
    decided = decide(live=there("template"))
    document = applied(decided).document
    assert "nodeSelector" not in document["spec"]["template"]["spec"]
    assert decided.trail[0].startswith(f"change Deployment {NAME}")
    assert () == decided.memory.reverts


def test_a_deployment_that_is_being_deleted_is_waited_for() -> None:
    result = there(budget=False)
    result[DEPLOYMENT]["metadata"]["deletionTimestamp"] = "2026-11-18T09:00:00Z"
    assert () == decide(live={**there(), **result}).effects


def answered(shows: Document, document: Document) -> dict[ChildName, LastApply]:
    return {name_of(document): LastApply(str(stamp_of(document)), shows, at_us=NOW_US)}


def test_what_the_server_shows_otherwise_in_answer_to_our_own_apply_is_accepted_and_remembered() -> None:
    shown = changed(there(), minReadySeconds=7)
    answers = answered(shown[DEPLOYMENT], stamped(made("python")))
    decided = decide(live=shown, answers=answers)
    assert () == decided.effects
    assert [DEPLOYMENT] == list(decided.memory.accepted)
    again = decide(live=shown, memory=decided.memory)
    assert () == again.effects
    assert ["ApplyObject Deployment"] == kinds_of(decide(live=shown)), "a new process finds out by one apply"


def test_what_is_accepted_hides_no_other_change_and_no_other_document() -> None:
    shown = changed(there(), minReadySeconds=7)
    answers = answered(shown[DEPLOYMENT], stamped(made("python")))
    memory = decide(live=shown, answers=answers).memory
    edited = changed(shown, replicas=9)
    fixed = decide(live=edited, answers=answers, memory=memory)
    assert 2 == applied(fixed).document["spec"]["replicas"]
    assert ["spec.replicas"] == [one.field for one in fixed.memory.reverts]
    assert ["ApplyObject Deployment"] == kinds_of(decide(wanted=3, live=shown, answers=answers, memory=memory))


def test_a_refused_document_is_reported_and_tried_again_after_a_minute_or_when_it_is_another() -> None:
    refused = LastApply(str(stamp_of(stamped(made("python", replicas=3)))), None, "403: quota exceeded", NOW_US)
    decided = decide(wanted=3, live=there(), answers={DEPLOYMENT: refused})
    failure = stand(decided).failure
    assert failure is not None
    assert (Reason.APPLY_REFUSED, f"Deployment {NAME}: 403: quota exceeded") == (failure.reason, failure.message)
    assert ((), NOW_US + REFUSED_AGAIN_US) == (decided.effects, decided.again_at_us)
    later_us = NOW_US + REFUSED_AGAIN_US
    assert ["ApplyObject Deployment"] == kinds_of(
        decide(wanted=3, live=there(), answers={DEPLOYMENT: refused}, now_us=later_us)
    )
    assert ["ApplyObject Deployment"] == kinds_of(decide(wanted=4, live=there(), answers={DEPLOYMENT: refused}))


def test_a_template_that_cannot_be_merged_is_reported_and_what_runs_continues() -> None:
    broken = {**PYTHON, "template": {"spec": {"containers": [{"image": "x"}]}}}
    decided = decide([broken], live=there())
    failure = stand(decided).failure
    assert failure is not None
    assert Reason.APPLY_REFUSED == failure.reason
    assert "consumer mailer: template: spec.containers[0]: needs name" in failure.message
    assert () == decided.effects


# ---- fights


def fought(times: int, every_us: int = MINUTE_US // 2) -> tuple[ChildrenPlan, DecisionMemory, int]:
    """Another client sets replicas again each time; the decision at the last of it."""
    memory, now_us = DecisionMemory(), NOW_US
    for number in range(times):
        now_us = NOW_US + number * every_us
        decided = decide(live=changed(there(), replicas=10 + number), memory=memory, now_us=now_us)
        memory = decided.memory
    return decided, memory, now_us


def test_a_field_is_set_back_at_once_five_times_then_an_event_reports_that_it_is_fought_over() -> None:
    assert [] == [effect for effect in fought(5)[0].effects if isinstance(effect, Emit)]
    decided, memory, now_us = fought(6)
    (event,) = (effect for effect in decided.effects if isinstance(effect, Emit))
    assert (DRIFT_FOUGHT, "Warning") == (event.reason, event.type)
    assert "spec.replicas" in event.note
    after = decide(live=changed(there(), replicas=50), memory=memory, now_us=now_us + 1)
    assert ((), now_us + FOUGHT_AGAIN_US) == (after.effects, after.again_at_us)


def test_a_fought_field_is_set_back_every_five_minutes_and_reported_of_once() -> None:
    _, memory, now_us = fought(6)
    for number in range(4):
        now_us += FOUGHT_AGAIN_US
        decided = decide(live=changed(there(), replicas=60 + number), memory=memory, now_us=now_us)
        memory = decided.memory
        assert ["ApplyObject Deployment"] == [one for one in kinds_of(decided) if "Apply" in one]
        assert [] == [effect for effect in decided.effects if isinstance(effect, Emit)]
        waits = decide(live=changed(there(), replicas=80 + number), memory=memory, now_us=now_us + 1)
        assert () == waits.effects


def test_after_ten_quiet_minutes_the_fight_is_over() -> None:
    _, memory, now_us = fought(6)
    decided = decide(live=changed(there(), replicas=50), memory=memory, now_us=now_us + 10 * MINUTE_US)
    assert ["ApplyObject Deployment"] == kinds_of(decided)
    soon = decide(live=changed(there(), replicas=51), memory=decided.memory, now_us=now_us + 10 * MINUTE_US + 1)
    assert ["ApplyObject Deployment"] == kinds_of(soon)


def test_slow_drift_is_no_fight() -> None:
    decided, _, _ = fought(12, every_us=3 * MINUTE_US)
    assert ["ApplyObject Deployment"] == kinds_of(decided)
    assert [] == [effect for effect in decided.effects if isinstance(effect, Emit)]


def test_one_finding_that_is_decided_about_again_counts_once() -> None:
    edited, memory = changed(there(), replicas=9), DecisionMemory()
    for number in range(8):
        decided = decide(live=edited, memory=memory, now_us=NOW_US + number)
        memory = decided.memory
    assert ["ApplyObject Deployment"] == kinds_of(decided)
    assert [1] == [len(one.at_us) for one in memory.reverts]


def test_another_field_that_drifts_is_set_back_at_once_beside_a_fought_one() -> None:
    _, memory, now_us = fought(6)
    edited = changed(there(), replicas=50, revisionHistoryLimit=99)
    assert ["ApplyObject Deployment"] == kinds_of(decide(live=edited, memory=memory, now_us=now_us + 1))


# ---- replicas


def test_replicas_are_as_reported_else_as_they_are_else_as_few_as_may_be() -> None:
    assert 5 == applied(decide(wanted=5, live=there())).document["spec"]["replicas"]
    assert () == decide(wanted=None, live=there()).effects
    free = frozenset((DEPLOYMENT, BUDGET))
    few = [{**PYTHON, "scaling": {"min": 1}}]
    assert 1 == applied(decide(few, wanted=None, checked=free)).document["spec"]["replicas"]


def test_while_the_shards_are_not_known_a_missing_deployment_has_as_many_as_the_status_reported() -> None:
    free, resource = frozenset((DEPLOYMENT, BUDGET)), queue(PYTHON, shards=5)
    for status, expected in (({}, 5), ({"status": {"replicas": 3}}, 3)):
        around = world(resource, checked=free)
        assert around.resource is not None
        around = replace(around, resource=replace(around.resource, document=status))
        (effect,) = decide_children(around, CONNECTION, {}, DecisionMemory(), NOW_US).effects
        assert isinstance(effect, ApplyObject)
        assert expected == effect.document["spec"]["replicas"]


def test_a_budget_stays_while_nobody_knows_how_many_workers_there_should_be() -> None:
    assert () == decide(wanted=None, live=there(replicas=1)).effects
    assert ["DeleteObject PodDisruptionBudget"] == kinds_of(decide(wanted=1, live=there(replicas=1)))


EXTERNAL = [CONSUMERS["external"]]


def owned(result: dict[ChildName, Any], *managers: str, replicas: int = 2) -> dict[ChildName, Any]:
    """The same with managed fields: the managers that set the number of replicas."""
    document = copy.deepcopy(result)
    document[DEPLOYMENT]["spec"]["replicas"] = replicas
    document[DEPLOYMENT]["metadata"]["managedFields"] = [
        {"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}} for manager in managers
    ]
    return document


def handed(decided: ChildrenPlan) -> list[tuple[str, Any]]:
    """The managers that apply a number of replicas, in this order."""
    return [
        (effect.manager, effect.document.get("spec", {}).get("replicas"))
        for effect in decided.effects
        if isinstance(effect, ApplyObject) and effect.document["kind"] == "Deployment"
    ]


def test_on_the_change_to_external_the_number_is_kept_by_another_before_it_is_left_out() -> None:
    decided = decide(EXTERNAL, live=owned(there(replicas=7), MANAGER, replicas=7))
    assert [(REPLICAS_MANAGER, 7), (MANAGER, None)] == handed(decided)
    kept = decided.effects[0]
    assert isinstance(kept, ApplyObject)
    assert {"apiVersion", "kind", "metadata", "spec"} == set(kept.document)
    assert {"replicas": 7} == kept.document["spec"]


def test_killed_between_the_two_steps_the_second_is_taken() -> None:
    both = owned(there(replicas=7), MANAGER, REPLICAS_MANAGER, replicas=7)
    assert [(MANAGER, None)] == handed(decide(EXTERNAL, live=both))


def test_in_mode_external_the_number_is_nobody_s_business_here() -> None:
    for owners in ((REPLICAS_MANAGER,), ("kube-controller-manager",), ()):
        external = owned(there("external", replicas=None), *owners, replicas=9)
        decided = decide(EXTERNAL, wanted=3, live=external)
        assert ((), 9) == (decided.effects, stand(decided).replicas)


def test_in_mode_external_the_rest_is_fixed_without_a_number() -> None:
    external = changed(owned(there("external", replicas=None), REPLICAS_MANAGER, replicas=9), paused=True)
    assert [(MANAGER, None)] == handed(decide(EXTERNAL, live=external))


def test_where_nobody_reports_which_process_has_the_number_it_is_kept_before_it_is_left_out() -> None:
    assert [(REPLICAS_MANAGER, 2), (MANAGER, None)] == handed(decide(EXTERNAL, live=there()))


def test_on_the_change_back_the_number_is_taken_by_force_before_it_is_given_up() -> None:
    external = owned(there("external", replicas=None), REPLICAS_MANAGER, replicas=9)
    decided = decide(live=external, wanted=2)
    assert [(MANAGER, 2), (REPLICAS_MANAGER, None)] == handed(decided)
    assert {True} == {effect.force for effect in decided.effects if isinstance(effect, ApplyObject)}
    both = owned(there(), MANAGER, REPLICAS_MANAGER)
    assert [(MANAGER, 2), (REPLICAS_MANAGER, None)] == handed(decide(live=both))
    assert [] == handed(decide(live=owned(there(), MANAGER)))


# ---- budgets, and what is too many


def test_a_budget_comes_with_the_second_worker_and_stays_while_there_may_be_two() -> None:
    scaled = [{**PYTHON, "scaling": {"min": 0, "max": 12}}]
    free = frozenset((DEPLOYMENT, BUDGET))
    assert ["ApplyObject Deployment"] == kinds_of(decide(scaled, wanted=1, checked=free))
    assert ["ApplyObject Deployment", "ApplyObject PodDisruptionBudget"] == kinds_of(
        decide(scaled, wanted=2, checked=free)
    )
    assert () == decide(scaled, wanted=0, live=there(replicas=0)).effects
    at_most_one = [{**PYTHON, "scaling": {"min": 0, "max": 1}}]
    assert ["DeleteObject PodDisruptionBudget"] == kinds_of(decide(at_most_one, wanted=0, live=there(replicas=0)))


def test_children_of_a_consumer_that_is_gone_are_deleted_by_uid_and_others_are_not() -> None:
    run = ChildName("SparkApplication", "emails-nightly-x")
    entries = {
        **there(),
        run: live({"kind": "SparkApplication", "metadata": {"name": run.name, "namespace": "shop"}}),
    }
    decided = decide([], live=entries)
    assert [
        DeleteObject("Deployment", "shop", NAME, "uid-Deployment"),
        DeleteObject("PodDisruptionBudget", "shop", NAME, "uid-PodDisruptionBudget"),
    ] == list(decided.effects)
    assert () == decided.consumers


def test_what_is_being_deleted_already_is_not_deleted_again() -> None:
    result = there(budget=False)
    result[DEPLOYMENT]["metadata"]["deletionTimestamp"] = "2026-11-18T09:00:00Z"
    assert () == decide([], live=result).effects


def test_with_the_resource_all_its_workers_go() -> None:
    around = world(queue(PYTHON), live=there())
    assert ["DeleteObject Deployment", "DeleteObject PodDisruptionBudget"] == kinds_of(
        all_removed(around, DecisionMemory(), "the queue is deleted")
    )


def test_an_invalid_or_absent_resource_changes_nothing() -> None:
    absent = replace(world(queue(PYTHON), live=there()), resource=None)
    assert ChildrenPlan(DecisionMemory()) == decide_children(absent, CONNECTION, {}, DecisionMemory(), NOW_US)


def test_what_is_remembered_of_a_child_goes_with_it() -> None:
    memory = decide(live=changed(there(), replicas=9)).memory
    assert memory.reverts
    assert () == decide([], live=there(), memory=memory).memory.reverts


# ---- reports


def test_a_consumer_that_runs_as_it_should_is_rolled_out_and_not_short() -> None:
    result = stand(decide(live=there()))
    assert (2, 2, 2, True, None, "", None) == (
        result.replicas,
        result.required,
        result.ready,
        result.rolled_out,
        result.short_since_us,
        result.message,
        result.failure,
    )


def test_without_scaling_all_are_required_with_it_only_min() -> None:
    scaled = [{**PYTHON, "scaling": {"min": 1, "max": 9}}]
    assert 1 == stand(decide(scaled, wanted=5, live=there(replicas=5))).required
    assert 5 == stand(decide(wanted=5, live=there(replicas=5))).required


def test_a_rollout_is_seen_while_old_pods_are_there_or_the_controller_has_not_checked() -> None:
    old = stand(decide(live=there(status={**RUNS, "replicas": 3})))
    unseen = stand(decide(live=there(status={**RUNS, "observedGeneration": 0})))
    changing = stand(decide(wanted=3, live=there()))
    assert [False, False, False] == [old.rolled_out, unseen.rolled_out, changing.rolled_out]


def test_for_the_controller_of_a_deployment_that_has_no_pods_and_is_to_have_none_nobody_waits() -> None:
    asleep = [{**PYTHON, "scaling": {"min": 0, "max": 9}}]
    fresh = stand(decide(asleep, wanted=0, live=there(replicas=0, budget=False, status={})))
    ending = stand(decide(asleep, wanted=0, live=there(replicas=0, budget=False, status={"replicas": 1})))
    assert (True, None, False) == (fresh.rolled_out, fresh.short_since_us, ending.rolled_out)


def test_since_when_a_consumer_is_short_is_remembered_until_it_is_not() -> None:
    few = there(status={**RUNS, "readyReplicas": 1})
    first = decide(live=few)
    assert NOW_US == stand(first).short_since_us
    later = decide(live=few, memory=first.memory, now_us=NOW_US + MINUTE_US)
    assert NOW_US == stand(later).short_since_us
    well = decide(live=there(), memory=later.memory, now_us=NOW_US + 2 * MINUTE_US)
    assert (None, ()) == (stand(well).short_since_us, well.memory.not_ready_since_us)


def test_why_a_deployment_does_not_get_on_is_reported_in_its_own_words() -> None:
    quota = [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]
    late = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
    fine = [{"type": "Progressing", "status": "True", "message": "all is well"}]
    assert ["exceeded quota", "ProgressDeadlineExceeded", ""] == [
        stand(decide(live=there(status={**RUNS, "conditions": conditions}))).message
        for conditions in (quota, late, fine)
    ]
