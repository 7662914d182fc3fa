"""Keys and certificates for servers and clients under test, created within the environment of the tests.

An authority of our own signs a server certificate that names its hosts, and a client certificate. A server reads its
own from PKCS #12 stores, as Java does. Created once for each set of names and kept in the cache; they protect nothing
but tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from dev.servers.cassandra.connection import TlsFiles
from dev.servers.cassandra.settings import ServerTls
from headgate.errors import InvalidRequest
from headgate.local.cache import cached

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, GeneralName

PASSWORD = "headgate"  # noqa: S105 - of stores that hold nothing but keys for tests
LOOPBACK_NAMES = ("dns:localhost", "ip:127.0.0.1", "ip:127.0.0.2", "ip:127.0.0.3")
VALID_DAYS = 3650
_MADE_AS = "2"


@dataclass(frozen=True)
class Certificates:
    """A directory with the stores of a server and the PEM files of a client."""

    directory: Path

    def server(self, *, require_client_auth: bool = False) -> ServerTls:
        """A node's certificate, and whether it requires one in return."""
        return ServerTls(self.directory / "server.p12", self.directory / "trust.p12", PASSWORD, require_client_auth)

    def client(self, *, with_certificate: bool = True) -> TlsFiles:
        """The files for a client; optionally without a certificate of its own."""
        ca = self.directory / "ca.crt"
        return (
            TlsFiles(ca, self.directory / "tls.crt", self.directory / "tls.key") if with_certificate else TlsFiles(ca)
        )


def certificates(names: Iterable[str] = LOOPBACK_NAMES) -> Certificates:
    """Certificates of a server with exactly these names (`dns:host` or `ip:address`)."""
    wanted = tuple(names)
    for name in wanted:
        if not name.startswith(("dns:", "ip:")):
            raise InvalidRequest("invalid name for a certificate", remedy="write dns:host or ip:address", got=name)
    version = f"{_MADE_AS}-{hashlib.sha256(','.join(wanted).encode()).hexdigest()[:16]}"
    return Certificates(cached("tls", version, lambda entry: write_certificates(entry, wanted), needs_mb=1))


def write_certificates(directory: Path, names: tuple[str, ...]) -> None:
    """The files of a server with these names, and of a client."""
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    ca = _sign("Headgate test authority")
    server = _sign("Headgate test node", ca, names)
    client = _sign("Headgate test client", ca)
    sealed = BestAvailableEncryption(PASSWORD.encode())
    chain = pkcs12.serialize_key_and_certificates(b"server", server.key, server.certificate, [ca.certificate], sealed)
    trusted = [pkcs12.PKCS12Certificate(ca.certificate, b"ca")]
    (directory / "server.p12").write_bytes(chain)
    (directory / "trust.p12").write_bytes(pkcs12.serialize_java_truststore(trusted, sealed))
    (directory / "ca.crt").write_bytes(ca.certificate.public_bytes(Encoding.PEM))
    (directory / "tls.crt").write_bytes(client.certificate.public_bytes(Encoding.PEM))
    (directory / "tls.key").touch(mode=0o600)
    (directory / "tls.key").write_bytes(client.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


@dataclass(frozen=True)
class _Identity:
    key: EllipticCurvePrivateKey
    certificate: Certificate


def _sign(common_name: str, by: _Identity | None = None, names: tuple[str, ...] = ()) -> _Identity:
    """A key and its certificate; one that nobody else signs is an authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        by.certificate.subject if by else subject,
        subject,
        key.public_key(),
        x509.random_serial_number(),
        now - timedelta(days=1),  # of a server whose clock is behind
        now + timedelta(days=VALID_DAYS),
    )
    builder = builder.add_extension(x509.BasicConstraints(ca=by is None, path_length=None), critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(map(_name, names)), critical=False)
    return _Identity(key, builder.sign(by.key if by else key, SHA256()))


def _name(text: str) -> GeneralName:
    from cryptography import x509

    kind, _, value = text.partition(":")
    return x509.DNSName(value) if kind == "dns" else x509.IPAddress(ip_address(value))
