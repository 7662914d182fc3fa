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


def message_of(put: Put, now_us: int) -> NewMessage:
    """As engines take it. `now_us` is what a delay counts from. Its attributes carry the current trace."""
    message = encode_put(put, now_us)
    message.attributes = with_trace(message.attributes)
    return message


def encode_put(put: Put, now_us: int) -> NewMessage:
    """The same without a trace."""
    payload, form = encode_payload(put.payload)
    attributes = put.attributes
    if attributes or type(attributes) is not dict:
        attributes = _checked(attributes)
    if form is not None and CONTENT_TYPE not in attributes:
        attributes = {**attributes, CONTENT_TYPE: form}
    if put.once_scope is not None and put.once is None:
        raise InvalidRequest(
            "The option once_scope was passed without `once`, whose key it scopes", remedy="pass once too"
        )
    return NewMessage(payload, _due_us(put, now_us), attributes, put.group, put.once, put.once_scope)


def _due_us(put: Put, now_us: int) -> int | None:
    if put.delay is not None and put.deliver_at is not None:
        raise InvalidRequest("Both delay and deliver_at set the delivery time", remedy="pass one of them")
    if put.delay is not None:
        return now_us + span_us(put.delay, "delay")
    return None if put.deliver_at is None else time_us_from(put.deliver_at, "deliver_at")


def _checked(attributes: Attributes) -> Attributes:
    if not isinstance(attributes, Mapping):
        raise InvalidRequest("Attributes must map names to strings or bytes", given=type(attributes).__name__)
    for name, value in attributes.items():
        if not isinstance(name, str) or not isinstance(value, str | bytes):
            raise InvalidRequest(
                "An attribute must be a string or bytes under a name", name=name, type=type(value).__name__
            )
    return attributes
