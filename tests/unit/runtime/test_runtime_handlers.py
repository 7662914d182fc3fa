"""A user's function as a handler: the meaning of its annotations and its decorator, and its mistakes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from pydantic import BaseModel

from headgate.client.message import Message, Received
from headgate.client.sync.blocking import SyncMessage
from headgate.engines.contract import Delivery, NackDelivery
from headgate.errors import InvalidRequest
from headgate.runtime import Context, RetryPolicy, handler
from headgate.runtime.handler.context import Attempt
from headgate.runtime.handler.handlers import Handler, HandlerUnusable, load_handler, understand
from headgate.runtime.handler.payloads import PayloadInvalid
from headgate.runtime.handler.runner import PythonPerformer


def delivery(payload: bytes) -> Delivery:
    """A delivery of this."""
    return Delivery("m1", payload, {}, None, 1, 0, 0, 1, 0, "r")


class Mail(BaseModel):
    """A model."""

    to: str


@dataclass
class Point:
    """A dataclass."""

    x: int


def plain(payload): ...  # type: ignore[no-untyped-def]
def as_bytes(payload: bytes) -> None: ...
def as_text(payload: str) -> None: ...
def as_dict(payload: dict[str, int]) -> None: ...
def as_model(payload: Mail) -> None: ...
def as_dataclass(payload: Point) -> None: ...
def as_delivery(payload: Delivery) -> None: ...
def as_number(payload: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "payload", "expected"),
    [
        (plain, b"\xff", b"\xff"),
        (as_bytes, b"\xff", b"\xff"),
        (as_text, "Zoë".encode(), "Zoë"),
        (as_dict, b'{"a": 1}', {"a": 1}),
        (as_model, b'{"to": "x"}', Mail(to="x")),
        (as_dataclass, b'{"x": 1}', Point(1)),
        (as_delivery, b"x", delivery(b"x")),
        (as_number, b"7", 7),
    ],
)
def test_a_payload_is_read_as_it_is_annotated(function: Any, payload: bytes, expected: object) -> None:
    assert expected == understand(function, "m:f").decode(delivery(payload))


@pytest.mark.parametrize(
    ("function", "payload", "message"),
    [
        (as_text, b"\xff", "The payload is not UTF-8: at byte 0"),
        (as_model, b"{", "The payload is not a valid Mail\nit: Invalid JSON"),
        (as_model, b'{"t": 1}', "The payload is not a valid Mail\nto: Field required"),
        (as_dict, b'{"a": "secret"}', "The payload is not a valid dict"),
    ],
)
def test_a_payload_that_does_not_fit_is_reported_without_its_values(
    function: Any, payload: bytes, message: str
) -> None:
    with pytest.raises(PayloadInvalid) as invalid:
        understand(function, "m:f").decode(delivery(payload))
    assert str(invalid.value).startswith(message)
    assert "secret" not in str(invalid.value)


async def asynchronous(payload: bytes) -> None: ...
async def batch(payloads: list[Mail]) -> None: ...
def batch_with_contexts(payloads: Sequence[Mail], contexts: list[Context]) -> None: ...
def with_context(payload: bytes, about: Context) -> None: ...
def with_named(payload, context): ...  # type: ignore[no-untyped-def]
def with_default(payload: bytes, retries: int = 3) -> None: ...


@handler(batch=False)
def one_list(payload: list[int]) -> None: ...


@handler(batch=True, retries=RetryPolicy())
def undeclared_batch(payloads: Any) -> None: ...


class Callable1:
    """An object that can be called."""

    async def __call__(self, payload: str, context: Context) -> None: ...


def traits(result: Handler) -> tuple[bool, bool, str | None]:
    """The form of the handler, as it was understood."""
    return result.is_async, result.batch, result.context


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (as_bytes, (False, False, None)),
        (asynchronous, (True, False, None)),
        (batch, (True, True, None)),
        (batch_with_contexts, (False, True, "contexts")),
        (with_context, (False, False, "about")),
        (with_named, (False, False, "context")),
        (with_default, (False, False, None)),
        (one_list, (False, False, None)),
        (undeclared_batch, (False, True, None)),
        (Callable1(), (True, False, "context")),
        (Callable1().__call__, (True, False, "context")),
    ],
)
def test_what_a_handler_wants_is_seen_by_its_parameters(
    function: Callable[..., Any], expected: tuple[bool, bool, str | None]
) -> None:
    assert expected == traits(understand(function, "m:f"))


def test_a_list_that_is_one_payload_is_one_payload() -> None:
    assert [1, 2] == understand(one_list, "m:f").decode(delivery(b"[1, 2]"))


def two(payload: bytes, other: bytes) -> None: ...
def none() -> None: ...
def yields(payload: bytes) -> Any:
    yield payload


def settles(message: Message) -> None: ...
def settles_waiting(message: SyncMessage) -> None: ...
def reads(message: Received) -> None: ...
def unknown(payload: Gone) -> None: ...  # type: ignore[name-defined]  # noqa: F821  that is what it is for
def strange(payload: Callable1) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (two, "The handler's parameters are not supported"),
        (none, "The handler's parameters are not supported"),
        (yields, "A handler must return, not yield"),
        (settles, "A handler does not take a Message, since the worker settles the message"),
        (settles_waiting, "A handler does not take a SyncMessage"),
        (unknown, "An annotation cannot be resolved"),
        (strange, "Pydantic does not support an annotation"),
        (Callable1, "A handler must be a function"),
        (7, "A handler must be a function"),
    ],
)
def test_what_cannot_be_understood_is_one_clear_line(function: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as refused:
        understand(function, "m:f")
    assert "handler=m:f" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_handler_may_take_the_whole_message() -> None:
    message = understand(reads, "m:f").decode(delivery(b"[1, 2]"))
    assert isinstance(message, Received)
    assert ([1, 2], 1) == (message.json(), message.attempt)
    assert not hasattr(message, "ack")


def test_a_handler_is_found_by_its_entry_point() -> None:
    assert "tests.unit.runtime.killers:slow" == load_handler("tests.unit.runtime.killers:slow").name


@pytest.mark.parametrize("wrong", ["", ":", "a", "a:", ":b", "a:b:c", "a b:c", "a/b:c", "1a:b"])
def test_an_entry_point_is_module_and_function(wrong: str) -> None:
    with pytest.raises(HandlerUnusable, match="write mailer.tasks:send".replace(".", "[.]")):
        load_handler(wrong)


def test_a_function_that_is_not_there_is_reported_with_those_that_are() -> None:
    with pytest.raises(HandlerUnusable, match="fragile"):
        load_handler("tests.unit.runtime.killers:gone")


# ---- the text of a failure


async def fails_on_the_loop(payload: bytes) -> None:
    raise ValueError("no such person")


def fails_in_a_thread(payload: bytes) -> None:
    raise ValueError("no such person")


@pytest.mark.parametrize("function", [fails_on_the_loop, fails_in_a_thread])
def test_the_traceback_of_a_failure_begins_with_the_handler(function: Callable[..., Any]) -> None:
    async def perform() -> object:
        performer = PythonPerformer(understand(function, "m:f"), threads=1, rng=Random(1))
        try:
            (settle,) = await performer.perform([Attempt(delivery(b"x"), 0.0)])
            return settle
        finally:
            await performer.close()

    verdict = asyncio.run(perform())
    assert isinstance(verdict, NackDelivery)
    lines = verdict.reason.splitlines()
    assert ("ValueError: no such person", "Traceback (most recent call last):") == (lines[0], lines[1])
    assert f"in {function.__name__}" in lines[2]
    assert 1 == sum(line.lstrip().startswith("File ") for line in lines)


def test_the_decorator_works_with_and_without_parentheses() -> None:
    @handler
    def bare(pages: list[int]) -> None: ...

    @handler()
    def empty(pages: list[int]) -> None: ...

    @handler(batch=False)
    def single(pages: list[int]) -> None: ...

    assert [True, True, False] == [understand(each, "h").batch for each in (bare, empty, single)]
    assert "bare" == bare.__name__


def test_the_decorator_refuses_what_is_no_function_in_one_line() -> None:
    with pytest.raises(HandlerUnusable, match="The decorator needs a function, not a RetryPolicy") as refused:
        handler(RetryPolicy())  # type: ignore[call-overload]  # that is the mistake
    assert 1 == len(str(refused.value).splitlines())


def anything(payload: Any) -> None: ...


@handler(batch=True)
def unannotated_batch(payloads): ...  # type: ignore[no-untyped-def]


def typed(payload: bytes, content_type: str | bytes) -> Delivery:
    """A delivery of this, under this content type."""
    return Delivery("m1", payload, {"content-type": content_type}, None, 1, 0, 0, 1, 0, "r")


WITHOUT_ANNOTATION = [plain, anything, unannotated_batch, undeclared_batch]


@pytest.mark.parametrize("function", WITHOUT_ANNOTATION)
@pytest.mark.parametrize(
    ("payload", "content_type", "expected"),
    [
        (b'{"to": "x"}', "application/json", {"to": "x"}),
        (b"[1]", "Application/JSON; charset=utf-8", [1]),
        (b'{"a": 1}', "application/cloudevents+json", {"a": 1}),
        ("Zoë".encode(), "text/plain; charset=utf-8", "Zoë"),
        (b"plain", "text/plain", "plain"),
        (b"plain", 'text/plain; charset="US-ASCII"', "plain"),
        (b"Zo\xeb", "text/plain; charset=iso-8859-1", b"Zo\xeb"),
        (b"{}", "application/octet-stream", b"{}"),
        (b"<p>", "text/html", b"<p>"),
        (b"{}", "", b"{}"),
        (b"{}", b"application/json", b"{}"),
    ],
)
def test_without_an_annotation_the_content_type_shows_how_a_payload_is_read(
    function: Any, payload: bytes, content_type: str | bytes, expected: object
) -> None:
    assert expected == understand(function, "m:f").decode(typed(payload, content_type))


@pytest.mark.parametrize(
    ("payload", "content_type", "message"),
    [
        (b'{"secret": ', "application/json", "The payload is not JSON"),
        (b"\xff\xfe\xfdsecret", "application/json", "The payload is not JSON"),
        (b"[" * 100_000, "application/json", "The payload is not JSON"),
        (b"secret\xff", "text/plain", "The payload is not UTF-8: at byte 6"),
    ],
)
def test_a_payload_that_is_not_of_its_content_type_does_not_fit(
    payload: bytes, content_type: str, message: str
) -> None:
    with pytest.raises(PayloadInvalid, match=message) as invalid:
        understand(plain, "m:f").decode(typed(payload, content_type))
    assert "secret" not in str(invalid.value)


@pytest.mark.parametrize(("function", "expected"), [(as_bytes, b'{"to": "x"}'), (as_text, '{"to": "x"}')])
def test_an_annotation_wins_over_the_content_type(function: Any, expected: object) -> None:
    assert expected == understand(function, "m:f").decode(typed(b'{"to": "x"}', "application/json"))
