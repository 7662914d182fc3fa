"""Two processes of the operator, as a chart runs them: one leads, one stands by, and takes over warm."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import wait_until
from tests.system.cassandra.slowed import slowed
from tests.system.operator.operator_process import Home, OperatorProcess, home, leading
from tests.system.operator.test_operator import becomes, queue

LEASE_S = 15.0
KILLED_S = LEASE_S + 2.0
ENDED_S = 3.0
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def its_home(
    kubernetes: KubernetesUnderTest, cassandra: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    with home(kubernetes, cassandra.environment(), tmp_path_factory.mktemp("standby")) as result:
        yield result
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {result.keyspace}")


def leads(one: OperatorProcess) -> bool:
    return "headgate_operator_leading 1.0" in one.ask("/metrics")[1].splitlines()


def taken_after(standby: OperatorProcess, began_s: float) -> float:
    """How long until it leads."""
    assert wait_until(lambda: leads(standby), timeout_s=WITHIN_S, every_s=0.05)
    return time.monotonic() - began_s


def test_a_standby_is_ready_without_leading_and_takes_over_from_one_that_ends_and_from_one_that_is_killed(
    its_home: Home, k8s_namespace: Kubectl, measured: Callable[[str], None]
) -> None:
    by = slowed()
    with leading(its_home) as first:
        first_leads = wait_until(lambda: leads(first), timeout_s=WITHIN_S)
        with leading(its_home) as second:
            assert (True, False) == (first_leads, leads(second))
            assert [200, 200] == [second.ask(path)[0] for path in ("/livez", "/readyz")]
            k8s_namespace.apply(queue("before"))
            becomes(k8s_namespace, "before", "Reconciled")
            began_s = time.monotonic()
            first.process.terminate()
            ended_s = taken_after(second, began_s)
            first.end()
            with leading(its_home) as third:
                began_s = time.monotonic()
                second.kill()
                killed_s = taken_after(third, began_s)
                k8s_namespace.apply(queue("after"))
                becomes(k8s_namespace, "after", "Reconciled")
    measured(
        f"taken over {ended_s:.1f} s after SIGTERM, {killed_s:.1f} s after kill -9 "
        f"(promised {ENDED_S:g} and {KILLED_S:g} s; this machine is {by:.1f} times slowed)"
    )
    assert ended_s <= ENDED_S * by
    assert killed_s <= LEASE_S + (KILLED_S - LEASE_S) * by
