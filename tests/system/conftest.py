"""Fixtures that tests on real servers share, except the servers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.servers.cassandra import Cassandra
from dev.servers.cassandra.tls import certificates


@pytest.fixture(scope="session")
def near_cassandra(kubernetes: KubernetesUnderTest) -> Iterator[Cassandra]:
    """Pods and this machine both reach it; it asks both for a certificate. A test that needs it has its own
    keyspace.
    """
    if not kubernetes.runs_containers():
        pytest.skip("needs root: without it no container runs")
    assert kubernetes.host_address is not None
    made = certificates((f"ip:{kubernetes.host_address}",))
    with Cassandra.start(address=kubernetes.host_address, tls=made, require_client_auth=True) as server:
        yield server


@pytest.fixture
def measured(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints a test's measurements on the terminal, also when the test passes."""

    def show(line: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n  {line}\n")

    return show
