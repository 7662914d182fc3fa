"""/why and /plan for tenants: by a token that the cluster knows and rights that it grants, over TLS, and for nobody
else."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

from dev.servers.cassandra.tls import PASSWORD, write_certificates
from headgate.errors import HeadgateError, InvalidRequest
from headgate_operator.cli.kubectl import Kubectl
from headgate_operator.cli.leader_client import LeaderClient
from headgate_operator.cluster.port import Denied
from headgate_operator.cluster.requests import ApiRequest, ApiResponse, ClusterPort, no_answer
from headgate_operator.model.names import Key
from headgate_operator.process import inspection_login
from headgate_operator.process.inspection import InspectionAccess, inspection_server
from headgate_operator.process.inspection_login import WAITING_MAX, Login
from headgate_operator.process.serving_certificate import CertificateInvalid, ServingCertificate

EVIL = "system:serviceaccount:evil:default"
USERS = {"of-shop": "shop-reader", "of-shop-writer": "shop-writer", "of-evil": EVIL}
RIGHTS = {
    ("shop-reader", "get", "queues", "shop", "emails"),
    ("shop-reader", "list", "queues", "shop", ""),
    ("shop-reader", "list", "counters", "shop", ""),
    ("shop-writer", "get", "queues", "shop", "emails"),
    ("shop-writer", "create", "queues", "shop", ""),
    (EVIL, "get", "queues", "evil", "emails"),
    (EVIL, "create", "queues", "evil", ""),
}
QUEUE: dict[str, Any] = {
    "apiVersion": "headgate.io/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "emails", "namespace": "shop"},
    "spec": {},
}


class Reviewer(ClusterPort):
    """An API server that reviews, by the tables above."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.silent = False
        self.hangs = False

    async def send(self, request: ApiRequest, within_s: float) -> ApiResponse | Denied:
        assert (request.verb, request.namespace, request.name) == ("create", None, None)
        assert request.body is not None
        self.asked.append(request.body)
        if self.hangs:
            await asyncio.Event().wait()
        if self.silent:
            return no_answer("nothing")
        spec = request.body["spec"]
        if (request.kind.api_version, request.kind.plural) == ("authentication.k8s.io/v1", "tokenreviews"):
            name = USERS.get(spec["token"])
            user = {"username": name, "groups": ["g"], "uid": "u", "extra": {"e": ["x"]}}
            return ApiResponse(201, {"status": {"authenticated": True, "user": user} if name else {}})
        assert (request.kind.api_version, request.kind.plural) == ("authorization.k8s.io/v1", "subjectaccessreviews")
        of = spec["resourceAttributes"]
        right = (spec["user"], of["verb"], of["resource"], of["namespace"], of["name"])
        assert (spec["groups"], spec["uid"], spec["extra"]) == (["g"], "u", {"e": ["x"]})
        return ApiResponse(201, {"status": {"allowed": right in RIGHTS}})

    async def close(self) -> None: ...


class Operator:
    """What it would answer, and how often it was asked."""

    def __init__(self) -> None:
        self.reviewer = Reviewer()
        self.keys: list[Key] = []
        self.leads = True
        self.port = 0

    def why(self, key: Key) -> list[dict[str, Any]]:
        self.keys.append(key)
        return []

    async def plan(self, key: Key, document: Mapping[str, Any] | None) -> Mapping[str, Any]:
        self.keys.append(key)
        return {"effects": []}

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server's, as a Secret mounts them, beside the authority's."""
    made = tmp_path_factory.mktemp("made")
    write_certificates(made, ("ip:127.0.0.1",))
    key, certificate, _ = load_key_and_certificates((made / "server.p12").read_bytes(), PASSWORD.encode())
    assert key is not None
    assert certificate is not None
    folder = tmp_path_factory.mktemp("mounted")
    (folder / "ca.crt").write_bytes((made / "ca.crt").read_bytes())
    (folder / "tls.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    (folder / "tls.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    sealed = BestAvailableEncryption(b"secret")
    (folder / "sealed.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed))
    return folder


def served(certificates: Path, work: Callable[[Operator, aiohttp.ClientSession], Coroutine[Any, Any, Any]]) -> Any:
    """The result of the work of a tenant that trusts the authority."""

    async def run() -> Any:
        operator = Operator()
        access = InspectionAccess(
            Login(operator.reviewer), ServingCertificate(certificates).context, lambda: operator.leads
        )
        server = inspection_server(operator.why, operator.plan, lambda: "pod-1", access=access)
        await server.open("127.0.0.1", 0)
        operator.port = server.port
        trusted = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
        connector = aiohttp.TCPConnector(ssl=trusted)
        try:
            async with aiohttp.ClientSession(connector=connector) as session:
                return await work(operator, session)
        finally:
            await server.close()

    return asyncio.run(run())


def headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"Authorization": f"Bearer {token}"}


def answers(
    certificates: Path, token: str | None, *requests: tuple[str, Any], leads: bool = True
) -> tuple[list[int], list[Key]]:
    """The statuses of GETs, and of POSTs where there is a document; and what the operator was asked for."""

    async def work(operator: Operator, session: aiohttp.ClientSession) -> Any:
        operator.leads = leads
        statuses = []
        for path, document in requests:
            verb = "GET" if document is None else "POST"
            data = None if document is None else json.dumps(document)
            async with session.request(verb, operator.url + path, data=data, headers=headers(token)) as answer:
                statuses.append(answer.status)
                assert isinstance(await answer.json(), dict)
        return statuses, operator.keys

    result: tuple[list[int], list[Key]] = served(certificates, work)
    return result


READS = (("/why/queue/shop/emails", None), ("/plan/queue/shop/emails", None), ("/why/namespace/shop/shop", None))


@pytest.mark.parametrize("token", [None, "", "forged"])
def test_a_stranger_learns_nothing(certificates: Path, token: str | None) -> None:
    assert ([401] * 4, []) == answers(certificates, token, *READS, ("/plan", QUEUE))


def test_a_tenant_learns_nothing_of_another_one(certificates: Path) -> None:
    assert ([403] * 4, []) == answers(certificates, "of-evil", *READS, ("/plan", QUEUE))


def test_a_tenant_reads_its_own_by_the_rights_that_it_has(certificates: Path) -> None:
    statuses, keys = answers(certificates, "of-shop", *READS, ("/plan", QUEUE), ("/why/queue/shop/other", None))
    assert [200, 200, 200, 403, 403] == statuses
    assert ["queue/shop/emails", "queue/shop/emails", "namespace/shop/shop"] == [key.path for key in keys]
    statuses, keys = answers(certificates, "of-shop-writer", ("/plan", QUEUE))
    assert ([200], ["queue/shop/emails"]) == (statuses, [key.path for key in keys])


def test_a_plan_probes_no_secret_that_its_author_may_not_read(certificates: Path) -> None:
    probing = {**QUEUE, "spec": {"storage": {"connectionSecret": "of-somebody"}}}
    assert ([403], []) == answers(certificates, "of-shop-writer", ("/plan", probing))


def test_names_that_lead_elsewhere_are_refused_also_with_a_token(certificates: Path) -> None:
    hostile = {**QUEUE, "metadata": {"name": "emails", "namespace": "../../../apis/apps/v1/deployments?x="}}
    requests = (("/plan", hostile), ("/why/queue/shop%2F../emails", None))
    assert ([400, 404], []) == answers(certificates, "of-evil", *requests)


def test_the_body_of_a_stranger_is_not_read(certificates: Path) -> None:
    async def work(operator: Operator, session: aiohttp.ClientSession) -> Any:
        async with session.post(f"{operator.url}/plan", data=b"no json at all") as answer:
            return answer.status

    assert 401 == served(certificates, work)


def test_a_standby_answers_nothing_but_that_it_stands_by(certificates: Path) -> None:
    assert ([503], []) == answers(certificates, "of-shop", READS[0], leads=False)
    assert ([401], []) == answers(certificates, None, READS[0], leads=False)


def test_an_api_server_that_does_not_review_lets_nobody_in(certificates: Path) -> None:
    async def work(operator: Operator, session: aiohttp.ClientSession) -> Any:
        operator.reviewer.silent = True
        async with session.get(f"{operator.url}{READS[0][0]}", headers=headers("of-shop")) as answer:
            return answer.status, operator.keys

    assert (503, []) == served(certificates, work)


def test_many_callers_cost_the_api_server_no_more_than_a_few_reviews(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection_login, "WITHIN_S", 1.0)

    async def work(operator: Operator, session: aiohttp.ClientSession) -> Any:
        operator.reviewer.hangs = True

        async def ask() -> int:
            async with session.get(f"{operator.url}{READS[0][0]}", headers=headers("forged")) as answer:
                return answer.status

        statuses = await asyncio.gather(*(ask() for _ in range(5 * WAITING_MAX)))
        return set(statuses), len(operator.reviewer.asked)

    statuses, reviews = served(certificates, work)
    assert {503} == statuses
    assert reviews <= inspection_login.BURST + 2 * inspection_login.PER_S * 5


def test_it_speaks_nothing_but_tls(certificates: Path) -> None:
    async def work(operator: Operator, session: aiohttp.ClientSession) -> None:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{operator.port}/why/queue/shop/emails", headers=headers("of-shop"))

    served(certificates, work)


def test_a_certificate_that_cannot_be_used_is_one_line_and_never_a_question(
    certificates: Path, tmp_path: Path
) -> None:
    (tmp_path / "tls.crt").write_bytes((certificates / "tls.crt").read_bytes())
    for key in (None, b"", (certificates / "sealed.key").read_bytes()):
        if key is not None:
            (tmp_path / "tls.key").write_bytes(key)
        with pytest.raises(CertificateInvalid) as refused:
            ServingCertificate(tmp_path)
        assert 1 == len(str(refused.value).splitlines())


def test_the_command_sends_its_token_by_tls_only_and_finds_the_leader(certificates: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("of-shop\n")

    async def work(operator: Operator, _: aiohttp.ClientSession) -> Any:
        def client(address: str, **more: Any) -> LeaderClient:
            return LeaderClient(Kubectl(), address=address, authority=certificates / "ca.crt", **more)

        answer = await asyncio.to_thread(client(operator.url, token=token).ask, READS[0][0])
        with pytest.raises(HeadgateError, match="no token that the cluster knows"):
            await asyncio.to_thread(client(operator.url).ask, READS[0][0])
        with pytest.raises(InvalidRequest, match="https:// addresses only"):
            client("http://127.0.0.1:1", token=token).ask(READS[0][0])
        operator.leads = False
        with pytest.raises(HeadgateError, match="stands by"):
            await asyncio.to_thread(client(operator.url, token=token).ask, READS[0][0])
        return answer["leader"]

    assert "pod-1" == served(certificates, work)
