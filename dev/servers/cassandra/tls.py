"""Keys and certificates for servers and clients under test, created by Java's keytool: openssl is not needed.

An authority of our own signs a server certificate that names its hosts, and a client certificate. keytool exports no
private key as text, but the old JKS store that it still writes is simple enough to parse, so the client gets its key.
Created once for each set of names and kept in the cache; they protect nothing but tests.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dev.servers.cassandra.connection import TlsFiles
from dev.servers.cassandra.settings import ServerTls
from headgate.errors import Bug, EnvironmentProblem, InvalidRequest
from headgate.local.cache import cached
from headgate.local.cassandra.java import Java, find_java

PASSWORD = "headgate"  # noqa: S105 - of stores that hold nothing but keys for tests
LOOPBACK_NAMES = ("dns:localhost", "ip:127.0.0.1", "ip:127.0.0.2", "ip:127.0.0.3")
_MADE_AS = "1"


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
    java = find_java()
    version = f"{_MADE_AS}-{hashlib.sha256(','.join(wanted).encode()).hexdigest()[:16]}"
    return Certificates(cached("tls", version, lambda entry: _make(java, entry, wanted), needs_mb=1))


def _make(java: Java, entry: Path, names: tuple[str, ...]) -> None:
    tool = _Keytool(java, entry)
    tool("-genkeypair", "-keystore", "ca.p12", "-alias", "ca", "-dname", "CN=Headgate test authority", *_KEY, *_CA)
    tool("-exportcert", "-rfc", "-keystore", "ca.p12", "-alias", "ca", "-file", "ca.crt")
    tool("-importcert", "-noprompt", "-keystore", "trust.p12", "-alias", "ca", "-file", "ca.crt")
    _signed(tool, "server.p12", "server", "CN=Headgate test node", ["-ext", f"san={','.join(names)}"])
    _signed(tool, "client.jks", "client", "CN=Headgate test client", [], store_type="JKS")
    key, chain = read_jks((entry / "client.jks").read_bytes(), PASSWORD)
    (entry / "tls.key").write_text(pem("PRIVATE KEY", key))
    (entry / "tls.key").chmod(0o600)
    (entry / "tls.crt").write_text("".join(pem("CERTIFICATE", certificate) for certificate in chain))
    for name in ("ca.p12", "client.jks"):
        (entry / name).unlink()


_KEY = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650")
_CA = ("-ext", "bc:c=ca:true", "-ext", "ku:c=keyCertSign,cRLSign")


class _Keytool:
    """keytool in a directory, with the one password and no locale of its own."""

    def __init__(self, java: Java, directory: Path) -> None:
        self._java = java
        self._directory = directory

    def __call__(self, *arguments: str, store_type: str = "PKCS12") -> None:
        done = subprocess.run(
            [
                self._java.program.with_name("keytool"),  # it comes with every Java
                "-J-XX:TieredStopAtLevel=1",
                "-J-XX:+UseSerialGC",
                *arguments,
                *self._store(store_type),
            ],
            cwd=self._directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise EnvironmentProblem(
                "keytool failed", cause=done.stdout.strip() or done.stderr.strip(), asked=arguments[0]
            )

    def _store(self, store_type: str) -> list[str]:
        return ["-storetype", store_type, "-storepass", PASSWORD]


def _signed(
    tool: _Keytool, store: str, alias: str, name: str, extensions: list[str], *, store_type: str = "PKCS12"
) -> None:
    """A key pair in `store`, whose certificate the authority has signed."""
    request, answer = f"{alias}.csr", f"{alias}.crt"
    key_password = ["-keypass", PASSWORD] if store_type == "JKS" else []
    keystore_options = ["-keystore", store, "-alias", alias]
    tool("-genkeypair", *keystore_options, "-dname", name, *_KEY, *key_password, store_type=store_type)
    tool("-certreq", *keystore_options, "-file", request, store_type=store_type)
    signing = ["-gencert", "-rfc", "-keystore", "ca.p12", "-alias", "ca", "-validity", "3650"]
    tool(*signing, "-infile", request, "-outfile", answer, *extensions)
    tool("-importcert", "-noprompt", "-keystore", store, "-alias", "ca", "-file", "ca.crt", store_type=store_type)
    tool("-importcert", "-noprompt", *keystore_options, "-file", answer, store_type=store_type)
    for left in (request, answer):
        (tool._directory / left).unlink()


def pem(label: str, der: bytes) -> str:
    """DER as text."""
    text = base64.b64encode(der).decode()
    lines = [text[at : at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])


def read_jks(store: bytes, password: str) -> tuple[bytes, list[bytes]]:
    """The private key (PKCS#8) and its certificates (DER) of a JKS store that holds one key."""
    reader = _Jks(store)
    if reader.number(">I") != 0xFEEDFEED or reader.number(">I") != 2:
        raise Bug("not a JKS store")
    for _ in range(reader.number(">I")):
        kind = reader.number(">I")
        reader.sized(">H")
        reader.number(">Q")
        if kind == 1:
            protected = reader.sized(">I")
            return _unprotect(protected, password), [reader.certificate() for _ in range(reader.number(">I"))]
        reader.certificate()
    raise Bug("the JKS store contains no key")


class _Jks:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, layout: str) -> int:
        value: int = struct.unpack_from(layout, self._data, self._at)[0]
        self._at += struct.calcsize(layout)
        return value

    def sized(self, layout: str) -> bytes:
        length = self.number(layout)
        self._at += length
        return self._data[self._at - length : self._at]

    def certificate(self) -> bytes:
        self.sized(">H")
        return self.sized(">I")


def _unprotect(protected: bytes, password: str) -> bytes:
    """Undo JKS's own cipher: the key is XORed with a chain of SHA-1 over the password, then checked by one more."""
    sealed = _der_octets(protected)
    salt, cipher, check = sealed[:20], sealed[20:-20], sealed[-20:]
    secret = password.encode("utf-16-be")
    stream, digest = b"", salt
    while len(stream) < len(cipher):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    key = bytes(one ^ other for one, other in zip(cipher, stream, strict=False))
    if hashlib.sha1(secret + key, usedforsecurity=False).digest() != check:
        raise Bug("wrong password for the JKS store")
    return key


def _der_octets(der: bytes) -> bytes:
    """The octet string of SEQUENCE { SEQUENCE algorithm, OCTET STRING }."""
    _, outer = _der(der, 0)
    _, algorithm = _der(der, outer[0])
    _, octets = _der(der, algorithm[1])
    return der[octets[0] : octets[1]]


def _der(data: bytes, at: int) -> tuple[int, tuple[int, int]]:
    """Tag, start and end of the value at `at`."""
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        count = length & 0x7F
        length, start = int.from_bytes(data[start : start + count]), start + count
    return tag, (start, start + length)
