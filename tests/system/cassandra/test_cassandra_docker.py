"""The testcontainers path on a real engine: Debian's, in a network of its own, its image made of our jars."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.servers import namespaces
from dev.servers.cassandra.image import CHANGES, IMAGE, image_archive
from dev.servers.docker_engine import DockerEngine, docker_answers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a Docker engine of its own")

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerEngine]:
    """An engine that has the image under the official name."""
    archive = image_archive()
    with DockerEngine.start() as started:
        changes = [word for change in CHANGES for word in ("--change", change)]
        started.docker("import", *changes, str(archive), IMAGE)
        yield started


def test_where_an_engine_runs_the_fixture_is_served_by_testcontainers(engine: DockerEngine) -> None:
    environment = {
        name: value for name, value in engine.environment().items() if not name.startswith("HEADGATE_TEST")
    }
    environment.pop("CONTACT_POINTS", None)
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / "inside_engine.py")]
    done = subprocess.run(
        engine.command(argv),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=FOLDER.parent.parent,
        env=environment,
    )
    assert "2 passed" in done.stdout, done.stdout[-4000:] + done.stderr[-2000:]
    assert "" == engine.docker("ps", "--all", "--quiet")


def test_the_image_behaves_as_the_official_one_without_our_settings(engine: DockerEngine) -> None:
    script = (
        "docker-entrypoint.sh cassandra -v 2>/dev/null; "
        "grep -E '^(cluster_name|rpc_address|endpoint_snitch):' /etc/cassandra/cassandra.yaml; "
        "head -1 /etc/cassandra/cassandra-rackdc.properties"
    )
    variables = ("-e", "CASSANDRA_CLUSTER_NAME=shop", "-e", "CASSANDRA_DC=west")
    message = engine.docker("run", "--rm", *variables, IMAGE, "sh", "-c", script)
    assert ["rpc_address: 0.0.0.0", "cluster_name: shop"] == [
        line for line in message.splitlines() if line.startswith(("rpc_address", "cluster_name"))
    ]
    assert "dc=west" == message.splitlines()[-1]


def test_an_engine_ends_with_all_it_ran() -> None:
    with DockerEngine.start() as started:
        host = f"unix://{started.socket}"
        assert docker_answers(host)
        directory, namespace = started.directory, started.namespace
    assert (False, False) == (docker_answers(host), directory.exists())
    assert not namespaces.exists(namespace)
    mounts = Path("/proc/self/mounts").read_text()
    assert str(directory) not in mounts
    assert [] == list(Path("/sys/fs/cgroup").glob(f"*/{namespace}"))
