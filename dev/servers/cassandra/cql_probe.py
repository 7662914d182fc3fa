"""A small client of the CQL protocol (v4): authenticates, sends one request at a time, reads values.

It exists because servers are started before any driver is installed. It checks that a server answers with
authentication, creates roles and keyspaces, and reads a node's data in a test. It knows no paging, no pooling, no
retries and no cluster: one socket to one node. Every server response is returned or raised; nothing is retried.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import struct
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import Self

from dev.servers.cassandra.connection import Connection, ContactPoint
from headgate.errors import Bug, HeadgateError, InvalidRequest, OperationRefused, Unavailable

Row = dict[str, object]

_REQUEST_VERSION = 0x04
_ERROR, _STARTUP, _READY, _AUTHENTICATE, _QUERY, _RESULT, _AUTH_RESPONSE, _AUTH_SUCCESS = 0, 1, 2, 3, 7, 8, 15, 16
_ROWS = 2
_LARGEST_FRAME = 256 * 1024 * 1024
_CONSISTENCIES = {
    name: code
    for code, name in enumerate(
        ("ANY", "ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM", "SERIAL", "LOCAL_SERIAL")
    )
} | {"LOCAL_ONE": 10}
_BAD_CREDENTIALS, _COULD_NOT_CHECK = 0x0100, "Unable to perform authentication"
_REFUSED_CODES = {0x0100, 0x2100}
_UNAVAILABLE_CODES = {0x1000, 0x1001, 0x1002, 0x1003, 0x1100, 0x1200, 0x1300, 0x1400, 0x1500, 0x1600, 0x1700}


class RefusedTls(OperationRefused):
    """One side did not accept the other's certificate; asking again changes nothing."""


class CqlProbe:
    """One connection to one node; a context manager."""

    def __init__(self, point: ContactPoint, connection: Connection, *, timeout_s: float = 10.0) -> None:
        self.point = point
        self.connection = connection
        self.timeout_s = timeout_s
        self._socket = self._connect()
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def query(self, cql: str, *, consistency: str = "ONE") -> list[Row]:
        """The rows that a statement gives, whole; none for a statement that gives none."""
        text = cql.encode()
        level = _CONSISTENCIES.get(consistency)
        if level is None:
            raise InvalidRequest(
                "Unknown consistency level", remedy=f"one of {', '.join(_CONSISTENCIES)}", got=consistency
            )
        opcode, body = self._ask(_QUERY, struct.pack(">i", len(text)) + text + struct.pack(">HB", level, 0))
        if opcode != _RESULT:
            raise Bug("The server answered a query with an unexpected message", opcode=opcode)
        return _rows(_Reader(body))

    def _connect(self) -> socket.socket:
        try:
            plain = socket.create_connection((self.point.host, self.point.port), timeout=self.timeout_s)
        except OSError as error:
            raise Unavailable(
                "No server answers", remedy="check that it is started", at=self.point, why=error
            ) from None
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self.connection.tls is None:
            return plain
        try:
            return self.connection.tls.context().wrap_socket(plain, server_hostname=self.point.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            raise RefusedTls(
                "The server's certificate is not the one expected",
                remedy="connect by a name in the certificate, and trust the authority that signed it",
                at=self.point,
                why=error.verify_message,
            ) from None
        except OSError as error:
            plain.close()
            raise Unavailable(
                "The server does not use TLS",
                remedy="check whether it is configured for TLS",
                at=self.point,
                why=error,
            ) from None

    def _greet(self) -> None:
        opcode, _ = self._ask(_STARTUP, struct.pack(">H", 1) + _string("CQL_VERSION") + _string("3.0.0"))
        if opcode == _READY:
            return
        if opcode != _AUTHENTICATE:
            raise Bug("The server greeted with an unexpected message", opcode=opcode)
        if self.connection.username is None or self.connection.password is None:
            raise OperationRefused(
                "The server requires authentication", remedy="set USERNAME and PASSWORD", at=self.point
            )
        token = b"\0" + self.connection.username.encode() + b"\0" + self.connection.password.encode()
        opcode, _ = self._ask(_AUTH_RESPONSE, struct.pack(">i", len(token)) + token)
        if opcode != _AUTH_SUCCESS:
            raise Bug("The server requires more than a password", opcode=opcode)

    def _ask(self, opcode: int, body: bytes) -> tuple[int, bytes]:
        try:
            self._socket.sendall(struct.pack(">BBhBI", _REQUEST_VERSION, 0, 0, opcode, len(body)) + body)
            version, flags, _, answered, length = struct.unpack(">BBhBI", self._read(9))
            if version & 0x7F != _REQUEST_VERSION or length > _LARGEST_FRAME:
                raise Unavailable(
                    "The server does not speak CQL", remedy="check that this is the native port", at=self.point
                )
            answer = _Reader(self._read(length))
        except ssl.SSLError as error:
            raise RefusedTls(
                "The server ended the TLS connection",
                remedy="check whether it requires a client certificate",
                at=self.point,
                why=error.reason or error,
            ) from None
        except TimeoutError:
            raise Unavailable("No answer in time", at=self.point, seconds=self.timeout_s) from None
        except OSError as error:
            raise Unavailable("The connection broke", at=self.point, why=error) from None
        if flags & 0x02:
            answer.take(16)
        if flags & 0x08:
            for _ in range(answer.uint16()):
                answer.text()
        if answered == _ERROR:
            raise _error(answer.int32(), answer.text(), self.point)
        return answered, answer.rest()

    def _read(self, count: int) -> bytes:
        pieces, missing = [], count
        while missing:
            piece = self._socket.recv(min(missing, 1 << 20))
            if not piece:
                raise ConnectionResetError("closed by the server")
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)


def _error(code: int, detail: str, point: ContactPoint) -> HeadgateError:
    if code == _BAD_CREDENTIALS and _COULD_NOT_CHECK in detail:
        # It was not rejected: the server could not read its roles without a quorum.
        return Unavailable("The server could not look up the user", cause=detail, at=point)
    if code in _REFUSED_CODES:
        return OperationRefused("The server rejected the request", cause=detail, at=point)
    if code in _UNAVAILABLE_CODES:
        return Unavailable("The server failed", cause=detail, at=point)
    if code == 0x000A:
        return Unavailable("The server does not support this version of CQL", cause=detail, at=point)
    return InvalidRequest("The server did not accept the statement", cause=detail, code=f"{code:#06x}")


class _Reader:
    """Reads the protocol's notations, in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        piece = self._data[self._at : self._at + count]
        if len(piece) != count:
            raise Bug("The server's answer is truncated")
        self._at += count
        return piece

    def rest(self) -> bytes:
        return self._data[self._at :]

    def int32(self) -> int:
        return int.from_bytes(self.take(4), signed=True)

    def uint16(self) -> int:
        return int.from_bytes(self.take(2))

    def text(self) -> str:
        return self.take(self.uint16()).decode()

    def value(self) -> bytes | None:
        length = self.int32()
        return None if length < 0 else self.take(length)


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


Decode = Callable[[bytes], object]


def _signed(value: bytes) -> object:
    return int.from_bytes(value, signed=True)


def _plain(value: bytes) -> object:
    return value


_DECODERS: dict[int, Decode] = {
    0x01: lambda value: value.decode("ascii"),
    0x02: _signed,
    0x04: lambda value: value != b"\0",
    0x05: _signed,
    0x07: lambda value: struct.unpack(">d", value)[0],
    0x08: lambda value: struct.unpack(">f", value)[0],
    0x09: _signed,
    0x0A: lambda value: value.decode(),
    0x0B: _signed,
    0x0C: lambda value: uuid.UUID(bytes=value),
    0x0D: lambda value: value.decode(),
    0x0E: _signed,
    0x0F: lambda value: uuid.UUID(bytes=value),
    0x10: lambda value: str(ipaddress.ip_address(value)),
    0x13: _signed,
    0x14: _signed,
}


def _type(reader: _Reader) -> Decode:
    """The reader for a value of the next type; a type without a plain Python value stays bytes."""
    kind = reader.uint16()
    if kind == 0x00:
        reader.text()
        return _plain
    if kind in {0x20, 0x22}:
        element = _type(reader)
        return lambda value: [_element(inner, element) for inner in [_Reader(value)] for _ in range(inner.int32())]
    if kind == 0x21:
        key, mapped = _type(reader), _type(reader)
        return lambda value: {
            _element(inner, key): _element(inner, mapped) for inner in [_Reader(value)] for _ in range(inner.int32())
        }
    if kind == 0x30:
        reader.text(), reader.text()
        for _ in range(reader.uint16()):
            reader.text()
            _type(reader)
        return _plain
    if kind == 0x31:
        elements = [_type(reader) for _ in range(reader.uint16())]
        return lambda value: tuple(_element(inner, one) for inner in [_Reader(value)] for one in elements)
    return _DECODERS.get(kind, _plain)


def _element(reader: _Reader, decode: Decode) -> object:
    value = reader.value()
    return None if value is None else decode(value)


def _rows(reader: _Reader) -> list[Row]:
    if reader.int32() != _ROWS:
        return []
    flags, count = reader.int32(), reader.int32()
    if flags & 0x02:
        reader.value()
    if flags & 0x01:
        reader.text(), reader.text()
    columns: list[tuple[str, Decode]] = []
    for _ in range(count):
        if not flags & 0x01:
            reader.text(), reader.text()
        name = reader.text()
        columns.append((name, _type(reader)))
    return [{name: _element(reader, decode) for name, decode in columns} for _ in range(reader.int32())]
