"""A job without executors reports that and ends; one whose executors come late starts with the first of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate_spark.process import session
from headgate_spark.process.session import REPORTED_AFTER_S, NoExecutor, await_executor


class Cluster:
    """A session on somebody's cluster, whose executors come after some time."""

    def __init__(self, come_after_s: float, *, master: str = "k8s://here", settings: dict[str, str] | None = None):
        self.now_s = 0.0
        self.checks = 0
        self._come_after_s = come_after_s
        known = SimpleNamespace(getExecutorMemoryStatus=self._known)
        conf = SimpleNamespace(get=(settings or {}).get)
        self.sparkContext = SimpleNamespace(
            master=master, getConf=lambda: conf, _jsc=SimpleNamespace(sc=lambda: known)
        )

    def _known(self) -> SimpleNamespace:
        self.checks += 1
        return SimpleNamespace(size=lambda: 3 if self.now_s >= self._come_after_s else 1)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def waited(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, within_s: float = 120.0) -> list[str]:
    """The lines that were printed until it continued."""
    message: list[str] = []
    monkeypatch.setattr(session, "time", SimpleNamespace(monotonic=lambda: cluster.now_s, sleep=cluster.sleep))
    spark: Any = cluster
    assert bool(await_executor(spark, message.append, within_s=within_s)) == bool(message)
    return message


@pytest.mark.parametrize(("come_after_s", "lines"), [(0.0, 0), (REPORTED_AFTER_S - 1, 0), (REPORTED_AFTER_S + 30, 1)])
def test_it_begins_when_the_first_is_there_and_states_once_that_it_waits_for_long(
    monkeypatch: pytest.MonkeyPatch, come_after_s: float, lines: int
) -> None:
    cluster = Cluster(come_after_s)
    message = waited(cluster, monkeypatch)
    assert (lines, come_after_s) == (len(message), cluster.now_s)
    assert all("No executor of the job has come (waited_s=45); run kubectl describe" in line for line in message)


def test_where_none_comes_it_ends_with_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(1e9)
    with pytest.raises(NoExecutor, match=r"waited_s=120\); run kubectl describe") as ended:
        waited(cluster, monkeypatch)
    assert 1 == len(str(ended.value).splitlines())


@pytest.mark.parametrize(
    ("master", "settings"),
    [("local[2]", {}), ("local-cluster[1,1,512]", {}), ("k8s://here", {"spark.dynamicAllocation.enabled": "true"})],
)
def test_where_none_has_to_be_there_none_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, master: str, settings: dict[str, str]
) -> None:
    cluster = Cluster(1e9, master=master, settings=settings)
    assert ([], 0) == (waited(cluster, monkeypatch), cluster.checks)
