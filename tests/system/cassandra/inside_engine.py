"""Run by test_cassandra_docker.py within the network of an engine: the fixture as a user's own test would have it."""

from __future__ import annotations

from dev.servers.cassandra.connection import read_connection
from dev.servers.cassandra.docker import DockerCassandra
from dev.servers.cassandra.serving import Existing, Serving


def test_the_fixture_is_served_by_testcontainers_with_our_settings(cassandra: Serving) -> None:
    assert isinstance(cassandra, DockerCassandra)
    values = {row["name"]: row["value"] for row in cassandra.cql("SELECT name, value FROM system_views.settings")}
    expected = {
        "authenticator": "PasswordAuthenticator",
        "authorizer": "CassandraAuthorizer",
        "batch_size_fail_threshold": "50KiB",
        "tombstone_failure_threshold": "100000",
        "cluster_name": "headgate-test",
    }
    assert expected == {name: values.get(name) for name in expected}


def test_its_environment_names_the_published_port(cassandra: Serving) -> None:
    variables = cassandra.environment()
    assert ("datacenter1", "cassandra", "false") == (
        variables["DATA_CENTER"],
        variables["USERNAME"],
        variables["USE_SSL"],
    )
    assert [variables["CONTACT_POINTS"]] == cassandra.contact_points()
    assert not variables["CONTACT_POINTS"].endswith(":9042")
    assert variables["CONTACT_POINTS"] == Existing(read_connection(variables)).environment()["CONTACT_POINTS"]
