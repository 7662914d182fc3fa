"""The surroundings of a contract case: a port, a namespace of its own, and ways to make things fail."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import yaml
from kubernetes.aio.dynamic import DynamicClient
from kubernetes.aio.dynamic.exceptions import DynamicApiError

from dev.cluster.kubectl import Kubectl
from headgate_operator.cluster.api_server import HttpApiClient
from headgate_operator.cluster.port import ApiObject, Deleted, Denied, ListPage
from headgate_operator.cluster.requests import ApiResponse, ClusterPort, as_denied
from headgate_operator.model.kinds import (
    CONFIG_MAP,
    NAMESPACE,
    QUEUE,
    Document,
    ObjectAddress,
    ResourceKind,
    address_of,
)
from tests.kit.simulated_cluster.api import SimulatedApi
from tests.kit.simulated_cluster.client import SimulatedCluster
from tests.kit.simulated_cluster.faults import ApiFault, Wrong
from tests.kit.simulated_cluster.watching import WatchEvent, WatchRequest, read_events
from tests.kit.simulated_world import World

Events = AsyncIterator[WatchEvent | Denied]
T = TypeVar("T")

COLLECTS_WITHIN_S = 120.0

JAILED = "headgate-contract-jailed"
JAIL = [
    {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": JAILED},
        "spec": {
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 0,
                "lendablePercent": 0,
                "borrowingLimitPercent": 0,
                "limitResponse": {"type": "Reject"},
            },
        },
    },
    {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": JAILED},
        "spec": {
            "matchingPrecedence": 2,
            "priorityLevelConfiguration": {"name": JAILED},
            "rules": [
                {
                    "subjects": [{"kind": "User", "user": {"name": JAILED}}],
                    "resourceRules": [
                        {
                            "verbs": ["*"],
                            "apiGroups": ["*"],
                            "resources": ["*"],
                            "clusterScope": True,
                            "namespaces": ["*"],
                        }
                    ],
                }
            ],
        },
    },
]
"""A user without a seat in the server, which serves one of its requests at a time and refuses the others."""


class CaseWorld(ABC):
    """Where a case runs."""

    port: ClusterPort
    namespace: str

    @abstractmethod
    def run(self, case: Coroutine[Any, Any, T]) -> T:
        """Run a case to its end."""

    @abstractmethod
    def run_locally(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something, and make no namespace for it."""

    @abstractmethod
    async def collects(self) -> None:
        """Return when the cluster's collector of garbage knows our kinds."""

    @abstractmethod
    def follow(self, request: WatchRequest) -> AsyncIterator[Document | Denied]:
        """The answers to a watch, as the server sends them. The operator's watches are kopf's, and the simulation's
        have to begin with the same answers."""

    def watch(
        self, kind: ResourceKind, *, version: str = "", labels: str = "", fields: str = "", within_s: float = 20
    ) -> Events:
        """The events of a kind in the case's namespace."""
        return read_events(self.follow(WatchRequest(kind, self.namespace, version, labels, fields, within_s)))

    @abstractmethod
    def unanswered(self) -> AbstractAsyncContextManager[ClusterPort]:
        """A port whose requests arrive, and whose answers do not."""

    @abstractmethod
    def throttled(self) -> AbstractAsyncContextManager[ClusterPort]:
        """A port of a user without rights, which gets a 429 when it sends many requests at once."""

    async def until(self, ask: Callable[[], Awaitable[T | None]], within_s: float = 30) -> T:
        """The answer, once there is one."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while True:
            result = await ask()
            if result is not None:
                return result
            assert loop.time() < end, "it never came"
            await asyncio.sleep(0.05)

    async def gone(self, at: ObjectAddress) -> bool:
        """True once an object is not there."""
        return await self.until(partial(self._is_gone, at))

    async def _is_gone(self, at: ObjectAddress) -> bool | None:
        return True if isinstance(await self.port.get(at), Denied) else None

    async def make_namespace(self, name: str) -> ApiObject:
        """A namespace."""
        document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        return applied(await self.port.apply(document, manager="contract"))


class SimulatedWorld(CaseWorld):
    """The simulation, one for each case."""

    namespace = "contract"

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.api = SimulatedApi(self.world)
        self.process = self.world.process("client")
        self.port = SimulatedCluster(self.api, self.process)

    def run(self, case: Coroutine[Any, Any, T]) -> T:
        """In virtual time."""

        async def whole() -> T:
            await self.make_namespace(self.namespace)
            return await case

        return self.world.run(whole())

    def run_locally(self, work: Coroutine[Any, Any, T]) -> T:
        """In virtual time."""
        return self.world.run(work)

    async def collects(self) -> None:
        """From the start."""

    def follow(self, request: WatchRequest) -> AsyncIterator[Document | Denied]:
        """Over the simulated network."""
        return SimulatedCluster(self.api, self.process).follow(request)

    @asynccontextmanager
    async def unanswered(self) -> AsyncIterator[ClusterPort]:
        """Each answer is lost."""
        process = self.world.process("unheard")
        self.api.faults.order(ApiFault(Wrong.UNANSWERED, source="unheard", left=1_000))
        yield SimulatedCluster(self.api, process)

    @asynccontextmanager
    async def throttled(self) -> AsyncIterator[ClusterPort]:
        """Each request is refused."""
        process = self.world.process("jailed")
        self.api.faults.order(ApiFault(Wrong.THROTTLED, source="jailed", left=1_000))
        yield SimulatedCluster(self.api, process)


class RealWorld(CaseWorld):
    """A real API server; each case in a namespace of its own."""

    def __init__(self, runner: asyncio.Runner, kubectl: Kubectl) -> None:
        self._runner = runner
        self._kubectl = kubectl
        self._first: ObjectAddress | None = None
        self._client = runner.run(self._connect(kubectl.kubeconfig))
        self.port = self._client

    async def _connect(self, kubeconfig: str) -> HttpApiClient:
        return await HttpApiClient.connect(kubeconfig=kubeconfig, context=self._kubectl.context)

    def run(self, case: Coroutine[Any, Any, T]) -> T:
        """In a namespace that goes afterwards."""

        async def whole() -> T:
            await self.make_namespace(self.namespace)
            try:
                return await case
            finally:
                await self._let_go()
                await self.port.delete(ObjectAddress(NAMESPACE, None, self.namespace))

        return self._runner.run(whole())

    async def begin_collecting(self, owner: Document, child: Document) -> None:
        """Have the cluster's collector collect a child of our kinds: it searches for new ones every thirty seconds,
        and what goes before is collected at some later try. An owner deleted in the foreground goes by it alone.
        """
        await self.make_namespace(self.namespace)
        made = applied(await self.port.apply(owner, manager="contract"))
        reference = {name: made.document[name] for name in ("apiVersion", "kind")}
        reference |= {"name": made.document["metadata"]["name"], "uid": made.uid, "blockOwnerDeletion": True}
        child = {**child, "metadata": {**child["metadata"], "ownerReferences": [reference]}}
        applied(await self.port.apply(child, manager="contract"))
        self._first = address_of(made.document)
        deleted(await self.port.delete(self._first, propagation="Foreground"))

    async def collects(self) -> None:
        """Once: until it was seen to."""
        if self._first is not None:
            await self.until(partial(self._is_gone, self._first), COLLECTS_WITHIN_S)
            await self.port.delete(ObjectAddress(NAMESPACE, None, str(self._first.namespace)))
            self._first = None

    async def follow(self, request: WatchRequest) -> AsyncIterator[Document | Denied]:
        """By the client's own stream, line by line."""
        kind = request.kind
        place = f"/namespaces/{request.namespace}" if kind.namespaced else ""
        path = f"/{'apis' if kind.group else 'api'}/{kind.api_version}{place}/{kind.plural}"
        try:
            response = await DynamicClient(self._client._api).request(  # type: ignore[no-untyped-call]
                "get",
                path,
                query_params=list(request.query.items()),
                serialize=False,
                _request_timeout=request.within_s + 10,
            )
        except DynamicApiError as refused:
            yield as_denied(ApiResponse(refused.status, {"message": refused.body}))
            return
        try:
            async for line in response.content:
                yield json.loads(line)
        finally:
            response.close()

    async def _let_go(self) -> None:
        """Take off the finalizers that a case has left: nobody else would, and what they hold would stay for ever."""
        for kind in (QUEUE, CONFIG_MAP):
            for one in page(await self.port.list(kind, self.namespace, metadata_only=True)).items:
                if one["metadata"].get("finalizers"):
                    at = ObjectAddress(kind, self.namespace, str(one["metadata"]["name"]))
                    await self.port.patch(at, {"metadata": {"finalizers": None}}, manager="contract")

    def run_locally(self, work: Coroutine[Any, Any, T]) -> T:
        """On the loop of all cases."""
        return self._runner.run(work)

    @asynccontextmanager
    async def unanswered(self) -> AsyncIterator[ClusterPort]:
        """Through a relay that carries requests, and of the answers only the handshake's."""
        relay = _Relay(self._kubectl.kubeconfig)
        async with relay.open() as kubeconfig:
            port = await self._connect(kubeconfig)
            applied(
                await port.get(ObjectAddress(NAMESPACE, None, "default"))
            )  # the connection is kept and used again
            relay.is_mute = True
            yield port
            await port.close()

    @asynccontextmanager
    async def throttled(self) -> AsyncIterator[ClusterPort]:
        """The port of a user without a seat and without rights."""
        self._kubectl.apply(*JAIL)
        port = await self._connect(self._kubectl.kubeconfig)
        port._api.set_default_header("Impersonate-User", JAILED)  # type: ignore[no-untyped-call]

        try:
            yield port
        finally:
            await port.close()
            for one in reversed(JAIL):
                self._kubectl.delete(str(one["kind"]), JAILED)

    def openapi(self) -> dict[str, Any]:
        """The server's report of all of its kinds."""
        entries: dict[str, Any] = json.loads(self._kubectl.run("get", "--raw", "/openapi/v2"))
        return entries

    async def close(self) -> None:
        """End it."""
        await self.port.close()


class _Relay:
    """Carries bytes to the API server and back, until it is mute: then what comes back is swallowed."""

    def __init__(self, kubeconfig: str) -> None:
        with open(kubeconfig, encoding="utf-8") as file:  # noqa: PTH123 - once, before the loop serves anything
            self._settings = yaml.safe_load(file)
        self.is_mute = False
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        import tempfile

        cluster = self._settings["clusters"][0]["cluster"]
        host, _, port = cluster["server"].removeprefix("https://").partition(":")

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            answers, requests = await asyncio.open_connection(host, int(port))
            self._tasks |= {
                asyncio.create_task(self._carry(reader, requests, mutes=False)),
                asyncio.create_task(self._carry(answers, writer, mutes=True)),
            }

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        cluster["server"] = f"https://{host}:{server.sockets[0].getsockname()[1]}"
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(self._settings, file)
            file.flush()
            yield file.name
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, mutes: bool) -> None:
        try:
            while piece := await source.read(65_536):
                if not (mutes and self.is_mute):
                    target.write(piece)
                    await target.drain()
        finally:
            target.close()


# ---- answers, as a case expects them


def applied(answer: ApiObject | Denied) -> ApiObject:
    """It was done."""
    assert isinstance(answer, ApiObject), str(answer)
    return answer


def denied(answer: object) -> Denied:
    """It was not done."""
    assert isinstance(answer, Denied), str(answer)
    return answer


def deleted(answer: Deleted | Denied) -> Deleted:
    """It was ordered."""
    assert isinstance(answer, Deleted), str(answer)
    return answer


def page(answer: ListPage | Denied) -> ListPage:
    """A list."""
    assert isinstance(answer, ListPage), str(answer)
    return answer
