"""Roles get exactly what is granted, whatever their names hold; certificates are those of their names."""

from __future__ import annotations

import ssl
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

from dev.servers.cassandra.security import Credentials, Grant, create_role_statements
from dev.servers.cassandra.tls import PASSWORD, certificates, write_certificates
from headgate.errors import InvalidRequest


def test_a_role_may_log_in_and_do_what_is_granted() -> None:
    expected = [
        "CREATE ROLE IF NOT EXISTS \"reader\" WITH PASSWORD = 'it''s' AND LOGIN = true AND SUPERUSER = false",
        'GRANT SELECT ON KEYSPACE shop TO "reader"',
    ]
    assert expected == create_role_statements(Credentials("reader", "it's"), [Grant("SELECT", "KEYSPACE shop")])


def test_a_name_cannot_end_its_own_quotes() -> None:
    statement = create_role_statements(Credentials('x" WITH SUPERUSER = true --', "p"))[0]
    assert statement.startswith('CREATE ROLE IF NOT EXISTS "x"" WITH SUPERUSER = true --" WITH PASSWORD')


def test_a_server_is_known_by_its_names_to_a_client_that_trusts_the_authority(tmp_path: Path) -> None:
    write_certificates(tmp_path, ("dns:localhost", "ip:127.0.0.1"))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    key, certificate, _ = pkcs12.load_key_and_certificates((tmp_path / "server.p12").read_bytes(), PASSWORD.encode())
    assert key is not None and certificate is not None
    (tmp_path / "server.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    server.load_cert_chain(tmp_path / "server.pem")
    server.load_verify_locations(tmp_path / "ca.crt")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    client.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    assert "client" in connect(server, client, "localhost")
    with pytest.raises(ssl.SSLCertVerificationError, match="elsewhere"):
        connect(server, client, "elsewhere.example")


def connect(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """The name in the certificate that the client showed, after a handshake in memory."""
    pipes = [ssl.MemoryBIO() for _ in range(2)]
    ends = [
        client.wrap_bio(pipes[0], pipes[1], server_hostname=name),
        server.wrap_bio(pipes[1], pipes[0], server_side=True),
    ]
    for end in ends * 3:
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    shown = ends[1].getpeercert() or {}
    return str(shown["subject"])


def test_a_clients_key_is_its_own(tmp_path: Path) -> None:
    write_certificates(tmp_path, ("dns:localhost",))
    assert 0o600 == stat.S_IMODE((tmp_path / "tls.key").stat().st_mode)


def test_a_name_without_its_kind_is_no_name_for_a_certificate() -> None:
    with pytest.raises(InvalidRequest, match="dns:host"):
        certificates(["localhost"])
