"""Which coordinator is asked: of the home data centre alone, a replica first, no silent or excluded one."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from headgate.errors import EnvironmentProblem
from headgate.store.cassandra.diagnostics import check_cluster
from headgate.store.cassandra.routing import HomePolicy
from headgate.store.cassandra.settings import Address, ConnectionSettings


@dataclass(eq=False)
class Host:
    """The input of the policy."""

    address: str
    datacenter: str | None = "home"
    is_up: bool | None = True


A, B, C, D = (Host(name) for name in "abcd")
UNAVAILABLE = Host("remote", "other")


def _policy(*hosts: Host, replicas: tuple[Host, ...] = ()) -> HomePolicy:
    policy = HomePolicy("home")
    metadata = SimpleNamespace(get_replicas=lambda _keyspace, _key: list(replicas))
    policy.populate(SimpleNamespace(metadata=metadata), hosts)
    return policy


def _query(*, serial: int | None = None) -> Any:
    return SimpleNamespace(keyspace="ks", routing_key=b"key", serial_consistency_level=serial)


def _plans(policy: HomePolicy, query: Any = None, count: int = 12) -> list[str]:
    return ["".join(host.address for host in policy.make_query_plan(None, query)) for _ in range(count)]


def test_another_data_centre_is_never_used() -> None:
    assert {"ab", "ba"} == set(_plans(_policy(A, UNAVAILABLE, B)))
    assert {""} == set(_plans(_policy(UNAVAILABLE)))


def test_the_only_data_centre_is_home_before_anybody_knows_its_name() -> None:
    assert {"a"} == set(_plans(_policy(Host("a", None))))


def test_nodes_take_turns() -> None:
    assert {"abc", "bca", "cab"} == set(_plans(_policy(A, B, C)))


def test_replicas_come_first_and_take_turns() -> None:
    firsts = {plan[0] for plan in _plans(_policy(A, B, C, D, replicas=(B, D)), _query())}
    seconds = {plan[1] for plan in _plans(_policy(A, B, C, D, replicas=(B, D)), _query())}
    assert ({"b", "d"}, {"b", "d"}) == (firsts, seconds)


def test_lwts_on_a_key_meet_at_its_first_replica() -> None:
    policy = _policy(A, B, C, D, replicas=(C, A, D))
    assert {"cadb"} == set(_plans(policy, _query(serial=9)))


def test_a_node_that_is_down_is_left_out() -> None:
    assert {"ac", "ca"} == set(_plans(_policy(A, Host("b", is_up=False), C)))


def test_a_silent_node_comes_last_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = _policy(A, B, C, replicas=(A, B, C))
    policy.suspect(A)
    assert {"a"} == {plan[-1] for plan in _plans(policy, _query())}
    assert {"bca"} == set(_plans(policy, _query(serial=9)))
    policy.answered(A)
    assert not policy.suspects
    assert {"abc"} == set(_plans(policy, _query(serial=9)))


def test_a_silent_node_is_tried_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr("headgate.store.cassandra.routing.time.monotonic", lambda: now_s)
    policy = _policy(A, B, replicas=(A, B))
    policy.suspect(A)
    assert {"ba"} == set(_plans(policy, _query(serial=9)))
    now_s = 116.0
    assert {"ab"} == set(_plans(policy, _query(serial=9)))


def test_an_excluded_node_is_used_for_nothing_and_comes_back() -> None:
    policy = _policy(A, B)
    policy.exclude(frozenset({"a"}))
    assert {"b"} == set(_plans(policy))
    policy.exclude(frozenset())
    assert {"ab", "ba"} == set(_plans(policy))


def test_nodes_join_and_leave() -> None:
    policy = _policy(A)
    policy.on_add(B)
    policy.on_up(B)
    assert {"ab", "ba"} == set(_plans(policy))
    policy.on_remove(A)
    assert {"b"} == set(_plans(policy))


SETTINGS = ConnectionSettings((Address("c1"),))


def test_one_of_several_data_centres_has_to_be_named() -> None:
    metadata = SimpleNamespace(cluster_name="c", keyspaces={}, all_hosts=lambda: [A, UNAVAILABLE])
    with pytest.raises(EnvironmentProblem, match="set DATA_CENTER to one of home, other"):
        check_cluster(metadata, SETTINGS, None)
