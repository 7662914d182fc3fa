"""Objects that a namespace needs so that pods can run there: made with the first resource, gone with the last."""

from __future__ import annotations

from typing import Any

from headgate.api.resources.reasons import Reason
from headgate_operator.decide.namespace import decide_namespace
from headgate_operator.manifests.namespace_objects import name_of
from headgate_operator.model.names import CONNECTION_COPY
from headgate_operator.model.plan import ApplyObject, DeleteObject, ReconcilePlan
from headgate_operator.model.world import (
    UNKNOWN,
    ChildName,
    JobGroup,
    LastApply,
    NamespaceState,
    NamespaceWorld,
    OperatorSettings,
)
from tests.unit.operator.operator_children_cases import GROUPS, SETTINGS, live

NOW_US = 1_800_000_000_000_000
REPAIR = GROUPS["repair"]
SOURCE: dict[str, Any] = {"data": {"CONTACT_POINTS": "YQ==", "PASSWORD": "eA=="}}
ACCOUNT = ChildName("ServiceAccount", "headgate-worker")
COPY = ChildName("Secret", CONNECTION_COPY)
JOB = ChildName("CronJob", name_of(REPAIR))
SPARK = [ChildName("ServiceAccount", "headgate-spark"), ChildName("RoleBinding", "headgate-spark")]


def around(**parts: Any) -> NamespaceWorld:
    """A namespace with a queue of which nothing is made yet, except the given parts."""
    document: dict[str, Any] = {
        "namespace": "shop",
        "settings": SETTINGS,
        "present": True,
        "terminating": False,
        "wants_workers": True,
        "wants_copy": True,
        "wants_spark": False,
        "groups": frozenset((REPAIR,)),
        "source": SOURCE,
    }
    return NamespaceWorld(**{**document, **parts})


def decide(**parts: Any) -> ReconcilePlan:
    return decide_namespace(around(**parts), NOW_US)


def settled(**parts: Any) -> dict[ChildName, Any]:
    """All its wanted children, in the form that they have once applied."""
    plan = decide(**parts)
    plan = decide(**parts, checked=plan.ask)
    entries: dict[ChildName, Any] = {}
    for effect in plan.effects:
        assert isinstance(effect, ApplyObject)
        entries[ChildName(effect.document["kind"], effect.document["metadata"]["name"])] = live(effect.document)
    return entries


def touched(plan: ReconcilePlan) -> list[ChildName]:
    """The objects that are applied or deleted, in this order."""
    return [
        ChildName(effect.document["kind"], effect.document["metadata"]["name"])
        if isinstance(effect, ApplyObject)
        else ChildName(effect.kind, effect.name)
        for effect in plan.effects
        if isinstance(effect, ApplyObject | DeleteObject)
    ]


def stand(plan: ReconcilePlan) -> NamespaceState:
    result = plan.namespace
    assert isinstance(result, NamespaceState)
    return result


NOBODY: dict[str, Any] = {"wants_workers": False, "wants_copy": False, "groups": frozenset()}


def test_places_are_asked_for_then_account_and_secret_are_made_before_the_jobs() -> None:
    asked = decide()
    assert ((), frozenset((ACCOUNT, COPY, JOB))) == (asked.effects, asked.ask)
    assert [ACCOUNT, COPY, JOB] == touched(decide(checked=asked.ask))


def test_once_all_is_there_nothing_is_to_do_and_pods_can_start() -> None:
    plan = decide(live=settled())
    assert plan.is_settled
    assert NamespaceState(ready=True) == stand(plan)


def test_until_account_and_secret_are_there_pods_wait_but_not_for_the_jobs() -> None:
    result = settled()
    assert not stand(decide()).ready
    assert not stand(decide(live={ACCOUNT: result[ACCOUNT]})).ready
    assert stand(decide(live={ACCOUNT: result[ACCOUNT], COPY: result[COPY]})).ready


def test_for_bulk_work_there_is_an_account_with_the_chart_s_role() -> None:
    plan = decide(wants_spark=True, live=settled(), checked=frozenset(SPARK))
    assert SPARK == touched(plan)
    assert sorted(SPARK) == touched(decide(live=settled(wants_spark=True)))


def test_a_copy_follows_its_source() -> None:
    rotated = {"data": {**SOURCE["data"], "PASSWORD": "eQ=="}}
    plan = decide(live=settled(), source=rotated)
    assert [COPY] == touched(plan)
    (effect,) = plan.effects
    assert isinstance(effect, ApplyObject)
    assert ("eQ==", "uid-Secret") == (effect.document["data"]["PASSWORD"], effect.document["metadata"]["uid"])


def test_a_key_that_is_gone_from_the_source_goes_from_the_copy() -> None:
    plan = decide(live=settled(), source={"data": {"CONTACT_POINTS": "YQ=="}})
    assert [COPY] == touched(plan)


def test_where_all_resources_name_their_own_secret_there_is_no_copy() -> None:
    assert [COPY] == touched(decide(live=settled(), wants_copy=False))
    own = frozenset((JobGroup("repair", REPAIR.schedule, "mine", SETTINGS.image),))
    assert COPY not in decide(wants_copy=False, groups=own).ask


def test_a_group_that_is_no_more_loses_its_job_and_a_new_one_gets_its_own() -> None:
    other = JobGroup("repair", "@hourly", REPAIR.connection, REPAIR.image)
    new = ChildName("CronJob", name_of(other))
    assert [new, JOB] == touched(decide(live=settled(), groups=frozenset((other,)), checked=frozenset((new,))))


def test_with_the_last_resource_all_of_it_goes() -> None:
    everything = settled(wants_spark=True)
    assert sorted([ACCOUNT, COPY, JOB, *SPARK]) == touched(decide(live=everything, **NOBODY))
    assert decide(**NOBODY).is_settled


def test_while_the_groups_are_not_known_no_job_and_no_account_goes() -> None:
    plan = decide(live=settled(), **{**NOBODY, "groups": UNKNOWN})
    assert [COPY] == touched(plan)


def test_a_source_that_is_unavailable_or_was_not_read_leaves_its_copies() -> None:
    for source in (None, UNKNOWN):
        plan = decide(live=settled(), source=source)
        assert plan.is_settled
        assert stand(plan).ready


def test_without_a_source_and_a_copy_it_is_reported_which_secret_is_missing() -> None:
    failure = stand(decide(source=None)).failure
    assert failure is not None
    assert Reason.CONNECTION_MISSING == failure.reason
    assert "no Secret headgate-connection in namespace headgate-system" in failure.message
    assert NamespaceState() == stand(decide(source=UNKNOWN))


def test_in_the_operator_s_own_namespace_the_source_is_neither_copied_over_itself_nor_deleted() -> None:
    home = {"namespace": SETTINGS.namespace}
    source = live({"kind": "Secret", "metadata": {"name": CONNECTION_COPY, "namespace": SETTINGS.namespace}})
    assert [ACCOUNT, JOB] == touched(decide(**home, checked=frozenset((ACCOUNT, COPY, JOB))))
    account = live({"kind": "ServiceAccount", "metadata": {"name": ACCOUNT.name, "namespace": SETTINGS.namespace}})
    entries = {ACCOUNT: account, COPY: source}
    assert stand(decide(**home, live=entries)).ready
    assert COPY not in touched(decide(**home, **NOBODY, live=entries))


def test_elsewhere_a_chart_s_secret_of_another_name_is_copied_also_beside_the_operator() -> None:
    settings = OperatorSettings(cluster="c", version="1", image="i", connection_secret="cassandra")
    plan = decide(namespace=settings.namespace, settings=settings)
    assert COPY in plan.ask


def test_a_stranger_s_account_is_not_used_and_pods_are_not_started_on_it() -> None:
    plan = decide(foreign={ACCOUNT: "not Headgate's"}, checked=frozenset((COPY, JOB)))
    assert ACCOUNT not in touched(plan)
    failure = stand(plan).failure
    assert failure is not None
    assert Reason.NAME_TAKEN == failure.reason
    assert plan.again_at_us is not None


def test_a_namespace_that_ends_or_is_gone_is_left_to_its_end() -> None:
    ending = decide(terminating=True, live=settled())
    assert (True, True) == (ending.is_settled, stand(ending).terminating)
    assert decide(present=False).is_settled


def test_a_job_that_was_suspended_by_hand_runs_again() -> None:
    result = settled()
    result[JOB] = {**result[JOB], "spec": {**result[JOB]["spec"], "suspend": True}}
    plan = decide(live=result)
    assert [JOB] == touched(plan)
    assert 1 == len(plan.memory.reverts)


def test_what_was_refused_does_not_hold_up_the_rest() -> None:
    refused = LastApply(_stamp(ACCOUNT), None, "403: quota", NOW_US)
    plan = decide(answers={ACCOUNT: refused}, checked=frozenset((ACCOUNT, COPY, JOB)))
    assert [COPY, JOB] == touched(plan)
    failure = stand(plan).failure
    assert failure is not None
    assert Reason.APPLY_REFUSED == failure.reason


def _stamp(child: ChildName) -> str:
    result: str = settled()[child]["metadata"]["annotations"]["headgate.io/applied"]
    return result
