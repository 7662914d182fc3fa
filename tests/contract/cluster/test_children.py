"""The operator's children on a server: each comes back as it was applied, so that nothing is fixed for ever."""

from __future__ import annotations

import pytest

from headgate_operator.manifests.document_diff import differences, stamped
from headgate_operator.manifests.namespace_objects import (
    build_connection_copy,
    build_spark_account,
    build_spark_binding,
    build_worker_account,
)
from headgate_operator.manifests.pod import ChildOwner
from headgate_operator.model.kinds import SECRET, SERVICE_ACCOUNT, kind_of
from headgate_operator.model.names import MANAGER, Key
from tests.contract.cluster.documents import queue
from tests.contract.cluster.worlds import CaseWorld, applied
from tests.kit.simulated_cluster.admission import with_defaults
from tests.unit.operator.operator_children_cases import OWNER, every_child

SOURCE = {"data": {"CONTACT_POINTS": "YQ==", "PASSWORD": "eA=="}}


@pytest.mark.parametrize("case", [*every_child(OWNER), "worker account", "spark account", "spark binding", "secret"])
async def test_a_child_comes_back_without_a_difference_and_an_apply_again_changes_nothing(
    world: CaseWorld, case: str
) -> None:
    queue_made = applied(await world.port.apply(queue(world), manager="one"))
    children = every_child(ChildOwner(Key("Queue", world.namespace, "emails"), queue_made.uid)) | {
        "worker account": build_worker_account(world.namespace),
        "spark account": build_spark_account(world.namespace),
        "spark binding": build_spark_binding(world.namespace),
        "secret": build_connection_copy(world.namespace, SOURCE),
    }
    child = stamped(children[case])
    if "replicas" in child.get("spec", {}):
        child["spec"] = {**child["spec"], "replicas": 0}  # pods are not what this is about
    made = applied(await world.port.apply(child, manager=MANAGER))
    assert differences(child, made.document) == {}
    again = {**child, "metadata": {**child["metadata"], "uid": made.uid}}
    second = applied(await world.port.apply(again, manager=MANAGER, force=True))
    assert differences(child, second.document) == {}
    assert second.document["metadata"]["managedFields"][0] == made.document["metadata"]["managedFields"][0]
    if kind_of(child) not in (SECRET, SERVICE_ACCOUNT):
        filled = with_defaults(kind_of(child), child)
        left_out = {"apiVersion", "kind", "metadata", "status"}
        assert {k: v for k, v in made.document.items() if k not in left_out} == {
            k: v for k, v in filled.items() if k not in left_out
        }
