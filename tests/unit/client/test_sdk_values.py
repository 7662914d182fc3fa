"""An application's arguments to the SDK, and the values made of them: payloads, times, attributes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from headgate.client.message import Received
from headgate.client.model.outgoing import Put, message_of
from headgate.client.model.payloads import (
    JSON,
    TEXT,
    PayloadUnfit,
    PayloadUnreadable,
    encode_payload,
)
from headgate.client.model.times import datetime_of, span_us, time_us_from
from headgate.engines.contract import Delivery, NewMessage
from headgate.errors import InvalidRequest
from headgate.runtime.handler.payloads import decoder_of

NOW = 1_750_000_000_000_000


class Mail(BaseModel):
    """A payload."""

    to: str
    copies: int = Field(1, alias="copyCount")


class Size(Enum):
    """An enumeration."""

    SMALL = "s"


@dataclass
class Order:
    """A dataclass, as applications have them."""

    id: UUID
    at: datetime
    price: Decimal
    marks: set[float]
    size: Size = Size.SMALL


NOON = datetime(2030, 1, 2, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("payload", "encoded", "form"),
    [
        (b"\x00", b"\x00", None),
        (bytearray(b"ab"), b"ab", None),
        (memoryview(b"abc")[1:], b"bc", None),
        ("grüße", "grüße".encode(), TEXT),
        ({"a": [1, 2.5, None, True]}, b'{"a":[1,2.5,null,true]}', JSON),
        (None, b"null", JSON),
        (Mail(to="you", copyCount=2), b'{"to":"you","copyCount":2}', JSON),
    ],
)
def test_a_payload_is_encoded_and_shows_how(payload: Any, encoded: bytes, form: str | None) -> None:
    assert (encoded, form) == encode_payload(payload)


@pytest.mark.parametrize(
    "payload",
    [
        object(),
        {"x": object()},
        int,
        range(3),
        math.nan,
        {"x": math.inf},
        {math.nan},
        {"at": NOON, "x": [math.nan]},
        Order(UUID(int=7), NOON, Decimal("1.5"), {math.inf}),
        {"x": b"\xff"},
        "\ud800",
        {"x": "\ud800"},
    ],
)
def test_what_json_cannot_state_is_refused_in_one_line(payload: Any) -> None:
    with pytest.raises(PayloadUnfit) as refused:
        encode_payload(payload)
    assert 1 == len(str(refused.value).splitlines())


@pytest.mark.parametrize(
    ("payload", "encoded"),
    [
        ({"at": NOON}, b'{"at":"2030-01-02T12:00:00Z"}'),
        ([UUID(int=7)], b'["00000000-0000-0000-0000-000000000007"]'),
        ({"price": Decimal("1.50"), "in": timedelta(seconds=5)}, b'{"price":"1.50","in":"PT5S"}'),
        ({"size": Size.SMALL, "day": NOON.date()}, b'{"size":"s","day":"2030-01-02"}'),
        ({1}, b"[1]"),
        ({"mail": Mail(to="you", copyCount=2)}, b'{"mail":{"to":"you","copyCount":2}}'),
        ({UUID(int=7): 1}, b'{"00000000-0000-0000-0000-000000000007":1}'),
        ({None: 1, "at": NOON}, b'{"null":1,"at":"2030-01-02T12:00:00Z"}'),
        (
            Order(UUID(int=7), NOON, Decimal("1.5"), {2.0}),
            b'{"id":"00000000-0000-0000-0000-000000000007","at":"2030-01-02T12:00:00Z","price":"1.5","marks":[2.0],"size":"s"}',
        ),
    ],
)
def test_what_a_web_application_has_is_json(payload: Any, encoded: bytes) -> None:
    assert (encoded, JSON) == encode_payload(payload)


@pytest.mark.parametrize(
    ("payload", "annotation"),
    [
        (Order(UUID(int=7), NOON, Decimal("1.5"), {2.0, 3.5}), Order),
        ({"a": NOON}, dict[str, datetime]),
        ([UUID(int=1), UUID(int=2)], list[UUID]),
        ({Size.SMALL: Decimal("0.1")}, dict[Size, Decimal]),
        (frozenset("abc"), frozenset[str]),
        ((timedelta(hours=1), NOON.date()), tuple[timedelta, date]),
    ],
)
def test_a_worker_reads_what_was_put_back_as_the_same_value(payload: Any, annotation: Any) -> None:
    put = message_of(Put(payload), NOW)
    delivered = Delivery("m1", put.payload, put.attributes, None, 1, 0, 0, 1, 0, "r")
    assert payload == decoder_of(annotation, "m:f")(delivered)


def test_a_payload_that_refers_to_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(PayloadUnfit):
        encode_payload(endless)


def received(payload: bytes) -> Received:
    """A message with that payload."""
    return Received(Delivery("m1", payload, {}, None, 1, 0, 0, 1, 0, "r"))


def test_what_was_put_is_read_back() -> None:
    mail = Mail(to="you", copyCount=3)
    assert ("grüße", {"a": 1}) == (received("grüße".encode()).text(), received(b'{"a":1}').json())
    assert mail == received(encode_payload(mail)[0]).read(Mail)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: received(b"\xff").text(), "The payload is not UTF-8"),
        (lambda: received(b"{").json(), "The payload is not JSON"),
        (lambda: received(b'{"copyCount": "many"}').read(Mail), "The payload is not a Mail"),
    ],
)
def test_a_payload_of_another_form_is_one_line_for_its_reader(read: Any, message: str) -> None:
    with pytest.raises(PayloadUnreadable, match=message) as refused:
        read()
    assert 1 == len(str(refused.value).splitlines())


@pytest.mark.parametrize(
    ("span", "us"),
    [
        (0, 0),
        (1, 1_000_000),
        (0.25, 250_000),
        (timedelta(milliseconds=1), 1_000),
        (timedelta(days=3650), 3650 * 86400 * 10**6),
    ],
)
def test_a_length_of_time_is_seconds_or_a_timedelta(span: Any, us: int) -> None:
    assert us == span_us(span, "delay")


@pytest.mark.parametrize("span", [-1, timedelta(seconds=-1), math.nan, math.inf, "5s", True, None, 1e12])
def test_what_is_no_length_of_time_is_refused(span: Any) -> None:
    with pytest.raises(InvalidRequest, match="delay"):
        span_us(span, "delay")


def test_a_time_is_the_same_in_every_time_zone_and_refused_without_one() -> None:
    time = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert time_us_from(time, "x") == time_us_from(time.astimezone(timezone(timedelta(hours=9))), "x")
    assert time == datetime_of(time_us_from(time, "x"))
    with pytest.raises(InvalidRequest, match="deliver_at has no time zone"):
        time_us_from(time.replace(tzinfo=None), "deliver_at")
    with pytest.raises(InvalidRequest, match="deliver_at must be a datetime"):
        time_us_from(5, "deliver_at")  # type: ignore[arg-type]  # that is the mistake


def test_a_put_becomes_a_message_of_the_engine() -> None:
    put = Put({"a": 1}, delay=2, group="g", once="k", once_scope="s", attributes={"n": "1"})
    expected = NewMessage(b'{"a":1}', NOW + 2_000_000, {"n": "1", "content-type": JSON}, "g", "k", "s")
    assert expected == message_of(put, NOW)
    assert NewMessage(b"x") == message_of(Put(b"x"), NOW)


def test_a_content_type_of_ones_own_wins() -> None:
    assert {"content-type": "a/b"} == message_of(Put("x", attributes={"content-type": "a/b"}), NOW).attributes


@pytest.mark.parametrize(
    ("put", "message"),
    [
        (Put(b"x", delay=1, deliver_at=datetime.now(UTC)), "set the delivery time"),
        (Put(b"x", once_scope="s"), "once_scope"),
        (Put(b"x", attributes={"n": 1}), "name=n, type=int"),  # type: ignore[dict-item]  # that is the mistake
        (Put(b"x", attributes=[("n", "1")]), "must map"),  # type: ignore[arg-type]  # that is the mistake
    ],
)
def test_a_put_that_makes_no_sense_is_refused(put: Put, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        message_of(put, NOW)
