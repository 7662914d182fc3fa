"""The rights of the operator's roles, and the rights that they may never have."""

from __future__ import annotations

from headgate_operator.informers.watched_kinds import SPARK_CRD, WATCHED
from headgate_operator.install.rbac import AT_HOME, CLUSTER_ROLE, EVERYWHERE, rules
from headgate_operator.model.kinds import CONFIG_MAP, CRD, KINDS, LEASE, POD, REPLICA_SET, SECRET
from tests.kit.operator_rights import bindings, cluster_role, role

ONLY_SIMULATED = {CONFIG_MAP, REPLICA_SET}
"""Kinds that the API server in memory knows, and the operator does not speak of."""


def verbs(kind: object) -> set[str]:
    return {verb for each in (*EVERYWHERE, *AT_HOME) for verb in each.verbs if each.kind == kind}


def test_the_roles_speak_of_every_kind_that_the_operator_speaks_of_and_of_no_other() -> None:
    spoken = {each.kind for each in (*EVERYWHERE, *AT_HOME)} - {CLUSTER_ROLE}
    assert set(KINDS.values()) - ONLY_SIMULATED == spoken


def test_whatever_is_watched_may_be_listed_and_watched() -> None:
    assert [] == [watched.kind.kind for watched in WATCHED if not {"list", "watch"} <= verbs(watched.kind)]


def test_of_the_definitions_of_a_cluster_two_may_be_read_by_name() -> None:
    """A server allows a list of one name where the right names it."""
    rights = {right.verbs: right.names for right in EVERYWHERE if right.kind == CRD}
    assert {("get",): ("queues.headgate.io",), ("list", "watch"): (SPARK_CRD,)} == rights
    assert [(SPARK_CRD, "")] == [(one.name, one.labels) for one in WATCHED if one.kind == CRD]


def test_no_rule_is_for_everything_and_secrets_are_never_listed() -> None:
    reports = [*cluster_role()["rules"], *role("headgate-system")["rules"]]
    assert not [rule for rule in reports if "*" in {*rule["apiGroups"], *rule["resources"], *rule["verbs"]}]
    assert {"get", "create", "patch", "delete"} == verbs(SECRET)
    assert {"list"} == verbs(POD)


def test_secrets_accounts_and_bindings_are_written_by_name_alone() -> None:
    loose = [
        right.resource
        for right in EVERYWHERE
        if {"create", "patch", "delete"} & set(right.verbs) and not right.names and not right.subresource
    ]
    assert {
        "queues",
        "counters",
        "deployments",
        "cronjobs",
        "poddisruptionbudgets",
        "sparkapplications",
        "events",
    } == {*loose}


def test_resources_of_a_group_with_the_same_verbs_are_one_rule() -> None:
    assert [
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "resourceNames": ["headgate-operator"],
            "verbs": ["get", "update"],
        },
    ] == rules(each for each in AT_HOME if each.kind == LEASE)
    first = cluster_role()["rules"][0]
    assert (["queues", "counters"], ["get", "list", "watch", "patch"]) == (first["resources"], first["verbs"])


def test_the_bindings_name_the_roles_and_the_account() -> None:
    subject = {"kind": "ServiceAccount", "name": "headgate-operator", "namespace": "headgate-system"}
    bound = bindings("headgate-system")
    assert ["ClusterRole", "Role"] == [each["roleRef"]["kind"] for each in bound]
    assert [[subject], [subject]] == [each["subjects"] for each in bound]
