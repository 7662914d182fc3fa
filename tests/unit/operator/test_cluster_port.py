"""`cluster/api_server.py` before servers that do not behave: a value answers any fault on the wire, in time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import uvloop

from headgate.errors import InvalidRequest
from headgate.process.pacing import RateLimit
from headgate_operator.cluster import api_server as client
from headgate_operator.cluster.api_server import HttpApiClient, NoCluster
from headgate_operator.cluster.port import ApiObject, Denial, Denied, LeaderLease, ListPage
from headgate_operator.model.kinds import LEASE, QUEUE, ObjectAddress
from tests.kit.simulated_world import World

AT = ObjectAddress(QUEUE, "shop", "emails")
EMAILS = {
    "apiVersion": "headgate.io/v1beta1",
    "kind": "Queue",
    "metadata": {"namespace": "shop", "name": "emails", "uid": "u", "resourceVersion": "7"},
}

Script = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """Answers each request by its script; keeps what was asked."""

    script: Script
    asked: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines) if name}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.asked.append((first, headers, body))
                self.was_asked.set()
                await self.script(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answers(status: str, body: bytes, **headers: str) -> Script:
    """A whole answer."""

    async def script(writer: asyncio.StreamWriter) -> None:
        values = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in values.items())
        writer.write(f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body)
        await writer.drain()

    return script


def streams(*pieces: bytes, ends: str) -> Script:
    """An answer in chunks, which then ends as it should, breaks off, or stands still."""

    async def script(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if ends == "well":
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        if ends == "broken":
            writer.close()
        if ends == "still":
            await asyncio.Event().wait()

    return script


async def stands_still(_writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def kubeconfig(path: Path, port: int, host: str = "127.0.0.1") -> str:
    cluster = {"name": "c", "cluster": {"server": f"http://{host}:{port}"}}
    user = {"name": "u", "user": {"token": "secret-token"}}
    context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
    file = path / "kubeconfig"
    made = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **made}))
    return str(file)


@asynccontextmanager
async def before(script: Script, path: Path) -> AsyncIterator[tuple[HttpApiClient, Server]]:
    """A client of a server with this script."""
    server = Server(script)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = await HttpApiClient.connect(kubeconfig=kubeconfig(path, listening.sockets[0].getsockname()[1]))
    try:
        yield port, server
    finally:
        await port.close()
        listening.close()


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
loop_of_now = asyncio.new_event_loop


@pytest.fixture(autouse=True, params=LOOPS)
def on_either_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator runs on uvloop where that is installed, which has a network of its own."""
    monkeypatch.setitem(globals(), "loop_of_now", LOOPS[request.param])


def run(work: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=loop_of_now) as runner:
        return runner.run(asyncio.wait_for(work, 20))


def asked_once(script: Script, path: Path, within_s: float = 5) -> ApiObject | Denied:
    async def ask() -> ApiObject | Denied:
        async with before(script, path) as (port, _):
            return await port.get(AT, within_s=within_s)

    answer: ApiObject | Denied = run(ask())
    return answer


def test_an_apply_is_one_patch_with_all_that_it_needs(tmp_path: Path) -> None:
    async def ask() -> tuple[ApiObject | Denied, Server]:
        async with before(answers("200 OK", json.dumps(EMAILS).encode()), tmp_path) as (port, server):
            return await port.apply(EMAILS, manager="headgate", force=True, subresource="status"), server

    answer, server = run(ask())
    ((first, headers, body),) = server.asked
    path = "/apis/headgate.io/v1beta1/namespaces/shop/queues/emails/status?fieldManager=headgate&force=true"
    assert first == f"PATCH {path} HTTP/1.1"
    assert (headers["content-type"], headers["user-agent"]) == ("application/apply-patch+yaml", "headgate-operator")
    assert (headers["authorization"], json.loads(body)) == ("Bearer secret-token", EMAILS)
    assert (answer.uid, answer.version) == ("u", "7")


def test_a_name_is_one_step_of_the_path_on_the_wire_whatever_is_in_it(tmp_path: Path) -> None:
    async def ask() -> list[str]:
        async with before(answers("404 Not Found", b"{}"), tmp_path) as (port, server):
            await port.get(ObjectAddress(QUEUE, "../../../apis/apps/v1/deployments?limit=5&x=", "a%2fb#c"))
            with pytest.raises(InvalidRequest):
                await port.get(ObjectAddress(QUEUE, "..", "emails"))
            return [first for first, _, _ in server.asked]

    asked = run(ask())
    ((_, path, _),) = (first.split(" ") for first in asked)
    *_, namespace, plural, name = path.split("/")
    assert ("../../../apis/apps/v1/deployments?limit=5&x=", "queues", "a%2fb#c") == (
        unquote(namespace),
        plural,
        unquote(name),
    )
    assert (False, 7) == ("?" in path or "#" in path, path.count("/"))


def test_a_server_that_is_not_there_is_no_answer(tmp_path: Path) -> None:
    async def ask() -> ApiObject | Denied:
        listening = await asyncio.start_server(Server(stands_still).serve, "127.0.0.1", 0)
        free = listening.sockets[0].getsockname()[1]
        listening.close()
        await listening.wait_closed()
        port = await HttpApiClient.connect(kubeconfig=kubeconfig(tmp_path, free))
        answer = await port.get(AT)
        await port.close()
        return answer

    answer = run(ask())
    assert (answer.denial, answer.status) == (Denial.UNKNOWN, 0)


def test_a_server_that_stands_still_is_no_answer_after_its_time(tmp_path: Path) -> None:
    answer = asked_once(stands_still, tmp_path, within_s=0.2)
    assert isinstance(answer, Denied)
    assert (answer.denial, answer.message.endswith("no answer in 0.2 s")) == (Denial.UNKNOWN, True)


def test_an_answer_that_breaks_off_is_none(tmp_path: Path) -> None:
    answer = asked_once(streams(b'{"kind": "Queue", ', ends="broken"), tmp_path)
    assert isinstance(answer, Denied)
    assert answer.denial is Denial.UNKNOWN


def test_a_plain_refusal_under_load_states_when_to_come_again(tmp_path: Path) -> None:
    plain = answers("429 Too Many Requests", b"Too many requests, please try again later.\n", Retry_After="3")
    answer = asked_once(plain, tmp_path)
    assert isinstance(answer, Denied)
    assert (answer.denial, answer.retry_after_s) == (Denial.THROTTLED, 3.0)
    assert answer.message == "Too many requests, please try again later."


def test_the_page_of_a_proxy_is_a_failure_and_not_an_object(tmp_path: Path) -> None:
    answer = asked_once(answers("502 Bad Gateway", b"<html>bad gateway</html>", Content_Type="text/html"), tmp_path)
    assert isinstance(answer, Denied)
    assert (answer.denial, answer.status) == (Denial.BROKEN, 502)


@pytest.mark.parametrize(
    ("status", "denial"),
    [
        (400, Denial.MALFORMED),
        (401, Denial.UNAUTHORIZED),
        (403, Denial.FORBIDDEN),
        (404, Denial.NOT_FOUND),
        (409, Denial.CONFLICT),
        (410, Denial.GONE),
        (422, Denial.INVALID),
        (500, Denial.BROKEN),
        (504, Denial.BROKEN),
    ],
)
def test_each_status_has_its_denial_and_keeps_the_words(tmp_path: Path, status: int, denial: Denial) -> None:
    causes = [{"reason": "FieldValueInvalid", "field": "spec.shards", "message": "too many"}]
    values = {"kind": "Status", "code": status, "reason": "Word", "message": "words", "details": {"causes": causes}}
    answer = asked_once(answers(f"{status} X", json.dumps(values).encode()), tmp_path)
    assert isinstance(answer, Denied)
    assert (answer.denial, answer.status, str(answer)) == (denial, status, f"{status} Word: words")
    assert [(cause.field, cause.message) for cause in answer.causes] == [("spec.shards", "too many")]


def test_a_call_that_is_cancelled_frees_its_connection(tmp_path: Path) -> None:
    async def ask() -> int:
        async with before(stands_still, tmp_path) as (port, server):
            task = asyncio.create_task(port.get(AT))
            await server.was_asked.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            connector = port._api.rest_client.pool_manager.connector  # type: ignore[union-attr]
            return len(connector._acquired)  # type: ignore[union-attr]

    assert run(ask()) == 0


def test_the_way_to_the_server_is_found_once_and_not_before_each_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> ApiObject | Denied:
        async with before(answers("200 OK", json.dumps(EMAILS).encode()), tmp_path) as (port, _):
            monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
            monkeypatch.delenv("no_proxy", raising=False)
            return await port.get(AT)

    assert isinstance(run(ask()), ApiObject)


def test_a_server_behind_a_proxy_of_the_environment_is_asked_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> str:
        proxy = Server(answers("200 OK", json.dumps(EMAILS).encode()))
        listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        port = await HttpApiClient.connect(kubeconfig=kubeconfig(tmp_path, 80, "kubernetes.invalid"))
        try:
            await port.get(AT)
            access = await port.access()
        finally:
            await port.close()
            listening.close()
        assert access.proxy is not None
        return proxy.asked[0][0]

    assert run(ask()).startswith("GET http://kubernetes.invalid/apis/headgate.io/")


@pytest.mark.parametrize(
    ("server", "proxy"),
    [
        ("https://10.0.0.1:6443", "http://proxy:3128"),
        ("http://10.0.0.1", None),
        ("https://api.cluster.local", None),
        ("https://10.0.0.2", None),
    ],
    ids=["by its scheme", "of another scheme", "of a domain that is left out", "left out"],
)
def test_which_proxy_leads_to_a_server_is_reported_by_the_environment(
    server: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "cluster.local,10.0.0.2")
    assert proxy == client.proxy_to(server)


def test_a_kubeconfig_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(NoCluster) as raised:
        run(HttpApiClient.connect(kubeconfig=str(tmp_path / "none")))
    assert "--kubeconfig" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_pod_without_its_account_s_token_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(NoCluster) as raised:
        run(HttpApiClient.connect())
    assert "Service token file does not exist" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_calls_keep_a_pace_and_leases_do_not_wait_for_it(tmp_path: Path) -> None:
    async def ask() -> tuple[ListPage | Denied, LeaderLease | Denied]:
        async with before(answers("200 OK", b'{"metadata": {"resourceVersion": "1"}}'), tmp_path) as (port, _):
            port._pace = RateLimit(per_s=0.01, burst=1)
            first = await port.list(QUEUE)
            assert isinstance(first, ListPage)
            late = await port.list(QUEUE, within_s=0.1)
            lease = await port.get(ObjectAddress(LEASE, "shop", "leader"), within_s=2)
            return late, lease  # type: ignore[return-value]

    late, lease = run(ask())
    assert (late.denial, isinstance(lease, ApiObject)) == (Denial.UNKNOWN, True)


def test_a_pace_lets_a_burst_pass_and_then_one_after_the_other() -> None:
    with World() as world:

        async def passed() -> list[float]:
            pace = RateLimit(per_s=10, burst=3)
            times = []
            for _ in range(6):
                await pace.turn()
                times.append(round(world.now_s(), 3))
            return times

        assert world.run(passed()) == [0.0, 0.0, 0.0, 0.1, 0.2, 0.3]
