"""Lists under server-side apply: maps by a key, pieces, sets."""

from __future__ import annotations

from typing import Any

from headgate_operator.cluster.port import Denial
from headgate_operator.model.kinds import address_of
from tests.contract.cluster.documents import config, deployment, queue
from tests.contract.cluster.worlds import CaseWorld, applied, denied


def names(items: Any) -> list[str]:
    return [item["name"] for item in items]


async def test_09_items_of_a_map_by_name_merge(world: CaseWorld) -> None:
    for name in ("billing", "search"):
        spec = {"engine": "extent", "consumers": [{"name": name, "handler": "a:b"}]}
        both = applied(await world.port.apply(queue(world, spec=spec), manager=name))
    assert names(both.document["spec"]["consumers"]) == ["billing", "search"]


async def test_09_an_item_that_its_manager_leaves_out_goes_with_all_of_its_fields(world: CaseWorld) -> None:
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    await world.port.apply(deployment(world, env=env), manager="one")
    left = applied(await world.port.apply(deployment(world, env=env[1:]), manager="one"))
    assert left.document["spec"]["template"]["spec"]["containers"][0]["env"] == [{"name": "B", "value": "2"}]


async def test_09_the_last_item_left_out_while_another_owns_a_field_of_it_is_refused(world: CaseWorld) -> None:
    """Its list would become null, which a CRD does not take."""
    consumer = {"name": "a", "handler": "a:b"}
    await world.port.apply(queue(world, spec={"consumers": [consumer]}), manager="one")
    change = {"spec": {"consumers": [{**consumer, "concurrency": 3}]}}
    applied(await world.port.patch(address_of(queue(world)), change, manager="hand"))
    refused = denied(await world.port.apply(queue(world), manager="one"))
    assert (refused.denial, refused.causes[0].field) == (Denial.INVALID, "spec.consumers")
    assert refused.causes[0].message.endswith('spec.consumers in body must be of type array: "null"')


async def test_09_ports_are_distinguished_by_number_and_protocol(world: CaseWorld) -> None:
    await world.port.apply(deployment(world, ports=[{"containerPort": 80}]), manager="one")
    udp = [{"containerPort": 80, "protocol": "UDP"}]
    both = applied(await world.port.apply(deployment(world, ports=udp), manager="two", force=True))
    ports = both.document["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert ports == [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]


async def test_10_an_atomic_list_is_replaced(world: CaseWorld) -> None:
    await world.port.apply(deployment(world, args=["a", "b"]), manager="one")
    replaced = applied(await world.port.apply(deployment(world, args=["c"]), manager="one"))
    assert replaced.document["spec"]["template"]["spec"]["containers"][0]["args"] == ["c"]


async def test_11_a_set_takes_members_of_both(world: CaseWorld) -> None:
    await world.port.apply(config(world, finalizers=["a.io/one"]), manager="one")
    both = applied(await world.port.apply(config(world, finalizers=["a.io/two"]), manager="two"))
    assert sorted(both.document["metadata"]["finalizers"]) == ["a.io/one", "a.io/two"]
    left = applied(await world.port.apply(config(world), manager="one"))
    assert left.document["metadata"]["finalizers"] == ["a.io/two"]
    await world.port.apply(config(world), manager="two")


async def test_11_an_empty_map_is_owned_and_not_kept(world: CaseWorld) -> None:
    made = applied(await world.port.apply(config(world, data={}), manager="one"))
    assert "data" not in made.document
    refused = denied(await world.port.apply(config(world, data={}), manager="two"))
    assert refused.message == 'Apply failed with 1 conflict: conflict with "one": .data'


async def test_12_the_order_applied_is_kept(world: CaseWorld) -> None:
    names_applied = ["c", "a", "b"]
    env = [{"name": name, "value": "1"} for name in names_applied]
    made = applied(await world.port.apply(deployment(world, env=env), manager="one"))
    assert names(made.document["spec"]["template"]["spec"]["containers"][0]["env"]) == names_applied


async def test_12_another_order_applied_is_taken(world: CaseWorld) -> None:
    for order in (["a", "b", "c"], ["c", "d", "a", "b"]):
        env = [{"name": name, "value": "1"} for name in order]
        made = applied(await world.port.apply(deployment(world, env=env), manager="one"))
    assert names(made.document["spec"]["template"]["spec"]["containers"][0]["env"]) == ["c", "d", "a", "b"]


async def test_12_items_of_others_keep_their_place_before_those_that_follow(world: CaseWorld) -> None:
    def env(*order: str) -> list[dict[str, str]]:
        return [{"name": name, "value": "1"} for name in order]

    await world.port.apply(deployment(world, env=env("x", "a", "y", "b")), manager="one")
    both = applied(await world.port.apply(deployment(world, env=env("n", "b", "m", "a")), manager="two"))
    assert names(both.document["spec"]["template"]["spec"]["containers"][0]["env"]) == ["x", "y", "n", "b", "m", "a"]
