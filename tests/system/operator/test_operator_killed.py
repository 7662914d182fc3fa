"""The real operator, killed between any two of its effects while a queue is made, changed and deleted: the end is
that of an operator that was left alone. Its pods' image is nowhere, so that nothing but the operator moves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from dev.cluster.fixtures import KubernetesUnderTest
from dev.cluster.kubectl import Kubectl
from dev.servers.cassandra.serving import Serving
from headgate.local.processes import wait_until
from tests.system.operator.operator_process import Home, home, leading
from tests.system.operator.operator_states import CHILDREN, OURS, is_reported, state
from tests.system.operator.test_operator import queue, tables_of
from tests.system.operator.test_operator import state_of as state_of_entry

pytestmark = pytest.mark.slow

LIVES_MAX = 60
LIFE_S_MAX = 120.0
SETTLED_S = 240.0
QUIET_S = 6.0
LIVES_MIN = 12
"""A queue with everything is made by no fewer effects; far fewer lives would mean that nobody was killed."""


@dataclass(frozen=True)
class Place:
    """Where it happens."""

    home: Home
    namespaced: Kubectl
    cassandra: Serving

    def state(self) -> dict[str, Any]:
        """Of all that is in the namespace."""
        return state(self.namespaced, self.cassandra, self.home.keyspace)


@pytest.fixture
def place(
    kubernetes: KubernetesUnderTest,
    cassandra: Serving,
    k8s_namespace: Kubectl,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Place]:
    with home(kubernetes, cassandra.environment(), tmp_path_factory.mktemp("killed")) as its_home:
        yield Place(its_home, k8s_namespace, cassandra)
    cassandra.cql(f"DROP KEYSPACE IF EXISTS {its_home.keyspace}")


def consumer(image: str) -> dict[str, Any]:
    return {"name": "mailer", "image": image, "handler": "mailer:send", "scaling": {"min": 2, "max": 3}}


def make(namespaced: Kubectl) -> None:
    namespaced.apply(queue(deletionPolicy="Delete", consumers=[consumer("mailer:1")]))


def change(namespaced: Kubectl) -> None:
    namespaced.apply(queue(deletionPolicy="Delete", shards=3, consumers=[consumer("mailer:2")]))


def is_done(place: Place) -> bool:
    """The status is of this spec, and so are the children."""
    result = place.namespaced.find("queue", "emails")
    children = {one["kind"] for one in place.namespaced.list(CHILDREN, OURS)}
    wanted = {"Deployment", "PodDisruptionBudget", "CronJob", "ServiceAccount", "Secret"}
    return result is not None and is_reported(result) and wanted == children and _image_matches(place.namespaced)


def _image_matches(namespaced: Kubectl) -> bool:
    report = namespaced.get("queue", "emails")["spec"]["consumers"][0]["image"]
    pods = namespaced.list("deployment", OURS)[0]["spec"]["template"]["spec"]
    return bool(report == pods["containers"][0]["image"])


def is_gone(place: Place) -> bool:
    """The queue, its entry, its children, and what the namespace had for it."""
    local, keyspace = place.namespaced, place.home.keyspace
    return (
        local.find("queue", "emails") is None
        and state_of_entry(place.cassandra, keyspace, str(local.namespace), "emails") == "gone"
        and tables_of(place.cassandra, keyspace) == set()
        and local.list(CHILDREN, OURS) == []
    )


def stays(holds: Callable[[], bool]) -> bool:
    """So, and so a little later."""
    if not holds():
        return False
    wait_until(lambda: False, timeout_s=QUIET_S)
    return holds()


def lives_until(place: Place, holds: Callable[[], bool]) -> int:
    """One short life after the other; how many were killed."""
    for killed in range(LIVES_MAX):
        place.home.kubectl.in_namespace(place.home.namespace).run("delete", "lease", "--all", "--ignore-not-found")
        running = place.home.start(program="tests.system.operator.dying_operator")
        deadline_s = time.monotonic() + LIFE_S_MAX
        try:
            while running.process.poll() is None:
                if stays(holds) and running.process.poll() is None:
                    return killed
                assert time.monotonic() < deadline_s, running.log.read_text()[-5_000:]
        finally:
            running.kill()
    deaths = (place.home.folder / "deaths").read_text().splitlines()
    raise AssertionError(f"not there after {LIVES_MAX} lives; died between: {json.dumps(deaths[-20:], indent=1)}")


def test_killed_between_any_two_effects_it_comes_to_the_same(
    place: Place,
    measured: Callable[[str], None],
    kubernetes: KubernetesUnderTest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADGATE_TEST_DEATHS", str(place.home.folder / "deaths"))
    calm = _calm_end(place, kubernetes)
    make(place.namespaced)
    made = lives_until(place, lambda: is_done(place))
    change(place.namespaced)
    changed = lives_until(place, lambda: is_done(place))
    with leading(place.home):
        assert wait_until(lambda: calm == place.state(), timeout_s=SETTLED_S, every_s=2), json.dumps(place.state())
    place.namespaced.delete("queue", "emails", wait=False)
    deleted = lives_until(place, lambda: is_gone(place))
    measured(f"killed {made} times while it was made, {changed} while it was changed, {deleted} while it was deleted")
    assert min(made, changed + deleted) >= LIVES_MIN


def _calm_end(place: Place, kubernetes: KubernetesUnderTest) -> dict[str, Any]:
    """Of a namespace that nobody disturbs."""
    name = f"{place.namespaced.namespace}-calm"
    kubernetes.kubectl.run("create", "namespace", name)
    calm = Place(place.home, kubernetes.kubectl.in_namespace(name), place.cassandra)
    try:
        with leading(place.home):
            make(calm.namespaced)
            assert wait_until(lambda: is_done(calm), timeout_s=SETTLED_S, every_s=1)
            change(calm.namespaced)
            assert wait_until(lambda: stays(lambda: is_done(calm)), timeout_s=SETTLED_S, every_s=1)
            ended = calm.state()
            calm.namespaced.delete("queue", "emails", wait=False)
            assert wait_until(lambda: is_gone(calm), timeout_s=SETTLED_S, every_s=1)
            return ended
    finally:
        kubernetes.kubectl.delete("namespace", name, wait=False)
