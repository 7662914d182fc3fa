"""A put of an application, and its conversion to an engine's message. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from headgate.client.model.payloads import CONTENT_TYPE, Payload, encode_payload
from headgate.client.model.times import Span, span_us, time_us_from
from headgate.engines.contract import Attributes, NewMessage
from headgate.errors import InvalidRequest
from headgate.telemetry.tracing import with_trace


@dataclass(frozen=True)
class Put:
    """One message to put, with the options that differ from the others of its `put_many`."""

    payload: Payload
    delay: Span | None = None
    deliver_at: datetime | None = None
    group: str | None = None
    once: str | None = None
    once_scope: str | None = None
    attributes: Attributes = field(default_factory=dict)


def build_message(
    payload: Payload,
    now_us: int,
    delay: Span | None,
    deliver_at: datetime | None,
    group: str | None,
    once: str | None,
    once_scope: str | None,
    attributes: Attributes | None,
) -> NewMessage:
    """A put as engines take it. `now_us` is what a delay counts from."""
    data, form = encode_payload(payload)
    given = {} if attributes is None else attributes
    if given or type(given) is not dict:
        given = _checked(given)
    if form is not None and CONTENT_TYPE not in given:
        given = {**given, CONTENT_TYPE: form}
    if once_scope is not None and once is None:
        raise InvalidRequest(
            "The option once_scope was passed without `once`, whose key it scopes", remedy="pass once too"
        )
    due_us = None if delay is None and deliver_at is None else _due_us(delay, deliver_at, now_us)
    return NewMessage(data, due_us, given, group, once, once_scope)


def build_plain_message(payload: Payload) -> NewMessage:
    data, form = encode_payload(payload)
    return NewMessage(data) if form is None else NewMessage(data, None, {CONTENT_TYPE: form})


def message_of(put: Put, now_us: int) -> NewMessage:
    message = encode_put(put, now_us)
    message.attributes = with_trace(message.attributes)
    return message


def encode_put(put: Put | Payload, now_us: int) -> NewMessage:
    if not isinstance(put, Put):
        return build_plain_message(put)
    return build_message(
        put.payload, now_us, put.delay, put.deliver_at, put.group, put.once, put.once_scope, put.attributes
    )


def _due_us(delay: Span | None, deliver_at: datetime | None, now_us: int) -> int | None:
    if delay is not None and deliver_at is not None:
        raise InvalidRequest("Both delay and deliver_at set the delivery time", remedy="pass one of them")
    if delay is not None:
        return now_us + span_us(delay, "delay")
    return None if deliver_at is None else time_us_from(deliver_at, "deliver_at")


def _checked(attributes: Attributes) -> Attributes:
    if not isinstance(attributes, Mapping):
        raise InvalidRequest("Attributes must map names to strings or bytes", given=type(attributes).__name__)
    for name, value in attributes.items():
        if not isinstance(name, str) or not isinstance(value, str | bytes):
            raise InvalidRequest(
                "An attribute must be a string or bytes under a name", name=name, type=type(value).__name__
            )
    return attributes
