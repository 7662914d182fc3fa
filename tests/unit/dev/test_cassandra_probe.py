"""The small CQL client, against a scripted server: what it reads, and what each refusal becomes."""

from __future__ import annotations

import socket
import struct
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.servers.cassandra.connection import Connection, ContactPoint
from dev.servers.cassandra.cql_probe import CqlProbe
from headgate.errors import HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.local.cassandra.node import NodePlace, query_superuser

READY, AUTHENTICATE, RESULT, AUTH_SUCCESS, ERROR = 2, 3, 8, 16, 0
Answer = tuple[int, bytes]


def text(value: str) -> bytes:
    return struct.pack(">H", len(value.encode())) + value.encode()


def value(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def error(code: int, message: str) -> Answer:
    return ERROR, struct.pack(">i", code) + text(message)


def rows(columns: list[tuple[str, bytes]], *lines: list[bytes | None]) -> Answer:
    head = struct.pack(">iii", 2, 1, len(columns)) + text("ks") + text("t")
    described = b"".join(text(name) + kind for name, kind in columns)
    return RESULT, head + described + struct.pack(">i", len(lines)) + b"".join(
        value(v) for line in lines for v in line
    )


@contextmanager
def server(*answers: Answer) -> Iterator[tuple[ContactPoint, list[bytes]]]:
    """Gives one answer to each request, in order, to one client."""
    asked: list[bytes] = []

    def serve() -> None:
        peer, _ = listener.accept()
        with peer:
            for opcode, body in answers:
                head = peer.recv(9, socket.MSG_WAITALL)
                if len(head) < 9:
                    return
                asked.append(peer.recv(struct.unpack(">I", head[5:])[0], socket.MSG_WAITALL))
                peer.sendall(struct.pack(">BBhBI", 0x84, 0, 0, opcode, len(body)) + body)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield ContactPoint("127.0.0.1", listener.getsockname()[1]), asked
        thread.join(5)


def connection(point: ContactPoint, *, known: bool = True) -> Connection:
    return Connection((point,), username="u" if known else None, password="p" if known else None)


def test_values_of_every_plain_type_are_read() -> None:
    some = uuid.UUID(int=7)
    columns = [
        ("name", struct.pack(">H", 0x0D)),
        ("count", struct.pack(">H", 0x02)),
        ("small", struct.pack(">H", 0x14)),
        ("there", struct.pack(">H", 0x04)),
        ("id", struct.pack(">H", 0x0C)),
        ("address", struct.pack(">H", 0x10)),
        ("raw", struct.pack(">H", 0x03)),
        ("ratio", struct.pack(">H", 0x07)),
        ("tags", struct.pack(">HH", 0x22, 0x0D)),
        ("places", struct.pack(">HHH", 0x21, 0x0D, 0x09)),
        ("pair", struct.pack(">HHHH", 0x31, 2, 0x09, 0x0D)),
        ("missing", struct.pack(">H", 0x0D)),
    ]
    line = [
        "schön".encode(),
        struct.pack(">q", -5),
        b"\xff",
        b"\x01",
        some.bytes,
        bytes([127, 0, 0, 1]),
        b"\x00\x01",
        struct.pack(">d", 0.5),
        struct.pack(">i", 2) + value(b"a") + value(b"b"),
        struct.pack(">i", 1) + value(b"x") + value(struct.pack(">i", 9)),
        value(struct.pack(">i", 1)) + value(b"y"),
        None,
    ]
    expected = {
        "name": "schön",
        "count": -5,
        "small": -1,
        "there": True,
        "id": some,
        "address": "127.0.0.1",
        "raw": b"\x00\x01",
        "ratio": 0.5,
        "tags": ["a", "b"],
        "places": {"x": 9},
        "pair": (1, "y"),
        "missing": None,
    }
    with server((READY, b""), rows(columns, line)) as (point, _), CqlProbe(point, connection(point)) as probe:
        assert [expected] == probe.query("SELECT * FROM ks.t")


def test_it_states_which_process_it_is_when_asked_and_sends_the_consistency() -> None:
    with server((AUTHENTICATE, text("Password")), (AUTH_SUCCESS, b"\xff" * 4), (RESULT, struct.pack(">i", 1))) as (
        point,
        asked,
    ):
        with CqlProbe(point, connection(point)) as probe:
            assert [] == probe.query("USE x", consistency="QUORUM")
        assert b"\0\0\0\x04\0u\0p" == asked[1]
        assert struct.pack(">i", 5) + b"USE x" + struct.pack(">HB", 4, 0) == asked[2]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (0x0100, OperationRefused),
        (0x2100, OperationRefused),
        (0x1000, Unavailable),
        (0x1100, Unavailable),
        (0x1200, Unavailable),
        (0x2000, InvalidRequest),
        (0x2200, InvalidRequest),
    ],
)
def test_an_error_of_the_server_reports_whose_fault_it_is(code: int, kind: type[HeadgateError]) -> None:
    with (
        server((READY, b""), error(code, "because")) as (point, _),
        CqlProbe(point, connection(point)) as probe,
        pytest.raises(kind, match="because"),
    ):
        probe.query("SELECT 1")


def test_a_server_that_asks_that_it_is_gets_no_guess() -> None:
    with server((AUTHENTICATE, text("Password"))) as (point, _), pytest.raises(OperationRefused, match="USERNAME"):
        CqlProbe(point, connection(point, known=False))


def test_a_server_that_hangs_up_is_unavailable() -> None:
    with server() as (point, _), pytest.raises(Unavailable):
        CqlProbe(point, connection(point))


def test_a_server_of_another_protocol_is_distinguished() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        point = ContactPoint("127.0.0.1", listener.getsockname()[1])

        def serve() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.recv(100)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(Unavailable, match="does not speak CQL"):
            CqlProbe(point, connection(point))


def test_an_unknown_consistency_is_refused_with_those_there_are() -> None:
    with (
        server((READY, b"")) as (point, _),
        CqlProbe(point, connection(point)) as probe,
        pytest.raises(InvalidRequest, match="LOCAL_QUORUM"),
    ):
        probe.query("SELECT 1", consistency="MOST")


# ---- the one question of `headgate dev`


def report_of(*answers: Answer) -> tuple[HeadgateError | None, list[bytes]]:
    with server(*answers) as (point, asked):
        return query_superuser(NodePlace(Path(), point.host, point.port, 0, 0)), asked


def test_a_kept_node_is_ready_when_it_answers_a_query_of_its_superuser() -> None:
    why, asked = report_of((AUTHENTICATE, text("PasswordAuthenticator")), (AUTH_SUCCESS, b""), (RESULT, b"rows"))
    assert why is None
    assert asked[1] == struct.pack(">i", 20) + b"\0cassandra\0cassandra"
    assert b"FROM system.local" in asked[2]


def test_a_kept_node_without_its_superuser_is_not_ready() -> None:
    why, _ = report_of((AUTHENTICATE, text("PasswordAuthenticator")), error(0x0100, "bad credentials"))
    assert isinstance(why, OperationRefused)


def test_a_kept_node_that_refuses_a_query_is_not_ready() -> None:
    why, _ = report_of((READY, b""), error(0x1001, "overloaded"))
    assert isinstance(why, OperationRefused)


def test_a_kept_node_that_hangs_up_is_not_ready() -> None:
    why, _ = report_of((AUTHENTICATE, b""))
    assert isinstance(why, Unavailable)
