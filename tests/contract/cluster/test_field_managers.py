"""Many managers write one object in turn, by chance: the simulated server and a real one make the same of it.

Compared after each step: the refusals and their fields, the object, and the owner of each of its fields.
Of managers that did not apply only the lowest fields are compared: a real server also notes maps on the way,
where its Go types leave them out when they are empty.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headgate_operator.cluster.port import ApiObject, Denied
from headgate_operator.model.kinds import NAMESPACE, ObjectAddress, address_of
from tests.contract.cluster.documents import deployment, queue
from tests.contract.cluster.worlds import CaseWorld, RealWorld, SimulatedWorld
from tests.kit.simulated_cluster.fields import read

SERVERS_OWN = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace", "name"}
CONTROLLER = "kube-controller-manager"
REVISION = "deployment.kubernetes.io/revision"
EXAMPLES = 25

managers = st.sampled_from(["one", "two", "three"])
values = st.sampled_from(["1", "2"])


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def named(names: str, item: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Items with some of these names, in any order."""
    orders = st.permutations(list(names)).flatmap(lambda order: st.integers(0, 3).map(lambda n: order[:n]))
    return orders.flatmap(
        lambda order: st.tuples(*(item for _ in order)).map(
            lambda items: [{"name": name, **one} for name, one in zip(order, items, strict=True)]
        )
    )


labels = some(a=values, b=values)
containers = named(
    "uvw", some(args=st.lists(values, max_size=2), env=named("ABC", st.fixed_dictionaries({"value": values})))
)
pods = some(
    nodeSelector=some(disk=values),
    tolerations=st.lists(st.fixed_dictionaries({"key": values, "operator": st.just("Exists")}), max_size=2),
    volumes=named("xy", st.just({"emptyDir": {}})),
    terminationGracePeriodSeconds=st.sampled_from([10, 20]),
)
deployments = st.fixed_dictionaries(
    {"containers": containers, "pod": pods},
    optional={
        "labels": labels,
        "annotations": labels,
        "strategy": st.sampled_from([{"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 1}}]),
        "progressDeadlineSeconds": st.sampled_from([100, 200]),
    },
)
queues = some(
    shards=st.integers(4, 6),
    retention=st.sampled_from(["5d", "6d"]),
    timeline=some(safetyLag=st.sampled_from(["2s", "3s"]), lease=some(ttl=st.sampled_from(["12s", "13s"]))),
    consumers=named("a", some(concurrency=st.sampled_from([3, 4])).map(lambda one: {"handler": "a:b", **one})),
    bulk=named(
        "mn",
        st.fixed_dictionaries(
            {"mode": st.just("redrive"), "backlogAbove": st.integers(1, 2)},
            optional={"target": st.sampled_from(["x", "y"])},
        ),
    ),
)


@dataclass(frozen=True)
class Step:
    manager: str
    verb: str
    what: Mapping[str, Any]
    force: bool


def steps(what: st.SearchStrategy[Mapping[str, Any]]) -> st.SearchStrategy[list[Step]]:
    verbs = st.sampled_from(["apply", "apply", "apply", "patch"])
    return st.lists(st.builds(Step, managers, verbs, what, st.booleans()), min_size=2, max_size=6)


def filled(what: Any) -> Any:
    """Without what is empty: the operator applies no empty list or map; a real server's merge loses track of them."""
    if isinstance(what, Mapping):
        kept = {name: filled(child) for name, child in what.items()}
        return {name: child for name, child in kept.items() if child not in ({}, []) or name == "emptyDir"}
    return [filled(item) for item in what] if isinstance(what, list) else what


def as_deployment(world: CaseWorld, what: Mapping[str, Any]) -> dict[str, Any]:
    made = deployment(world)
    template = made["spec"]["template"]["spec"]
    # The container of the case is in each document, since a Deployment without one is refused.
    what = filled(what)
    template["containers"] += [{"image": "i", **one} for one in what.get("containers", ())]
    template.update(what.get("pod", {}))
    for name in ("strategy", "progressDeadlineSeconds"):
        if name in what:
            made["spec"][name] = what[name]
    made["metadata"]["labels"] |= what.get("labels", {})
    if "annotations" in what:
        made["metadata"]["annotations"] = what["annotations"]
    return made


def as_queue(world: CaseWorld, what: Mapping[str, Any]) -> dict[str, Any]:
    return queue(world, spec=filled(what))


async def outcome(world: CaseWorld, document: Mapping[str, Any], step: Step) -> Any:
    """The result of one step, in the same words for both kinds of server."""
    if step.verb == "apply":
        answer = await world.port.apply(document, manager=step.manager, force=step.force)
    else:
        change = {"metadata": {"labels": document["metadata"].get("labels")}, "spec": document["spec"]}
        answer = await world.port.patch(address_of(document), change, manager=step.manager)
    return summarize(answer)


def summarize(answer: ApiObject | Denied) -> Any:
    if isinstance(answer, Denied):
        fields = {cause.field for cause in answer.causes} if answer.status == 409 else ()
        return (answer.status, sorted(fields))
    document = answer.document
    metadata = {name: value for name, value in document["metadata"].items() if name not in SERVERS_OWN}
    notes = {name: text for name, text in metadata.pop("annotations", {}).items() if name != REVISION}
    return metadata, notes, document["spec"], owners(document)


def owners(document: Mapping[str, Any]) -> Any:
    entries = {}
    for each in document["metadata"].get("managedFields", ()):
        if each["manager"] != CONTROLLER:
            fields = read(each["fieldsV1"])
            if each["operation"] == "Update":
                fields = frozenset(
                    path
                    for path in fields
                    if not any(other != path and other[: len(path)] == path for other in fields)
                )
            entries[(each["manager"], each["operation"])] = sorted(fields)
    return entries


@pytest.fixture(scope="module")
def grounds(_real_world: RealWorld) -> Iterator[tuple[RealWorld, SimulatedWorld]]:
    """One namespace on each for all examples: to make one takes longer than to write to it."""
    simulated = SimulatedWorld(1)
    _real_world.namespace = simulated.namespace = f"managers-{secrets.token_hex(3)}"
    for process_context in (_real_world, simulated):
        process_context.run_locally(process_context.make_namespace(process_context.namespace))
    yield _real_world, simulated
    _real_world.run_locally(_real_world.port.delete(ObjectAddress(NAMESPACE, None, _real_world.namespace)))
    simulated.world.close()


def compare(grounds: tuple[RealWorld, SimulatedWorld], written: list[Step], make: Any, number: int) -> None:
    observations = []
    for world in grounds:

        async def case(world: CaseWorld = world) -> list[Any]:
            documents = [make(world, step.what) for step in written]
            for document in documents:
                document["metadata"]["name"] = f"example-{number}"
            matches = [await outcome(world, *each) for each in zip(documents, written, strict=True)]
            await world.port.delete(address_of(documents[0]))
            return matches

        observations.append(world.run_locally(case()))
    for step, on_real, on_simulated in zip(written, *observations, strict=True):
        assert on_real == on_simulated, step


bounded = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # to shrink takes minutes on a real server
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
numbers = iter(range(1_000_000))


@pytest.mark.servers
@pytest.mark.kubernetes
@pytest.mark.xdist_group("kubernetes")
@bounded
@given(written=steps(deployments))
def test_a_deployment_under_many_managers(grounds: tuple[RealWorld, SimulatedWorld], written: list[Step]) -> None:
    compare(grounds, written, as_deployment, next(numbers))


@pytest.mark.servers
@pytest.mark.kubernetes
@pytest.mark.xdist_group("kubernetes")
@bounded
@given(written=steps(queues))
def test_a_queue_under_many_managers(grounds: tuple[RealWorld, SimulatedWorld], written: list[Step]) -> None:
    compare(grounds, written, as_queue, next(numbers))
