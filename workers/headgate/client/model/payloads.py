"""Converts an application's payload to bytes with a content type, and back. Pure.

Bytes are left as they are. A string is UTF-8. Everything else is JSON: plain JSON values, a pydantic model, and every
value that pydantic writes as JSON (dataclasses, datetimes, UUIDs, decimals, enumerations, sets), at any depth. The
worker's decoder reads the same values back (`runtime/handler/payloads.py`). The attribute `content-type` names the
form, so that a consumer in any language knows how to read it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import to_jsonable_python

from headgate.errors import InvalidRequest

Model = TypeVar("Model", bound=BaseModel)

CONTENT_TYPE = "content-type"
TEXT = "text/plain; charset=utf-8"
JSON = "application/json"

Payload = Any
"""bytes, str, a pydantic model, or any value that pydantic writes as JSON: dict, list, dataclass, UUID, ..."""


class PayloadUnfit(InvalidRequest):
    """The payload cannot be encoded: it is not bytes, a text, a model, or a value that pydantic writes as JSON."""


class PayloadUnreadable(InvalidRequest):
    """The payload of a message does not fit its handler."""


def encode_payload(payload: Payload) -> tuple[bytes, str | None]:
    if isinstance(payload, bytes):
        return payload, None
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload), None
    if isinstance(payload, BaseModel):
        return payload.model_dump_json(by_alias=True).encode(), JSON
    try:
        if isinstance(payload, str):
            return payload.encode(), TEXT
        return _write_json(payload).encode(), JSON
    except (TypeError, ValueError, RecursionError) as error:
        detail = str(error).partition("\n")[0]
        raise PayloadUnfit(type=type(payload).__name__, cause=detail) from None


def _convert_value(value: Any) -> Any:
    """A value that JSON lacks, as one that it has. NaN and infinity stay floats, which the encoder refuses."""
    return to_jsonable_python(value, by_alias=True)


def _json_encoder() -> Callable[[Any], str]:
    """The encoder of the standard library. It prepares itself again for each value, which takes longer than to
    encode a small one. Here it is prepared once, where the interpreter has that part."""
    prepare = getattr(json.encoder, "c_make_encoder", None)
    if prepare is None:
        return json.JSONEncoder(
            ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_convert_value
        ).encode
    encode = prepare(None, _convert_value, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    return lambda payload: "".join(encode(payload, 0))


_encode = _json_encoder()


def _write_json(payload: Any) -> str:
    try:
        return _encode(payload)
    except TypeError:  # the encoder converts values, and refuses keys that are not JSON's, such as a UUID
        return _encode(_convert_value(payload))


class PayloadForms:
    """The forms in which a message shows its payload."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def payload(self) -> bytes:
            """The payload as it was put."""

        @property
        def attributes(self) -> Mapping[str, str | bytes]:
            """The attributes that were put with it."""

    @property
    def content_type(self) -> str | None:
        """The content type of the payload, if its producer set one."""
        content_type = self.attributes.get(CONTENT_TYPE)
        return content_type if isinstance(content_type, str) else None

    def text(self) -> str:
        """The payload as a text."""
        try:
            return self.payload.decode()
        except UnicodeDecodeError as error:
            raise PayloadUnreadable("The payload is not UTF-8", at=error.start) from None

    def json(self) -> Any:
        """The payload decoded from JSON."""
        try:
            return json.loads(self.payload)
        except ValueError as error:
            raise PayloadUnreadable("The payload is not JSON", cause=error) from None

    def read(self, model: type[Model]) -> Model:
        """The payload as a pydantic model."""
        try:
            return model.model_validate_json(self.payload)
        except ValidationError as invalid:
            faults = "; ".join(
                f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in invalid.errors()
            )
            raise PayloadUnreadable(f"The payload is not a {model.__name__}", cause=faults) from None
