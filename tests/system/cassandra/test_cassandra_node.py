"""A single real node: it answers its clients, survives each fault, and reports why it does not start."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.servers.cassandra import (
    Cassandra,
    Certificates,
    Connection,
    ContactPoint,
    CqlProbe,
    Credentials,
    Grant,
    NodeSettings,
    Profile,
    TlsFiles,
    certificates,
    create_role_statements,
)
from dev.servers.cassandra.connection import read_connection
from dev.servers.cassandra.serving import Existing
from headgate.errors import EnvironmentProblem, InvalidRequest, OperationRefused, Unavailable
from headgate.local.cassandra.own_cassandra import start_kept
from headgate.local.processes import Identity, wait_until

ADMIN = Credentials("admin", "o'brien")
KEYSPACE = "CREATE KEYSPACE shop WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture(scope="module")
def node() -> Iterator[Cassandra]:
    """A node of these tests' own: they kill and pause it. Its superuser is not the one that everybody knows.

    With periodic sync a server that is killed forgets what it acknowledged in its last tenth of a second: a restart
    reads the commit log as far as its last marker, and markers are written every 100 ms.
    """
    settings = NodeSettings(username=ADMIN.username, password=ADMIN.password, commitlog_sync="batch")
    with Cassandra.start(settings) as started:
        started.cql(KEYSPACE)
        started.cql("CREATE TABLE shop.t (k int PRIMARY KEY, v int)")
        yield started


def setting(cassandra: Cassandra, name: str) -> object:
    values = {row["name"]: row["value"] for row in cassandra.cql("SELECT name, value FROM system_views.settings")}
    return values[name]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size_warn_threshold", "5KiB"),
        ("batch_size_fail_threshold", "50KiB"),
        ("max_mutation_size", "16384KiB"),
        ("tombstone_warn_threshold", "1000"),
        ("tombstone_failure_threshold", "100000"),
    ],
)
def test_the_limits_of_a_production_server_hold(node: Cassandra, name: str, value: str) -> None:
    assert value == setting(node, name)


def test_a_batch_that_production_would_refuse_is_refused(node: Cassandra) -> None:
    node.cql("CREATE TABLE shop.big (k int PRIMARY KEY, v text)")
    rows = " ".join(f"INSERT INTO shop.big (k, v) VALUES ({k}, '{'x' * 6_000}')" for k in range(10))  # noqa: S608
    with pytest.raises(InvalidRequest, match="Batch too large"):
        node.cql(f"BEGIN UNLOGGED BATCH {rows} APPLY BATCH")


def test_a_wrong_password_and_the_default_superuser_are_refused(node: Cassandra) -> None:
    for name, password, why in (
        (ADMIN.username, "guess", "username admin and/or password are incorrect"),
        ("cassandra", "cassandra", "cassandra is not permitted to log in"),
    ):
        with pytest.raises(OperationRefused, match=why):
            node.node.probe(node.connection.as_role(name, password))


def test_a_role_may_do_what_is_granted_and_nothing_else(node: Cassandra) -> None:
    reader = Credentials("reader", "secret")
    for statement in create_role_statements(reader, [Grant("SELECT", "KEYSPACE shop")]):
        node.cql(statement)
    with node.node.probe(node.connection.as_role(reader.username, reader.password)) as probe:
        assert [] == probe.query("SELECT * FROM shop.t WHERE k = -1")
        with pytest.raises(OperationRefused, match="no MODIFY permission"):
            probe.query("INSERT INTO shop.t (k, v) VALUES (-1, 1)")


def test_nodetool_speaks_to_it(node: Cassandra) -> None:
    assert "UN  127.0.0.1" in node.node.nodetool("status")


def test_its_environment_leads_a_client_to_it(node: Cassandra) -> None:
    existing = Existing(read_connection(node.environment()))
    assert node.contact_points() == existing.contact_points()
    assert "5.0." in str(existing.cql("SELECT release_version FROM system.local")[0]["release_version"])


def test_what_was_acknowledged_survives_kill_9(node: Cassandra) -> None:
    before = node.contact_points()
    node.cql("INSERT INTO shop.t (k, v) VALUES (1, 10)")
    node.node.kill()
    with pytest.raises(Unavailable, match="No server answers"):
        node.cql("SELECT * FROM shop.t")
    node.node.start()
    assert [{"k": 1, "v": 10}] == node.cql("SELECT * FROM shop.t WHERE k = 1")
    assert before == node.contact_points()


def test_a_paused_node_is_silent_and_resumes_where_it_was(node: Cassandra) -> None:
    with node.node.probe(timeout_s=1.0) as probe:
        node.node.pause()
        try:
            with pytest.raises(Unavailable, match="No answer in time"):
                probe.query("SELECT * FROM shop.t")
            assert node.node.alive()
        finally:
            node.node.resume()
    assert [] == node.cql("SELECT * FROM shop.t WHERE k = -2")


def test_a_restarted_node_holds_what_it_held(node: Cassandra) -> None:
    node.cql("INSERT INTO shop.t (k, v) VALUES (2, 20)")
    node.node.restart()
    assert [{"k": 2, "v": 20}] == node.cql("SELECT * FROM shop.t WHERE k = 2")


def test_two_nodes_live_side_by_side_and_leave_nothing(node: Cassandra) -> None:
    settings = NodeSettings(
        profile=Profile.THROUGHPUT,
        commitlog_sync="batch",
        paxos_variant="v2",
        storage_compatibility_mode="NONE",
        heap_mb=768,
        authentication=False,
        overrides={"tombstone_warn_threshold": 77},
    )
    with Cassandra.start(settings) as other:
        assert other.contact_points() != node.contact_points()
        assert "USERNAME" not in other.environment()
        names = ("commitlog_sync", "paxos_variant", "storage_compatibility_mode", "tombstone_warn_threshold")
        assert ["batch", "v2", "NONE", "77"] == [setting(other, name) for name in names]
        command = Path(f"/proc/{other.node.server.pid}/cmdline").read_text()
        directory, pid = other.node.place.directory, other.node.server.pid
    assert ("-XX:+UseG1GC" in command, "TieredStopAtLevel" in command) == (True, False)
    assert (False, None) == (directory.exists(), Identity.of(pid))


@pytest.fixture(scope="module")
def tls() -> Certificates:
    """Certificates for the loopback's names."""
    return certificates()


@pytest.fixture(scope="module")
def guarded(tls: Certificates) -> Iterator[Cassandra]:
    """A node that speaks TLS only, and only with clients that show a certificate."""
    with Cassandra.start(tls=tls, require_client_auth=True) as started:
        yield started


def reached_as(guarded: Cassandra, host: str, files: TlsFiles | None) -> str:
    point = ContactPoint(host, guarded.connection.contact_points[0].port)
    connection = Connection((point,), username="cassandra", password="cassandra", tls=files)
    with CqlProbe(point, connection, timeout_s=5) as probe:
        return str(probe.query("SELECT cluster_name FROM system.local")[0]["cluster_name"])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_client_that_names_the_host_as_its_certificate_does_is_served(guarded: Cassandra, host: str) -> None:
    assert "headgate-test" == reached_as(guarded, host, guarded.connection.tls)


def test_the_environment_reports_of_the_files(guarded: Cassandra) -> None:
    variables = guarded.environment()
    assert "true" == variables["USE_SSL"]
    assert all(Path(variables[name]).is_file() for name in ("SSL_CA", "SSL_CERT", "SSL_KEY"))


def test_a_client_without_a_certificate_is_refused(guarded: Cassandra, tls: Certificates) -> None:
    with pytest.raises(OperationRefused, match="certificate"):
        reached_as(guarded, "127.0.0.1", tls.client(with_certificate=False))


def test_a_client_without_tls_is_not_served(guarded: Cassandra) -> None:
    with pytest.raises((Unavailable, OperationRefused)):
        reached_as(guarded, "127.0.0.1", None)


def test_a_server_whose_certificate_names_another_host_is_refused_by_the_client() -> None:
    elsewhere = certificates(["dns:elsewhere.example"])
    with pytest.raises(OperationRefused, match=r"certificate is not the one expected.*127\.0\.0\.1"):
        Cassandra.start(tls=elsewhere)


def test_a_server_of_another_authority_is_refused_by_the_client(guarded: Cassandra) -> None:
    elsewhere = certificates(["dns:elsewhere.example"])
    with pytest.raises(OperationRefused, match="certificate is not the one expected"):
        reached_as(guarded, "127.0.0.1", elsewhere.client())


def test_a_taken_port_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        expected = rf"port is taken \(port=127\.0\.0\.1:{port}\); stop the program that listens"
        with pytest.raises(EnvironmentProblem, match=expected):
            start_kept(tmp_path, native_port=port)


def test_the_last_words_of_a_node_that_does_not_start_are_shown() -> None:
    with pytest.raises(EnvironmentProblem, match=r"did not start(?s:.*)nonsense"):
        Cassandra.start(NodeSettings(overrides={"nonsense": 1}))


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line, as `make demo` uses it."""
    return subprocess.run(
        [sys.executable, "-m", "dev.servers.cassandra", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        env=ENVIRONMENT,
    )


@pytest.mark.slow
def test_a_kept_node_outlives_its_command_and_another_ends_it(tmp_path: Path) -> None:
    where = ("--state-dir", str(tmp_path / "state"))
    assert 3 == command("status", *where).returncode
    try:
        started = command("start", *where)
        text = dict(line.split("=", 1) for line in shlex.split(started.stdout))
        kept = Existing(read_connection(text))
        kept.cql(KEYSPACE)
        assert started.stdout == command("start", *where).stdout == command("status", *where).stdout
        assert 1 == command("start", "--address", "127.0.0.2", *where).returncode
    finally:
        assert "stopped\n" == command("stop", *where).stderr
    assert 3 == command("status", *where).returncode
    try:
        again = command("start", *where)
        assert started.stdout == again.stdout
        names = {row["keyspace_name"] for row in kept.cql("SELECT keyspace_name FROM system_schema.keyspaces")}
        assert "shop" in names
    finally:
        command("stop", *where)


@pytest.mark.slow
def test_no_server_outlives_tests_that_were_killed(tmp_path: Path) -> None:
    script = tmp_path / "session.py"
    script.write_text(
        "import signal, sys\n"
        "from dev.servers.cassandra import Cassandra\n"
        "started = Cassandra.start()\n"
        "print(started.node.server.pid, started.node.place.directory, flush=True)\n"
        "signal.pause()\n"
    )
    session = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert session.stdout is not None
    pid, directory = session.stdout.readline().split()
    server = Identity.of(int(pid))
    assert server is not None
    session.send_signal(signal.SIGKILL)
    session.wait()
    assert wait_until(lambda: not server.alive(), timeout_s=10)
    # Its files go when the next session starts; nothing of the living is touched.
    with Cassandra.start():
        assert not Path(directory).exists()
