"""The connection to Cassandra from the environment: the variables that are read, and one line for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

import headgate
from dev.servers.cassandra.choose import Source, decide_source
from dev.servers.cassandra.connection import Connection, ContactPoint, read_connection
from headgate.cli.main import main
from headgate.command_line.connection import read_environment
from headgate.errors import InvalidRequest
from headgate.store.cassandra.settings import (
    Address,
    ConnectionOptions,
    ConnectionSettings,
    InvalidConnectionSettings,
    TlsSettings,
    read_secret_settings,
    read_settings,
)
from headgate.store.connection_variables import VARIABLES, connection_variables, prefixed

WHERE = {"CONTACT_POINTS": "c1"}


def test_a_contact_point_is_all_that_is_needed() -> None:
    assert ConnectionSettings((Address("c1", 9042),)) == read_settings(WHERE)


def test_everything_that_can_be_reported_is_taken() -> None:
    variables = {
        "CONTACT_POINTS": "c1, c2:9043,[::1]:9044, fe80::1,10.0.0.1",
        "DATA_CENTER": "dc1",
        "USERNAME": "headgate",
        "PASSWORD": " with spaces ",
        "USE_SSL": "yes",
        "KEYSPACE": "queues",
        "CLUSTER_NAME": "main",
    }
    points = (("c1", 9042), ("c2", 9043), ("::1", 9044), ("fe80::1", 9042), ("10.0.0.1", 9042))
    wanted = ConnectionSettings(
        tuple(Address(*point) for point in points),
        "dc1",
        "headgate",
        " with spaces ",
        TlsSettings(),
        "queues",
        "main",
    )
    assert wanted == read_settings(variables)


def test_what_is_empty_counts_as_not_reported() -> None:
    empty = dict.fromkeys(("DATA_CENTER", "USERNAME", "PASSWORD", "USE_SSL", "KEYSPACE", "SSL_CA"), "")
    assert read_settings(WHERE) == read_settings({**WHERE, **empty})


def test_files_that_a_secret_mounts_count_as_named_where_they_are_there(tmp_path: Path) -> None:
    mounted = {**WHERE, "SSL_DIRECTORY": str(tmp_path)}
    assert read_settings(WHERE) == read_settings(mounted)
    (tmp_path / "ca.crt").write_text("not a certificate\n")
    with pytest.raises(InvalidConnectionSettings, match=rf"SSL_CA={tmp_path}/ca.crt: contains no PEM certificate"):
        read_settings(mounted)
    with pytest.raises(InvalidConnectionSettings, match="SSL_CA=/no/where: no such file or directory"):
        read_settings({**mounted, "SSL_CA": "/no/where"})
    (tmp_path / "tls.crt").write_text("")
    with pytest.raises(InvalidConnectionSettings, match="SSL_KEY is empty though SSL_CERT is set"):
        read_settings(mounted)
    assert read_settings({**mounted, "USE_SSL": "false"}).tls is None


FAULTS = [
    ({}, "HEADGATE_CONTACT_POINTS is not set: name nodes of your Cassandra as host[:port], separated by commas"),
    ({"CONTACT_POINTS": " , "}, "CONTACT_POINTS is not set"),
    ({"CONTACT_POINTS": "c1,,c2"}, "CONTACT_POINTS=c1,,c2: an empty entry between two commas"),
    ({"CONTACT_POINTS": "c1:"}, "CONTACT_POINTS: c1:: a port is missing after the colon"),
    ({"CONTACT_POINTS": "c1:cql"}, "CONTACT_POINTS: c1:cql: a port must be a number from 1 to 65535"),
    ({"CONTACT_POINTS": "c1:0"}, "CONTACT_POINTS: c1:0: a port must be a number from 1 to 65535"),
    ({"CONTACT_POINTS": "c1:65536"}, "CONTACT_POINTS: c1:65536: a port must be a number from 1 to 65535"),
    (
        {"CONTACT_POINTS": "cql://c1"},
        "CONTACT_POINTS: cql://c1: must be a host and a port, without a scheme or a path",
    ),
    ({"CONTACT_POINTS": "c 1"}, "CONTACT_POINTS: c 1: not a host name or an address"),
    ({"CONTACT_POINTS": "[::1"}, "CONTACT_POINTS: [::1: an IPv6 address with a port is written [address]:port"),
    ({**WHERE, "USERNAME": "me"}, "PASSWORD is empty though USERNAME is set"),
    ({**WHERE, "PASSWORD": "x"}, "USERNAME is empty though PASSWORD is set"),
    ({**WHERE, "KEYSPACE": "Queues"}, "KEYSPACE=Queues: a keyspace name has at most 48 lower case letters"),
    ({**WHERE, "USE_SSL": "perhaps"}, "USE_SSL=perhaps: set it to true or false"),
    ({**WHERE, "USE_SSL": "true", "SSL_CERT": "x"}, "SSL_KEY is empty though SSL_CERT is set"),
    ({**WHERE, "USE_SSL": "true", "SSL_CA": "/no/where"}, "SSL_CA=/no/where: no such file or directory"),
    ({**WHERE, "SSL_CA": "/no/where"}, "SSL_CA=/no/where: no such file or directory"),
]


@pytest.mark.parametrize(("output", "line"), FAULTS, ids=[line[:60] for _, line in FAULTS])
def test_a_fault_is_one_line_that_names_what_and_where(output: dict[str, str], line: str) -> None:
    with pytest.raises(InvalidConnectionSettings) as caught:
        read_settings(output)
    assert caught.value.faults[0].startswith(line)
    assert "\n" not in caught.value.faults[0]


def test_all_faults_are_reported_at_once() -> None:
    with pytest.raises(InvalidConnectionSettings) as caught:
        read_settings({"CONTACT_POINTS": "a,,b", "KEYSPACE": "-", "USERNAME": "me", "USE_SSL": "?"})
    names = [line.split()[0].split("=")[0] for line in str(caught.value).splitlines()]
    assert ["CONTACT_POINTS", "KEYSPACE", "PASSWORD", "USE_SSL"] == names


def test_files_that_hold_no_certificate_are_reported_before_anybody_connects(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("not a certificate\n")
    with pytest.raises(InvalidConnectionSettings, match=r"SSL_CA=.*: contains no PEM certificate"):
        read_settings({**WHERE, "USE_SSL": "true", "SSL_CA": str(wrong)})
    with pytest.raises(InvalidConnectionSettings, match="not a certificate and its key in PEM"):
        read_settings({**WHERE, "USE_SSL": "true", "SSL_CERT": str(wrong), "SSL_KEY": str(wrong)})


def test_without_tls_its_files_are_not_checked() -> None:
    assert read_settings({**WHERE, "USE_SSL": "false", "SSL_CA": "/no/where"}).tls is None


def test_the_password_is_not_shown() -> None:
    settings = read_settings({**WHERE, "USERNAME": "me", "PASSWORD": "geheim"})
    assert "geheim" not in repr(settings)
    assert "geheim" not in f"{settings}"


# ---- names with the prefix, and without it

DESKTOP = {"USERNAME": "jane", "KEYSPACE": "Of Another Program", "PASSWORD": ""}


def test_a_desktop_that_exports_a_user_name_changes_nothing() -> None:
    assert read_settings(WHERE) == read_settings({**DESKTOP, **prefixed(WHERE)})


def test_names_without_the_prefix_count_where_the_contact_points_have_none_either() -> None:
    secret = {**WHERE, "USERNAME": "me", "PASSWORD": "x", "KEYSPACE": "queues"}
    wanted = ConnectionSettings((Address("c1"),), username="me", password="x", keyspace="queues")
    assert wanted == read_settings(secret) == read_settings(prefixed(secret)) == read_secret_settings(secret)


@pytest.mark.parametrize("setting", VARIABLES)
def test_a_name_with_the_prefix_goes_before_the_one_without_it(setting: str) -> None:
    bare = dict.fromkeys(VARIABLES, "bare")
    assert {**bare, setting: "other"} == connection_variables({**bare, f"HEADGATE_{setting}": "other"})
    assert bare == connection_variables({**bare, f"HEADGATE_{setting}": " "})


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ({"USERNAME": "me"}, "HEADGATE_PASSWORD is empty though HEADGATE_USERNAME is set"),
        ({"KEYSPACE": "Queues"}, "HEADGATE_KEYSPACE=Queues: a keyspace name has at most 48"),
        ({"CONTACT_POINTS": "c1:"}, "HEADGATE_CONTACT_POINTS: c1:: a port is missing after the colon"),
        ({"USE_SSL": "perhaps"}, "HEADGATE_USE_SSL=perhaps: set it to true or false"),
        ({"SSL_CA": "/no/where"}, "HEADGATE_SSL_CA=/no/where: no such file or directory"),
    ],
)
def test_a_fault_names_the_variable_that_was_set(output: dict[str, str], line: str) -> None:
    with pytest.raises(InvalidConnectionSettings) as caught:
        read_settings(prefixed({**WHERE, **output}))
    assert caught.value.faults[0].startswith(line)


def test_a_fault_of_a_secret_names_its_key() -> None:
    with pytest.raises(InvalidConnectionSettings) as caught:
        read_secret_settings({"USERNAME": "me"})
    assert ["CONTACT_POINTS", "PASSWORD"] == [line.split()[0] for line in caught.value.faults]


def test_an_option_goes_before_both_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**DESKTOP, **WHERE, **prefixed({"CONTACT_POINTS": "c2"})}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("USERNAME")
    with main.make_context("headgate", ["--contact-points", "c3", "--keyspace", "queues", "top"]):
        result = read_settings(read_environment())
    assert ((Address("c3"),), "queues") == (result.contact_points, result.keyspace)


def test_a_test_server_goes_before_the_cassandra_of_the_shell() -> None:
    server = Connection((ContactPoint("127.0.0.9", 9042),))
    shell = prefixed({"CONTACT_POINTS": "production", "USERNAME": "me", "PASSWORD": "x", "KEYSPACE": "orders"})
    result = read_settings({**shell, **server.environment()})
    assert ((Address("127.0.0.9"),), None, "headgate") == (result.contact_points, result.username, result.keyspace)


def test_tests_use_the_cluster_that_is_named_with_the_prefix_too() -> None:
    named = prefixed({"CONTACT_POINTS": "c1", "USERNAME": "me", "PASSWORD": "x"})
    assert Source.EXISTING is decide_source(named, docker_runs=True)
    assert ("me", "x") == (read_connection(named).username, read_connection(named).password)


def test_options_go_before_the_environment() -> None:
    environment = {"HEADGATE_CONTACT_POINTS": "elsewhere", "HEADGATE_KEYSPACE": "queues", "USERNAME": "jane"}
    options: ConnectionOptions = {"contact_points": ["c1", "c2:9043"], "username": "me", "password": " spaced "}
    wanted = ConnectionSettings((Address("c1", 9042), Address("c2", 9043)), None, "me", " spaced ", keyspace="queues")
    assert wanted == read_settings(environment, options)
    assert read_settings(environment) == read_settings(environment, {"contact_points": None})
    secure: ConnectionOptions = {"contact_points": "c1", "use_ssl": True}
    assert ConnectionSettings((Address("c1", 9042),), tls=TlsSettings()) == read_settings({}, secure)


def test_a_fault_of_an_option_names_the_option() -> None:
    with pytest.raises(InvalidConnectionSettings) as caught:
        read_settings({}, {"contact_points": "a,,b", "keyspace": "-", "username": "me"})
    names = [line.split()[0].split("=")[0] for line in str(caught.value).splitlines()]
    assert ["contact_points", "keyspace", "password"] == names


def test_an_option_that_is_not_known_is_refused_by_its_name() -> None:
    with pytest.raises(
        InvalidRequest, match=r"Unknown connection option \(given=host\); options: cluster_name, contact_"
    ):
        headgate.connect(host="c1")  # type: ignore[call-arg]


def test_a_connection_takes_options() -> None:
    with pytest.raises(InvalidConnectionSettings, match="contact_points=a,,b: an empty entry between two commas"):
        headgate.connect({}, contact_points="a,,b")
    with pytest.raises(InvalidConnectionSettings, match="contact_points: a/b: must be a host and a port"):
        headgate.connect_sync({}, contact_points=["a/b"])


def test_an_address_in_memory_has_no_servers_and_is_not_for_the_operator() -> None:
    settings = read_settings({"HEADGATE_CONTACT_POINTS": "memory://orders", "HEADGATE_USERNAME": "alone"})
    assert ("memory://orders", ()) == (settings.memory, settings.contact_points)
    with pytest.raises(InvalidConnectionSettings, match="memory"):
        read_secret_settings({"CONTACT_POINTS": "memory://orders"})
