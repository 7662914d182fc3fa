"""Documents that the server refuses, with its messages, and the defaults that it fills in."""

from __future__ import annotations

from typing import Any

from headgate_operator.cluster.port import Denial
from headgate_operator.model.kinds import DEPLOYMENT, QUEUE
from tests.contract.cluster.documents import deployment, queue, status_of
from tests.contract.cluster.worlds import CaseWorld, applied, denied
from tests.kit.simulated_cluster.admission import with_defaults


async def test_46_a_rule_refuses_in_our_words(world: CaseWorld) -> None:
    spec = {"visibilityTimeout": "2d", "retention": "1d"}
    refused = denied(await world.port.apply(queue(world, spec=spec), manager="one"))
    assert (refused.denial, refused.status, refused.reason) == (Denial.INVALID, 422, "Invalid")
    assert [cause.field for cause in refused.causes] == ["spec.retention"]
    assert refused.causes[0].message.endswith(
        "retention must be at least visibilityTimeout, else a message that was received once is lost while hidden"
    )
    assert refused.message.startswith('Queue.headgate.io "emails" is invalid: spec.retention: Invalid value: ')


async def test_46_a_value_without_the_shape_of_its_field_is_refused(world: CaseWorld) -> None:
    refused = denied(await world.port.apply(queue(world, spec={"retention": "two weeks"}), manager="one"))
    assert [(cause.field, cause.message) for cause in refused.causes] == [
        (
            "spec.retention",
            'Invalid value: "string": must be a duration such as 500ms, 90s, 1h30m or 14d, from 1m to 3650d',
        )
    ]


async def test_46_a_field_that_the_crd_does_not_know_is_refused(world: CaseWorld) -> None:
    for document, subresource in (
        (queue(world, spec={"shard": 4}), ""),
        (status_of(world, {"lag": 3}), "status"),
    ):
        if subresource:
            await world.port.apply(queue(world), manager="one")
        refused = denied(await world.port.apply(document, manager="one", subresource=subresource))
        assert (refused.denial, refused.status) == (Denial.BROKEN, 500)
        assert refused.message.endswith("field not declared in schema")


async def test_47_what_is_fixed_cannot_be_changed(world: CaseWorld) -> None:
    await world.port.apply(queue(world, spec={"engine": "timeline"}), manager="one")
    refused = denied(await world.port.apply(queue(world, spec={"engine": "extent"}), manager="one"))
    assert [(cause.reason, cause.field, cause.message) for cause in refused.causes] == [
        (
            "FieldValueForbidden",
            "spec.engine",
            "Forbidden: engine is fixed when the queue is made; make another queue with the new value and move over",
        )
    ]


async def test_47_the_selector_of_a_deployment_is_fixed(world: CaseWorld) -> None:
    await world.port.apply(deployment(world), manager="one")
    labels = {"headgate.io/queue": "other"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "worker", "image": "i"}]}}
    changed = deployment(world, {"selector": {"matchLabels": labels}, "template": template})
    refused = denied(await world.port.apply(changed, manager="one", force=True))
    assert (refused.denial, [cause.field for cause in refused.causes]) == (Denial.INVALID, ["spec.selector"])
    assert refused.causes[0].message.endswith("field is immutable")


async def test_48_a_queue_is_filled_in_by_its_defaults(world: CaseWorld) -> None:
    consumer = {"name": "a", "handler": "a:b", "scaling": {"lag": "10s"}}
    spec = {"timeline": {"part": "5m"}, "consumers": [consumer]}
    document = queue(world, spec=spec)
    made = applied(await world.port.apply(document, manager="one"))
    assert made.document["spec"] == dict(with_defaults(QUEUE, document))["spec"]
    assert made.document["spec"]["timeline"]["lease"] == {"ttl": "10s", "touch": "2s"}


async def test_48_a_deployment_is_filled_in_alike(world: CaseWorld) -> None:
    """As the operator writes one: probes, a volume of a Secret, amounts, a field of the pod."""
    document = deployment(world, {"template": full_template()})
    made = applied(await world.port.apply(document, manager="one"))
    assert made.document["spec"] == dict(with_defaults(DEPLOYMENT, document))["spec"]


def full_template() -> dict[str, Any]:
    probe = {"httpGet": {"path": "/livez", "port": 8080}, "periodSeconds": 1}
    container = {
        "name": "worker",
        "image": "registry.example/worker:1",
        "command": ["headgate", "worker"],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "USERNAME", "valueFrom": {"secretKeyRef": {"name": "c", "key": "USERNAME", "optional": True}}},
        ],
        "startupProbe": {**probe, "failureThreshold": 60},
        "livenessProbe": probe,
        "readinessProbe": {"tcpSocket": {"port": 8080}},
        "lifecycle": {"preStop": {"exec": {"command": ["python", "-m", "headgate.runtime.drain"]}}},
        "ports": [{"name": "health", "containerPort": 8080}],
        "resources": {"requests": {"cpu": "0.1", "memory": "1024Mi"}, "limits": {"cpu": "1000m"}},
        "securityContext": {"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - of the pod
    }
    handler = {"name": "handler", "image": "registry.example/handler", "restartPolicy": "Always"}
    return {
        "metadata": {"labels": {"headgate.io/queue": "emails"}},
        "spec": {
            "containers": [container],
            "initContainers": [handler],
            "serviceAccountName": "headgate-worker",
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "terminationGracePeriodSeconds": 60,
            "volumes": [
                {"name": "tmp", "emptyDir": {}},
                {"name": "tls", "secret": {"secretName": "c", "optional": True}},
            ],
            "topologySpreadConstraints": [
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"headgate.io/queue": "emails"}},
                }
            ],
        },
    }
