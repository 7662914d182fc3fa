"""Roles get exactly what is granted, whatever their names hold; a client's key is read from what keytool writes."""

from __future__ import annotations

import hashlib
import os
import struct

import pytest

from dev.servers.cassandra.security import Credentials, Grant, create_role_statements
from dev.servers.cassandra.tls import certificates, pem, read_jks
from headgate.errors import Bug, InvalidRequest


def test_a_role_may_log_in_and_do_what_is_granted() -> None:
    expected = [
        "CREATE ROLE IF NOT EXISTS \"reader\" WITH PASSWORD = 'it''s' AND LOGIN = true AND SUPERUSER = false",
        'GRANT SELECT ON KEYSPACE shop TO "reader"',
    ]
    assert expected == create_role_statements(Credentials("reader", "it's"), [Grant("SELECT", "KEYSPACE shop")])


def test_a_name_cannot_end_its_own_quotes() -> None:
    statement = create_role_statements(Credentials('x" WITH SUPERUSER = true --', "p"))[0]
    assert statement.startswith('CREATE ROLE IF NOT EXISTS "x"" WITH SUPERUSER = true --" WITH PASSWORD')


def protect(key: bytes, password: str) -> bytes:
    """Protect a key as keytool does in a JKS store."""
    secret, salt = password.encode("utf-16-be"), os.urandom(20)
    stream, digest = b"", salt
    while len(stream) < len(key):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    sealed = salt + bytes(a ^ b for a, b in zip(key, stream, strict=False))
    sealed += hashlib.sha1(secret + key, usedforsecurity=False).digest()
    algorithm = bytes.fromhex("300e060a2b060104012a021101010500")
    octets = b"\x04\x82" + struct.pack(">H", len(sealed)) + sealed
    return b"\x30\x82" + struct.pack(">H", len(algorithm + octets)) + algorithm + octets


def store(key: bytes, password: str) -> bytes:
    protected = protect(key, password)
    certificate = struct.pack(">H", 5) + b"X.509" + struct.pack(">I", 3) + b"crt"
    trusted = struct.pack(">IH", 2, 2) + b"ca" + struct.pack(">Q", 0) + certificate
    mine = struct.pack(">IH", 1, 2) + b"me" + struct.pack(">QI", 0, len(protected)) + protected
    return struct.pack(">III", 0xFEEDFEED, 2, 2) + trusted + mine + struct.pack(">I", 1) + certificate


def test_a_key_is_read_from_a_java_store_behind_certificates_that_are_trusted() -> None:
    key = os.urandom(300)
    assert (key, [b"crt"]) == read_jks(store(key, "secret"), "secret")


def test_a_wrong_password_is_noticed() -> None:
    with pytest.raises(Bug, match="password"):
        read_jks(store(b"key" * 50, "secret"), "guess")


def test_a_file_of_another_kind_is_noticed() -> None:
    with pytest.raises(Bug, match="a JKS store"):
        read_jks(b"PK\x03\x04" + b"\0" * 20, "secret")


def test_der_becomes_text_in_lines_of_64() -> None:
    lines = pem("PRIVATE KEY", b"\0" * 60).splitlines()
    assert ("-----BEGIN PRIVATE KEY-----", 64, 16) == (lines[0], len(lines[1]), len(lines[2]))


def test_a_name_without_its_kind_is_no_name_for_a_certificate() -> None:
    with pytest.raises(InvalidRequest, match="dns:host"):
        certificates(["localhost"])
