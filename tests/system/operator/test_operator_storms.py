"""Faults of the real operator, all with the same end: killed at any time, cut from the API server or
from Cassandra for a minute, its children edited and deleted by hand. Each end is compared with that of a calm run.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl, names_of
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import wait_until
from headgate_operator.model.names import consumer_name
from tests.system.cassandra.gate import Gate
from tests.system.cassandra.slowed import slowed
from tests.system.operator.operator_process import Home, home, leading
from tests.system.operator.operator_states import OURS, child_spec, is_reported, state
from tests.system.operator.test_operator import becomes, queue, reason

pytestmark = pytest.mark.slow

FIXED_S = 30.0
SETTLED_S = 240.0
CUT_S = 60.0
HANGS_S = 240.0
"""A silent watch is given up after 90 s; then the shards in force change after a minute and more."""
LIVES_MAX = 30
LIFE_S_MAX = 4.0
"""On a machine of its own; where all takes longer, such an operator has hardly started when it is killed."""
QUEUES = 30


@dataclass(frozen=True)
class Ways:
    """The operator's home, and the ways from it to its servers."""

    home: Home
    api: Gate
    store: Gate
    cassandra: Serving


@pytest.fixture(scope="module")
def ways(
    kubernetes: KubernetesUnderTest, cassandra: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ways]:
    folder = tmp_path_factory.mktemp("storms")
    environment = cassandra.environment()
    host, _, port = environment["CONTACT_POINTS"].rpartition(":")
    with Gate(host, int(port)).listening() as store:
        variables = {**environment, "CONTACT_POINTS": f"127.0.0.1:{store.port}"}
        with home(kubernetes, variables, folder) as its_home:
            config = json.loads(its_home.kubeconfig.read_text())
            server = urlsplit(config["clusters"][0]["cluster"]["server"])
            with Gate(str(server.hostname), int(server.port or 443)).listening() as api:
                config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{api.port}"
                through = folder / "through.yaml"
                through.write_text(json.dumps(config))
                yield Ways(replace(its_home, kubeconfig=through), api, store, cassandra)
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {its_home.keyspace}")


@contextmanager
def namespace(ways: Ways) -> Iterator[Kubectl]:
    """One of its own."""
    name = f"storm-{secrets.token_hex(3)}"
    ways.home.kubectl.run("create", "namespace", name)
    try:
        yield ways.home.kubectl.in_namespace(name)
    finally:
        ways.home.kubectl.delete("namespace", name, wait=False)


def documents(changed: int) -> list[dict[str, Any]]:
    """Thirty queues; those of which the number is a multiple of three differ with each change."""
    reports = []
    for number in range(QUEUES):
        change = changed if number % 3 == 0 else 0
        consumer = {"name": "mailer", "image": f"mailer:{change}", "handler": "mailer:send"}
        consumer["scaling"] = {"min": number % 2 + change, "max": 4}  # type: ignore[assignment]
        policy = "Delete" if number % 2 else "Retain"
        spec = {"shards": 2 + change, "storage": {"tables": "shared"}, "deletionPolicy": policy}
        reports.append(queue(f"q{number:02}", **spec, consumers=[consumer]))
    return reports


DELETED = tuple(f"q{number:02}" for number in range(QUEUES) if number % 5 == 0)


def work(namespaced: Kubectl, pause: Callable[[], object]) -> None:
    """The changes that people make in an hour, with a pause after each."""
    for step in (
        lambda: namespaced.apply(*documents(1)),
        lambda: namespaced.run("delete", "queue", *DELETED, "--wait=false"),
        lambda: namespaced.run("annotate", "queue", "q01", "note=here"),
        lambda: namespaced.run("delete", "deployment", consumer_name("q01", "mailer"), "--ignore-not-found"),
    ):
        step()
        pause()


def begun(namespaced: Kubectl) -> None:
    """Resources that are deleted later exist first, so that the operator knows their deletion policies."""
    namespaced.apply(*documents(0))

    def are_there() -> bool:
        observations = {one["metadata"]["name"]: one for one in namespaced.list("queues")}
        return all(reason(observations[name], "TablesReady") == "TablesPresent" for name in DELETED)

    assert wait_until(are_there, timeout_s=SETTLED_S, every_s=1)


def settled(ways: Ways, namespaced: Kubectl) -> dict[str, Any]:
    """The state once it is as it should be: nothing is left of what was deleted."""
    left = {f"q{number:02}" for number in range(QUEUES) if number % 5}

    def is_settled() -> bool:
        there = {one["metadata"]["name"]: one for one in namespaced.list("queues")}
        return set(there) == left and all(map(is_reported, there.values())) and _entries_are_settled(ways, namespaced)

    assert wait_until(is_settled, timeout_s=SETTLED_S, every_s=2), json.dumps(state_of(ways, namespaced), indent=1)
    observations = [state_of(ways, namespaced)]

    def stays() -> bool:
        observations.append(state_of(ways, namespaced))
        return observations[-1] == observations[-2]

    assert wait_until(stays, timeout_s=SETTLED_S, every_s=6)
    return observations[-1]


def state_of(ways: Ways, namespaced: Kubectl) -> dict[str, Any]:
    """Of all that is in the namespace."""
    return state(namespaced, ways.cassandra, ways.home.keyspace)


def _entries_are_settled(ways: Ways, namespaced: Kubectl) -> bool:
    report = state_of(ways, namespaced)["entries"]
    kept = {name: report.get(name) for name in (f"q{number:02}" for number in range(QUEUES))}
    return list(kept.values()) == [_end_of(number) for number in range(QUEUES)]


def _end_of(number: int) -> str:
    """The final state of an entry."""
    if number % 5:
        return "active"
    return "gone" if number % 2 else "retained"


@pytest.fixture(scope="module")
def calm(ways: Ways) -> dict[str, Any]:
    """The end of a run that nothing disturbs."""
    with namespace(ways) as client, leading(ways.home):
        begun(client)
        work(client, lambda: None)
        return settled(ways, client)


def test_killed_at_any_times_it_comes_to_the_same(ways: Ways, calm: dict[str, Any]) -> None:
    seed, life_s_max = secrets.randbits(32), LIFE_S_MAX * slowed()
    rng, over = random.Random(seed), threading.Event()

    def lives() -> None:
        for _ in range(LIVES_MAX):
            if not over.is_set():
                _lives(ways, lambda: over.wait(rng.uniform(0, life_s_max)))

    with namespace(ways) as client:
        killing = threading.Thread(target=lives)
        killing.start()
        try:
            begun(client)
            work(client, lambda: over.wait(rng.uniform(5, 25)))
        finally:
            over.set()
            killing.join(timeout=120)
        with leading(ways.home):
            assert calm == settled(ways, client), f"seed {seed}"


def _lives(ways: Ways, time: Callable[[], object]) -> None:
    """One process, killed just after it leads."""
    running = ways.home.start()
    try:
        assert wait_until(lambda: '"leadership gained"' in running.log.read_text(), timeout_s=90, every_s=0.1)
        time()
    finally:
        running.kill()


def test_cut_from_the_api_server_for_a_minute_it_comes_to_the_same(ways: Ways, calm: dict[str, Any]) -> None:
    over = threading.Event()
    with namespace(ways) as client, leading(ways.home):
        begun(client)
        ways.api.cut()
        try:
            work(client, lambda: over.wait(CUT_S / 4))
        finally:
            ways.api.heal()
        assert calm == settled(ways, client)


def test_watches_that_hang_without_an_end_are_noticed_and_what_was_missed_is_executed(ways: Ways) -> None:
    with namespace(ways) as client, leading(ways.home) as running:
        client.apply(queue())
        becomes(client, "emails", "Reconciled")
        ways.api.hang()
        client.apply(queue(shards=3), queue("letters"))
        client.delete("deployment", consumer_name("emails", "mailer"))
        becomes_reported = wait_until(
            lambda: all(map(is_reported, client.list("queues"))) and len(client.list("deployment", OURS)) == 2,
            timeout_s=HANGS_S,
            every_s=1,
        )
        assert becomes_reported, json.dumps(state_of(ways, client), indent=1)
        assert running.ask("/livez")[0] == 200


def test_with_cassandra_cut_for_a_minute_deletions_continue_as_their_policy_states_and_it_comes_to_the_same(
    ways: Ways, calm: dict[str, Any]
) -> None:
    over = threading.Event()
    with namespace(ways) as client, namespace(ways) as ending, leading(ways.home):
        begun(client)
        ending.apply(queue(deletionPolicy="Delete"))
        becomes(ending, "emails", "Reconciled")
        ways.store.cut()
        try:
            work(client, lambda: over.wait(CUT_S / 4))
            assert wait_until(lambda: client.find("queue", "q10") is None, timeout_s=60), "deleted under Retain"
            waiting = client.wait_for("queue", "q05", _waits_for_cassandra, what="waits with a reason", timeout_s=60)
            assert ["headgate.io/store"] == waiting["metadata"]["finalizers"]
            ending.run("delete", "namespace", str(ending.namespace), "--wait=false")
            assert wait_until(
                lambda: ways.home.kubectl.find("namespace", str(ending.namespace)) is None, timeout_s=120
            )
        finally:
            ways.store.heal()
        assert calm == settled(ways, client)


def _waits_for_cassandra(one: dict[str, Any]) -> bool:
    message = [each for each in one["status"]["conditions"] if each["type"] == "Ready"]
    return bool(message and message[0]["reason"] == "Deleting" and "Cassandra" in message[0].get("message", ""))


def test_every_child_that_is_deleted_or_edited_is_fixed_within_thirty_seconds(ways: Ways) -> None:
    with namespace(ways) as client, leading(ways.home):
        consumer = {"name": "mailer", "image": "mailer:1", "handler": "mailer:send", "scaling": {"min": 2, "max": 3}}
        client.apply(queue(consumers=[consumer]))
        client.wait_for("queue", "emails", is_reported, what="has a status")
        kinds = ("deployments", "poddisruptionbudgets", "cronjobs", "serviceaccounts", "secrets")
        assert wait_until(lambda: all(client.list(kind, OURS) for kind in kinds), timeout_s=60)
        before = {
            kind: {one["metadata"]["name"]: child_spec(one) for one in client.list(kind, OURS)} for kind in kinds
        }
        edits = {
            "deployments": {"spec": {"replicas": 1, "minReadySeconds": 9}},
            "poddisruptionbudgets": {"spec": {"maxUnavailable": 3}},
            "cronjobs": {"spec": {"schedule": "1 1 1 1 *", "concurrencyPolicy": "Allow"}},
            "serviceaccounts": {"automountServiceAccountToken": True},
            "secrets": {"data": {"CONTACT_POINTS": "bm9ib2R5"}},
        }
        for kind in kinds:
            name = names_of(client.list(kind, OURS))[0]

            def is_as_before(kind: str = kind) -> bool:
                return _as_reported(client, kind) == before[kind]

            client.run("patch", kind, name, "--type=merge", "-p", json.dumps(edits[kind]))
            assert wait_until(is_as_before, timeout_s=FIXED_S, every_s=0.5), f"{kind} edited"
            client.delete(kind, name)
            assert wait_until(is_as_before, timeout_s=FIXED_S, every_s=0.5), f"{kind} deleted"


def _as_reported(namespaced: Kubectl, kind: str) -> dict[str, Any]:
    return {one["metadata"]["name"]: child_spec(one) for one in namespaced.list(kind, OURS)}
