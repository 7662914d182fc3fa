"""The settings of a node: the server's own limits hold unless a test sets others; a profile changes no semantics."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dev.servers.cassandra.settings import (
    NodeSettings,
    Profile,
    RingPlace,
    ServerTls,
    cassandra_yaml,
    evenly_spaced_tokens,
    for_any_address,
    server_arguments,
)
from headgate.errors import InvalidRequest
from headgate.local.cassandra.node import NodePlace, logback_xml

PLACE = NodePlace(Path("/somewhere/node"), "127.0.0.2", 25001, 25002, 25003)
ANY = "0.0.0.0"  # noqa: S104 - inside a container
LIMITS = (
    *("batch_size_warn_threshold", "batch_size_fail_threshold", "max_mutation_size", "commitlog_segment_size"),
    *("tombstone_warn_threshold", "tombstone_failure_threshold", "unlogged_batch_across_partitions_warn_threshold"),
    *("write_request_timeout", "read_request_timeout", "cas_contention_timeout", "max_hint_window"),
)


def report(settings: NodeSettings, place: NodePlace = PLACE) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(cassandra_yaml(settings, place))
    return parsed


@pytest.mark.parametrize("profile", list(Profile))
def test_no_profile_touches_a_limit_of_the_server(profile: Profile) -> None:
    assert set() == set(LIMITS) & set(report(NodeSettings(profile=profile)))


def test_profiles_differ_in_the_jvm_alone() -> None:
    assert report(NodeSettings(profile=Profile.FUNCTIONAL)) == report(NodeSettings(profile=Profile.THROUGHPUT))


def test_functional_compiles_with_c1_and_throughput_with_c2() -> None:
    fast = server_arguments(NodeSettings(profile=Profile.FUNCTIONAL), PLACE, archive=None)
    bench = server_arguments(NodeSettings(profile=Profile.THROUGHPUT), PLACE, archive=None)
    assert {"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512M"} <= set(fast)
    assert {"-XX:+UseG1GC", "-Xmx2048M"} <= set(bench)
    assert not [argument for argument in bench if "Tiered" in argument]


def test_an_override_is_the_last_word() -> None:
    settings = NodeSettings(paxos_variant="v2", overrides={"paxos_variant": "v1", "tombstone_warn_threshold": 7})
    assert ("v1", 7) == (report(settings)["paxos_variant"], report(settings)["tombstone_warn_threshold"])


@pytest.mark.parametrize(
    ("sync", "expected"),
    [
        ("periodic", {"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"}),
        ("batch", {"commitlog_sync": "batch"}),
        ("group", {"commitlog_sync": "group", "commitlog_sync_group_window": "10ms"}),
    ],
)
def test_each_way_to_sync_the_commit_log_is_reported_with_its_period(sync: str, expected: dict[str, str]) -> None:
    entries = {
        name: value for name, value in report(NodeSettings(commitlog_sync=sync)).items() if "commitlog_sync" in name
    }
    assert expected == entries


@pytest.mark.parametrize(
    "wrong", [{"commitlog_sync": "never"}, {"paxos_variant": "v3"}, {"storage_compatibility_mode": "CASSANDRA_3"}]
)
def test_a_setting_that_the_server_does_not_know_is_refused_before_a_start(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="one of"):
        NodeSettings(**wrong)  # type: ignore[arg-type]  # what a user may write in a call


def test_a_node_listens_at_its_own_address_alone() -> None:
    result = report(NodeSettings())
    assert ("127.0.0.2", "127.0.0.2") == (result["listen_address"], result["rpc_address"])


def test_a_container_answers_at_any_address_and_reports_its_own() -> None:
    result = report(for_any_address(NodeSettings(overrides={"num_tokens": 4}), broadcast="here"))
    assert (ANY, "here", 4) == (result["rpc_address"], result["broadcast_rpc_address"], result["num_tokens"])


def test_all_nodes_of_a_ring_are_seeds() -> None:
    place = RingPlace(Path("/n"), "127.0.0.1", 1, 7000, 3, seeds=("127.0.0.1", "127.0.0.2"), token=5, nodes=2)
    result = report(NodeSettings(), place)
    assert "127.0.0.1:7000,127.0.0.2:7000" == result["seed_provider"][0]["parameters"][0]["seeds"]
    assert ("5", False) == (result["initial_token"], result["auto_bootstrap"])
    assert "-Dcassandra.system_auth.default_rf=2" in server_arguments(NodeSettings(), place, archive=None)


def test_tokens_share_the_ring_evenly() -> None:
    tokens = evenly_spaced_tokens(3)
    steps = [later - earlier for earlier, later in pairwise(tokens)]
    assert (-(2**63), [2**64 // 3] * 2) == (tokens[0], steps)
    assert all(-(2**63) <= token < 2**63 for token in tokens)


def test_passwords_and_grants_are_on_unless_switched_off() -> None:
    assert "PasswordAuthenticator" == report(NodeSettings())["authenticator"]
    assert "CassandraAuthorizer" == report(NodeSettings())["authorizer"]
    assert "authenticator" not in report(NodeSettings(authentication=False))


def test_a_server_with_certificates_takes_no_connection_without_tls() -> None:
    tls = ServerTls(Path("/s"), Path("/t"), "secret", require_client_auth=True)
    result = report(NodeSettings(tls=tls))["client_encryption_options"]
    assert (True, False, True) == (result["enabled"], result["optional"], result["require_client_auth"])


def test_a_path_with_odd_letters_stays_well_formed_in_the_logging_configuration() -> None:
    assert "<file>/a&amp;b&lt;c/system.log</file>" in logback_xml(Path("/a&b<c/system.log"))
