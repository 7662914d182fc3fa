"""The actions of people and strangers in a cluster, and the faults, drawn from the seed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from headgate_operator.cluster.requests import ApiRequest
from headgate_operator.model.kinds import (
    COUNTER,
    CRON_JOB,
    DEPLOYMENT,
    NAMESPACE,
    POD_DISRUPTION_BUDGET,
    QUEUE,
    ResourceKind,
)
from headgate_operator.model.kinds import SERVICE_ACCOUNT as ACCOUNT
from tests.kit.simulated_cluster.faults import ApiFault, Wrong
from tests.kit.simulated_world import ProcessState
from tests.simulation.operator.operator_plan import Plan
from tests.simulation.operator.operator_scene import Running, Scene

SHOP = "shop"
ANNEX = "annex"
"""A second namespace, which may end."""

Act = Callable[[], object]


class Storm:
    """The people, the strangers and the faults of one life."""

    def __init__(self, scene: Scene, plan: Plan) -> None:
        self.scene = scene
        self.plan = plan
        self.rng = scene.world.rng("storm")
        self.over = False
        self._doomed: list[Running] = []
        if plan.has("namespace ends"):
            scene.make_namespace(ANNEX)

    def restart_after_s(self) -> float:
        """How soon a dead operator is started again."""
        return 1.0 if self.over else self.rng.uniform(0.2, 5.0)

    async def rage(self, until_s: float) -> None:
        """Everything that may happen, some at once, until a given time."""
        await asyncio.sleep(self.rng.uniform(0, 1))
        self._make_all()
        acts = [*self._people(), *self._strangers(), *self._faults()]
        while self.scene.world.now_s() < until_s:
            await asyncio.sleep(self.rng.expovariate(1 / self.plan.acts_every_s))
            if acts:
                self.rng.choice(acts)()

    def heal(self) -> None:
        """End all faults, and let people decide how they want it in the end."""
        self.over = True
        scene = self.scene
        scene.api.faults.calm()
        scene.world.network.calm()
        for name, node in scene.ring.nodes.items():
            scene.ring.go_on(name)
            if node.process.state is ProcessState.DEAD:
                scene.ring.restart(name)
        for one in self._doomed:  # whose step has not come yet
            one.process.kill()
        for one in scene.operators:
            one.process.resume()
            one.process.clock.step(-one.process.clock.error_s())
        scene.api.process.resume()
        for document in scene.all(QUEUE):
            if document["spec"].get("paused"):
                self._patch(document, {"spec": {"paused": False}})

    # ---- people

    def _make_all(self) -> None:
        for number in range(self.plan.queues):
            self._make(f"q{number}")
        if self.plan.has("counters"):
            self._make_counter()
        if self.plan.has("namespace ends"):
            self._make("q0", namespace=ANNEX)

    def _people(self) -> list[Act]:
        def pick() -> dict[str, Any] | None:
            queues = [each for each in self.scene.all(QUEUE) if not each["metadata"].get("deletionTimestamp")]
            return self.rng.choice(queues) if queues else None

        def of_one(act: Callable[[dict[str, Any]], object]) -> Act:
            def do() -> object:
                result = pick()
                return None if result is None else act(result)

            return do

        plan, acts = self.plan, list[Act]()
        if plan.has("edits"):
            acts += [of_one(self._edit)] * 2
        if plan.has("reshards"):
            acts.append(of_one(lambda each: self._patch(each, {"spec": {"shards": self.rng.choice((1, 2, 3))}})))
        if plan.has("pauses"):
            acts.append(of_one(lambda each: self._patch(each, {"spec": {"paused": self.rng.random() < 0.5}})))
        if plan.has("policies"):
            policy = self.rng.choice
            acts.append(of_one(lambda each: self._patch(each, {"spec": {"deletionPolicy": policy(POLICIES)}})))
        if plan.has("deletes"):
            acts.append(of_one(self._delete))
        if plan.has("recreations"):
            acts.append(lambda: self._make(f"q{self.rng.randrange(plan.queues)}"))
        if plan.has("namespace ends"):
            acts.append(self._end_namespace)
        return acts

    def _make(self, name: str, namespace: str = SHOP) -> None:
        if self.scene.find(QUEUE, namespace, name) is not None or self._terminates(namespace):
            return
        spec: dict[str, Any] = {"shards": self.rng.choice((1, 2)), "consumers": [self._consumer()]}
        if self.plan.has("shared"):
            spec["storage"] = {"tables": "shared"}
        if self.plan.has("policies"):
            spec["deletionPolicy"] = self.rng.choice(POLICIES)
        if self.plan.has("dead letters"):
            spec["deadLetter"] = f"q{self.rng.randrange(3)}"
        if self.plan.has("wrong specs") and self.rng.random() < 0.3:
            spec["engine"] = "bucket"
        if spec.get("deadLetter") == name:
            del spec["deadLetter"]
        self._apply("Queue", name, namespace, spec)

    def _make_counter(self) -> None:
        storage = {"storage": {"tables": "shared"}} if self.plan.has("shared") else {}
        self._apply("Counter", "views", SHOP, {"type": "sum", **storage})

    def _consumer(self) -> dict[str, Any]:
        consumer: dict[str, Any] = {"name": "mailer", "image": "mailer:1", "handler": "mailer:send"}
        if self.plan.has("external") and self.rng.random() < 0.5:
            return {**consumer, "scaling": {"mode": "external"}}
        if self.plan.has("scaling"):
            return {**consumer, "scaling": {"min": self.rng.choice((0, 0, 1)), "max": 3}}
        return consumer

    def _edit(self, queue: dict[str, Any]) -> None:
        choices: list[dict[str, Any]] = [
            {"spec": {"maxReceives": self.rng.randint(1, 9)}},
            {"spec": {"consumers": [self._consumer()]}},
            {"spec": {"consumers": None}},
            {"spec": {"repair": {"schedule": self.rng.choice(("*/5 * * * *", "*/10 * * * *"))}}},
            {"metadata": {"labels": {"touched": str(self.rng.randrange(100))}}},
        ]
        self._patch(queue, self.rng.choice(choices))

    def _delete(self, queue: dict[str, Any]) -> None:
        metadata = queue["metadata"]
        self.scene.delete(QUEUE, metadata["namespace"], metadata["name"])

    def _end_namespace(self) -> None:
        if self.scene.find(NAMESPACE, None, ANNEX) is not None and not self._terminates(ANNEX):
            self.scene.delete(NAMESPACE, None, ANNEX)

    def _terminates(self, namespace: str) -> bool:
        result = self.scene.find(NAMESPACE, None, namespace)
        return result is None or bool(result["metadata"].get("deletionTimestamp"))

    def _apply(self, kind: str, name: str, namespace: str, spec: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": namespace}
        document = {"apiVersion": "headgate.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}
        self.scene.world.history.note("person", "applies", kind, name, spec)
        self.scene.try_to_apply(document)

    def _patch(self, document: dict[str, Any], change: dict[str, Any]) -> None:
        """Patches a resource; a refusal by the server is fine."""
        metadata = document["metadata"]
        self.scene.world.history.note("person", "patches", metadata["name"], change)
        query = {"fieldManager": "kubectl"}
        request = ApiRequest("patch", QUEUE, metadata["namespace"], metadata["name"], query=query, body=change)
        self.scene.api.server.answer(request)

    # ---- strangers

    def _strangers(self) -> list[Act]:
        if not self.plan.has("strangers"):
            return []
        return [self._edit_child, self._delete_child]

    def _children(self) -> list[tuple[ResourceKind, dict[str, Any]]]:
        kinds = (DEPLOYMENT, CRON_JOB, ACCOUNT, POD_DISRUPTION_BUDGET)
        return [(kind, each) for kind in kinds for each in self.scene.all(kind, SHOP) if _is_ours(each)]

    def _edit_child(self) -> None:
        matches = [each for kind, each in self._children() if kind is DEPLOYMENT]
        if matches:
            child = self.rng.choice(matches)
            change = self.rng.choice(
                (
                    {"spec": {"replicas": self.rng.randint(0, 5)}},
                    {"spec": {"minReadySeconds": 7}},
                    {"metadata": {"labels": {"app.kubernetes.io/managed-by": "stranger"}}},
                    {"spec": {"template": {"metadata": {"annotations": {"stranger": "was here"}}}}},
                )
            )
            self.scene.world.history.note("stranger", "edits", child["metadata"]["name"], change)
            self.scene.patch(DEPLOYMENT, SHOP, child["metadata"]["name"], change)

    def _delete_child(self) -> None:
        result = self._children()
        if result:
            kind, child = self.rng.choice(result)
            self.scene.world.history.note("stranger", "deletes", kind.kind, child["metadata"]["name"])
            self.scene.delete(kind, SHOP, child["metadata"]["name"])

    # ---- faults

    def _faults(self) -> list[Act]:
        server, rng = self.scene.api.faults, self.rng

        def order(wrong: Wrong, most: int = 3) -> Act:
            return lambda: server.order(ApiFault(wrong, left=rng.randint(1, most)))

        acts: dict[str, list[Act]] = {
            "killed operators": [self._kill, self._kill_in_a_step],
            "paused operators": [self._pause],
            "lost answers": [order(Wrong.UNANSWERED), order(Wrong.UNHEARD)],
            "conflicts": [order(Wrong.CONFLICT)],
            "throttling": [order(Wrong.THROTTLED, 8)],
            "broken server": [order(Wrong.BROKEN), order(Wrong.BROKEN_AFTER)],
            "compacted watches": [self.scene.api.server.compact],
            "late events": [lambda: self._network("delay", by_s=rng.choice((0.5, 5.0, 20.0)), count=3)],
            "cut from the API": [self._cut_from_api],
            "cut from Cassandra": [self._cut_from_cassandra],
            "killed replicas": [self._kill_replica],
            "lost messages": [lambda: self._network("lose", count=rng.randint(1, 3))],
            "stepped clocks": [self._step_clock],
        }
        return [act for name, some in acts.items() if self.plan.has(name) for act in some]

    def _network(self, what: str, **how: Any) -> None:
        getattr(self.scene.world.network, what)("api event", **how)

    def _running(self) -> Running | None:
        alive = [one for one in self.scene.operators if one.process.state is ProcessState.RUNNING]
        return self.rng.choice(alive) if alive else None

    def _kill(self) -> None:
        one = self._running()
        if one is not None:
            one.process.kill()

    def _kill_in_a_step(self) -> None:
        one = self._running()
        if one is not None:
            self._doomed.append(one)
            one.process.kill_before_step(self.rng.randint(1, 400))

    def _pause(self) -> None:
        one = self._running()
        if one is not None:
            one.process.pause(for_s=self.rng.choice((0.5, 5.0, 30.0)))

    def _cut_from_api(self) -> None:
        one = self._running()
        if one is not None:
            self._cut(one.process.name, [self.scene.api.process.name], self.rng.choice((2.0, 15.0, 60.0)))

    def _cut_from_cassandra(self) -> None:
        one = self._running()
        if one is not None:
            nodes = list(self.scene.ring.nodes)
            self._cut(one.process.name, nodes, self.rng.choice((2.0, 15.0, 60.0)))

    def _cut(self, name: str, others: list[str], for_s: float) -> None:
        network = self.scene.world.network
        network.cut(name, others)
        self.scene.world.outside(for_s, lambda: network.heal(name, others))

    def _kill_replica(self) -> None:
        running = [name for name, node in self.scene.ring.nodes.items() if node.process.state is ProcessState.RUNNING]
        if len(running) > 1:
            name = self.rng.choice(running)
            self.scene.ring.kill(name)
            self.scene.world.outside(self.rng.uniform(1, 20), lambda: self._restart(name))

    def _restart(self, name: str) -> None:
        if self.scene.ring.nodes[name].process.state is ProcessState.DEAD:
            self.scene.ring.restart(name)

    def _step_clock(self) -> None:
        one = self._running()
        if one is not None:
            one.process.clock.step(self.rng.uniform(-3, 3))


POLICIES = ("Retain", "Delete")


def _is_ours(document: dict[str, Any]) -> bool:
    return (document["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "headgate"


__all__ = ["COUNTER", "Storm"]
