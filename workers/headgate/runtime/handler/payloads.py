"""A payload in the form of its handler's annotation: bytes, a string, or JSON checked by pydantic. Pure.

`bytes`: as it is. `str`: UTF-8. `Received`: the whole message. Anything else that pydantic understands (a model, a
dataclass, dict, list, int, ...) is read from JSON and checked against it. Without an annotation, and with `Any` or
`object`, the message's content type decides: JSON is decoded, plain text is a `str`, everything else is bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from headgate.engines.contract import Delivery
from headgate.errors import InvalidRequest
from headgate.runtime.handler.decide_retry import bounded_reason

CONTENT_TYPE: Final = "content-type"
CONTENT_TYPES_KEPT_MAX = 256
UTF_8_CHARSETS = ("utf-8", "utf8", "us-ascii", "ascii")
FAULTS_MAX = 10

_CHARSET = re.compile(r'charset\s*=\s*"?([^\s";]+)')

Decode = Callable[[Delivery], Any]


class PayloadInvalid(Exception):
    """The payload does not fit its handler's annotation."""


def decoder_of(annotation: Any, handler: str) -> Decode:
    if annotation is bytes:
        return _as_bytes
    if annotation in (Any, object):
        return _by_content_type
    if annotation is str:
        return _as_text
    if annotation is Delivery:
        return _as_delivery
    if isinstance(annotation, type) and annotation.__module__.startswith("headgate.client."):
        return _of_the_sdk(annotation, handler)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    except PydanticUserError as error:
        detail = str(error).splitlines()[0]
        remedy = "annotate it with bytes, str, a pydantic model, or a type that JSON can represent"
        raise InvalidRequest(
            "Pydantic does not support an annotation", handler=handler, cause=detail, remedy=remedy
        ) from None
    name = getattr(annotation, "__name__", str(annotation))

    def as_json(delivery: Delivery) -> Any:
        try:
            return adapter.validate_json(delivery.payload)
        except ValidationError as invalid:
            raise PayloadInvalid(_describe_invalid(invalid, name)) from None

    return as_json


def _as_bytes(delivery: Delivery) -> bytes:
    return delivery.payload


def _as_delivery(delivery: Delivery) -> Delivery:
    return delivery


def _of_the_sdk(annotation: type, handler: str) -> Decode:
    """A message without the calls that settle it, since the worker does that."""
    from headgate.client.message import Received

    if annotation is Received:
        return Received
    raise InvalidRequest(
        f"A handler does not take a {annotation.__name__}, since the worker settles the message.",
        remedy="annotate the parameter with headgate.Received, or with the type of the payload",
        handler=handler,
    )


def _as_text(delivery: Delivery) -> str:
    try:
        return delivery.payload.decode()
    except UnicodeDecodeError as error:
        raise PayloadInvalid(f"The payload is not UTF-8: at byte {error.start}") from None


def _as_json(delivery: Delivery) -> Any:
    try:
        return json.loads(delivery.payload)
    except (ValueError, RecursionError):
        raise PayloadInvalid("The payload is not JSON, but its content type is") from None


def _by_content_type(delivery: Delivery) -> Any:
    content_type = delivery.attributes.get(CONTENT_TYPE)
    return _decoder_for(content_type)(delivery) if isinstance(content_type, str) else delivery.payload


@lru_cache(CONTENT_TYPES_KEPT_MAX)
def _decoder_for(content_type: str) -> Decode:
    """How to read payloads of this content type: JSON by its type or its `+json` suffix, plain text in UTF-8."""
    kind, _, parameters = content_type.lower().partition(";")
    kind = kind.strip()
    if kind == "application/json" or kind.endswith("+json"):
        return _as_json
    charset = _CHARSET.search(parameters)
    is_utf_8 = charset is None or charset[1] in UTF_8_CHARSETS
    return _as_text if kind == "text/plain" and is_utf_8 else _as_bytes


def _describe_invalid(invalid: ValidationError, name: str) -> str:
    """Each fault with its place and its cause; never the value, which may be a secret."""
    faults = invalid.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in faults[:FAULTS_MAX]]
    more = f"\nand {len(faults) - FAULTS_MAX} more" if len(faults) > FAULTS_MAX else ""
    return bounded_reason(f"The payload is not a valid {name}", "\n".join(lines) + more)
