"""What an application puts, as bytes with the name of their form, and back. Pure.

Bytes are left as they are. A text is UTF-8; a pydantic model, and whatever else JSON has, is JSON. The form stands in
the attribute `content-type`, so that a consumer in any language knows how to read it.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from penstock.errors import SpecError

Model = TypeVar("Model", bound=BaseModel)

CONTENT_TYPE = "content-type"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

Payload = Any
"""bytes, str, a pydantic model, or what JSON has: dict, list, int, float, bool, None."""


class PayloadUnfit(SpecError):
    """A payload has to be bytes, a text, a pydantic model, or what JSON can say."""


class PayloadUnreadable(SpecError):
    """The payload of a message is not what its handler wants."""


def encode_payload(payload: Payload) -> tuple[bytes, str | None]:
    """The bytes, and their form; bytes themselves tell none."""
    if isinstance(payload, bytes):
        return payload, None
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload), None
    if isinstance(payload, str):
        return payload.encode(), TEXT
    if isinstance(payload, BaseModel):
        return payload.model_dump_json(by_alias=True).encode(), JSON
    try:
        written = json.dumps(payload, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadUnfit(type=type(payload).__name__, said=error) from None
    return written.encode(), JSON


def read_text(payload: bytes) -> str:
    """The payload as a text."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        raise PayloadUnreadable("the payload is not UTF-8", at=error.start) from None


def read_json(payload: bytes) -> Any:
    """What the payload says in JSON."""
    try:
        return json.loads(payload)
    except ValueError as error:
        raise PayloadUnreadable("the payload is not JSON", said=error) from None


def read_model(payload: bytes, model: type[Model]) -> Model:
    """The payload as a pydantic model."""
    try:
        return model.model_validate_json(payload)
    except ValidationError as invalid:
        said = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in invalid.errors())
        raise PayloadUnreadable(f"the payload is not a {model.__name__}", said=said) from None
