"""The operator's children on a server: each comes back as it was applied, so that nothing is fixed for ever."""

from __future__ import annotations

import pytest

from headgate_operator.build_account import spark_account, spark_binding, worker_account
from headgate_operator.build_pod import Owner
from headgate_operator.build_secret import connection_copy
from headgate_operator.differing import differences, stamped
from headgate_operator.kinds import SECRET, SERVICE_ACCOUNT, kind_of
from headgate_operator.names import MANAGER, Key
from headgate_operator.simulated.admission import with_defaults
from tests.conformance.cluster.documents import queue
from tests.conformance.cluster.grounds import Ground, applied
from tests.unit.operator_children_cases import OWNER, every_child

SOURCE = {"data": {"CONTACT_POINTS": "YQ==", "PASSWORD": "eA=="}}


@pytest.mark.parametrize("case", [*every_child(OWNER), "worker account", "spark account", "spark binding", "secret"])
async def test_a_child_comes_back_without_a_difference_and_an_apply_again_changes_nothing(
    ground: Ground, case: str
) -> None:
    queue_made = applied(await ground.port.apply(queue(ground), manager="one"))
    children = every_child(Owner(Key("Queue", ground.namespace, "emails"), queue_made.uid)) | {
        "worker account": worker_account(ground.namespace),
        "spark account": spark_account(ground.namespace),
        "spark binding": spark_binding(ground.namespace),
        "secret": connection_copy(ground.namespace, SOURCE),
    }
    child = stamped(children[case])
    if "replicas" in child.get("spec", {}):
        child["spec"] = {**child["spec"], "replicas": 0}  # pods are not what this is about
    made = applied(await ground.port.apply(child, manager=MANAGER))
    assert differences(child, made.document) == {}
    again = {**child, "metadata": {**child["metadata"], "uid": made.uid}}
    second = applied(await ground.port.apply(again, manager=MANAGER, force=True))
    assert differences(child, second.document) == {}
    assert second.document["metadata"]["managedFields"][0] == made.document["metadata"]["managedFields"][0]
    if kind_of(child) not in (SECRET, SERVICE_ACCOUNT):
        filled = with_defaults(kind_of(child), child)
        left_out = {"apiVersion", "kind", "metadata", "status"}
        assert {k: v for k, v in made.document.items() if k not in left_out} == {
            k: v for k, v in filled.items() if k not in left_out
        }
