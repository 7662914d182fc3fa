"""The PodDisruptionBudget of one consumer, as a plain document: a drain of nodes takes one worker at a time.

Pure. A pod that is not ready protects nothing, so it may always be evicted.
"""

from __future__ import annotations

from headgate.api.resources.consumer import Consumer
from headgate_operator.manifests.deployment import selector_of
from headgate_operator.manifests.pod import ChildOwner, Part
from headgate_operator.model.kinds import POD_DISRUPTION_BUDGET
from headgate_operator.model.names import consumer_name, labels_of


def build_disruption_budget(owner: ChildOwner, consumer: Consumer) -> Part:
    """The whole document."""
    return {
        "apiVersion": POD_DISRUPTION_BUDGET.api_version,
        "kind": POD_DISRUPTION_BUDGET.kind,
        "metadata": {
            "name": consumer_name(owner.key.name, consumer.name),
            "namespace": owner.key.namespace,
            "labels": labels_of(owner.key, consumer=consumer.name),
            "ownerReferences": [owner.reference],
        },
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector_of(owner, consumer.name)},
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }
