"""/why and /plan: on loopback alone, for names that a resource can have, and for documents that one can be."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, cast

import aiohttp
import pytest
from click.testing import CliRunner

from headgate.api.read.parse import check_resource
from headgate.api.rules.bounds import SPEC_BYTES_MAX
from headgate.errors import InvalidRequest, Unavailable
from headgate.process.http_server import HttpServer, probe_routes
from headgate.telemetry.metrics import Registry
from headgate_operator.cluster.requests import escape_step
from headgate_operator.model.names import Key
from headgate_operator.process import main as process
from headgate_operator.process.inspection import BODY_MAX, inspection_server, key_of, key_of_document

ELSEWHERE = (
    "../../../apis/apps/v1/deployments?limit=500&x=", "a/../../b?x=", "..", ".", "shop%2F..", "Shop", "shop mail",
    "shop.mail", "", "a" * 64, "shöp", "shop\n",
)  # fmt: skip
"""No namespaces."""


class Asked:
    """The requests to the operator."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self.documents: list[Any] = []

    def why(self, key: Key) -> list[dict[str, Any]]:
        self.keys.append(key)
        return []

    async def plan(self, key: Key, document: Mapping[str, Any] | None) -> Mapping[str, Any]:
        self.keys.append(key)
        self.documents.append(document)
        if key.name == "unreadable":
            raise Unavailable("Cassandra does not answer")
        return {"effects": []}


def served(work: Callable[[str, Asked], Coroutine[Any, Any, Any]]) -> Any:
    """The result of a request to a server."""

    async def run() -> Any:
        asked = Asked()
        server = inspection_server(asked.why, asked.plan, lambda: "me")
        await server.open("127.0.0.1", 0)
        try:
            return await work(f"http://127.0.0.1:{server.port}", asked)
        finally:
            await server.close()

    return asyncio.run(run())


def posted(body: bytes) -> tuple[int, dict[str, Any], Asked]:
    async def work(url: str, asked: Asked) -> Any:
        async with aiohttp.ClientSession() as session, session.post(f"{url}/plan", data=body) as answer:
            return answer.status, await answer.json(), asked

    return cast(tuple[int, dict[str, Any], Asked], served(work))


def queue(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headgate.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "emails", "namespace": "shop", **metadata},
        "spec": {},
    }


def test_they_listen_on_loopback_unless_another_address_is_given() -> None:
    def given(*arguments: str) -> Any:
        context = process.main.make_context("headgate-operator", list(arguments))
        return process.given_by({"health": "off", "pull_secrets": (), **context.params})

    def addresses(options: Any) -> Any:
        return options.inspection.loopback, options.inspection.with_login

    assert (("127.0.0.1", 9092), None) == addresses(given())
    assert ("127.0.0.1", 7000) == given("--inspection", "7000").inspection.loopback
    assert ("::1", 7000) == given("--inspection", "[::1]:7000").inspection.loopback
    assert given("--inspection", "off").inspection.loopback is None
    assert ("0.0.0.0", 9093) == given("--inspection-login", "9093").inspection.with_login  # noqa: S104 - not opened
    for elsewhere in ("0.0.0.0:7000", "10.0.0.1:7000", "[::]:7000", "headgate-operator:7000"):
        with pytest.raises(InvalidRequest, match="takes a loopback address only"):
            given("--inspection", elsewhere)
    assert "127.0.0.1:9092" in CliRunner().invoke(process.main, ["--help"]).output


@pytest.mark.parametrize("path", ["/why/queue/shop/emails", "/plan/queue/shop/emails", "/plan"])
def test_the_port_of_probes_does_not_answer_them(path: str) -> None:
    async def work() -> list[int]:
        server = HttpServer(probe_routes(Registry(), why_not_alive=lambda: None, why_not_ready=lambda: None))
        await server.open("127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.port}"
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(url + path) as got,
                session.post(url + path, data=b"{}") as sent,
            ):
                return [got.status, sent.status]
        finally:
            await server.close()

    assert [404, 404] == asyncio.run(work())


@pytest.mark.parametrize("namespace", ELSEWHERE)
def test_a_namespace_that_none_can_have_is_refused_before_anything_is_read(namespace: str) -> None:
    with pytest.raises(InvalidRequest, match="namespace is not a valid name of a resource"):
        key_of({"kind": "queue", "namespace": namespace, "name": "emails"})
    if not namespace:  # then it is the default one
        return
    with pytest.raises(InvalidRequest, match=r"metadata\.namespace is not a valid name of a resource"):
        key_of_document(queue(namespace=namespace))
    status, report, asked = posted(json.dumps(queue(namespace=namespace)).encode())
    assert (400, [], []) == (status, asked.keys, asked.documents)
    assert "metadata.namespace" in report["error"]
    assert isinstance(check_resource(queue(namespace=namespace)), list), "`headgate validate` refuses it too"


@pytest.mark.parametrize("name", ["../x", "a/b", "", "Emails", "a" * 64, 7, None, ["a"], {"a": 1}])
def test_a_name_that_none_can_have_is_refused_before_anything_is_read(name: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"metadata\.name is not a valid name of a resource"):
        key_of_document(queue(name=name))
    assert (400, []) == (posted(json.dumps(queue(name=name)).encode())[0], posted(b"{}")[2].keys)


def test_names_that_resources_have_are_taken() -> None:
    assert Key("Queue", "shop", "emails.dead-2") == key_of(
        {"kind": "Queue", "namespace": "shop", "name": "emails.dead-2"}
    )
    assert Key("Namespace", "shop", "shop") == key_of({"kind": "namespace", "namespace": "shop", "name": "shop"})
    assert Key("Queue", "default", "emails") == key_of_document(queue(namespace=None))


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "Expecting property name"),
        (b"[]", 400, "The document is not a Queue and not a Counter"),
        (b"[" * 40_000, 400, "the document is nested too deep for a resource"),
        (b'{"kind": "Pod", "metadata": {"name": "a"}}', 400, "The document is not a Queue and not a Counter"),
        (json.dumps(queue(name="unreadable")).encode(), 503, "Cassandra does not answer"),
        (b" " * (BODY_MAX + 1), 413, "the document is larger than 48 KiB, and so than any valid resource"),
    ],
)  # fmt: skip
def test_what_cannot_be_planned_is_one_line(body: bytes, status: int, message: str) -> None:
    result, report, _ = posted(body)
    assert (status, True) == (result, report["error"].startswith(message))


def test_the_largest_resource_can_be_planned() -> None:
    document = queue()
    document["spec"] = {"bulk": [], "x": "y" * (SPEC_BYTES_MAX - 20)}
    status, report, asked = posted(json.dumps(document).encode())
    assert (200, {"effects": []}, [document]) == (status, report, asked.documents)


# ---- what is asked of the API server


def test_no_name_leads_to_another_path_of_the_api_server() -> None:
    """As it is on the wire: test_cluster_port.py."""
    leading = "../../../apis/apps/v1/deployments?limit=500&x="
    assert "..%2F..%2F..%2Fapis%2Fapps%2Fv1%2Fdeployments%3Flimit%3D500%26x%3D" == escape_step(leading)
    assert ("a%23b%252f", "emails.dead") == (escape_step("a#b%2f"), escape_step("emails.dead"))
    for step in (".", ".."):
        with pytest.raises(InvalidRequest, match="The object has an invalid name"):
            escape_step(step)
