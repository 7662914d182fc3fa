"""How to reach Cassandra and as whom, read from the environment (or from the keys of a Secret) and checked as text.

It opens nothing but the certificate files that are named, and knows no driver. Every fault is one line; all of them
are told at once, so that nobody mends one to be shown the next.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import SpecError

VARIABLES = (
    "CONTACT_POINTS",
    "DATA_CENTER",
    "USERNAME",
    "PASSWORD",
    "USE_SSL",
    "SSL_CA",
    "SSL_CERT",
    "SSL_KEY",
    "SSL_DIRECTORY",
    "KEYSPACE",
    "CLUSTER_NAME",
)
"""What a connection is told by."""
MOUNTED = {"SSL_CA": "ca.crt", "SSL_CERT": "tls.crt", "SSL_KEY": "tls.key"}
"""What files are called in SSL_DIRECTORY, where a Secret's are mounted: those that are there count as named."""
NATIVE_PORT = 9042
KEYSPACE = "penstock"

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%[A-Za-z0-9._-]+)?")
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_YES = frozenset(("true", "1", "yes", "on"))
_NO = frozenset(("false", "0", "no", "off", ""))


class SettingsBroken(SpecError):
    """The connection to Cassandra is not told rightly."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True)
class Address:
    """One contact point."""

    host: str
    port: int = NATIVE_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class TlsSettings:
    """PEM files: whom we trust (the system's authorities unless named), and who we are where the server asks."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class ConnectionSettings:
    """A connection, valid as far as text can tell."""

    contact_points: tuple[Address, ...]
    data_center: str | None = None
    """The home data centre (rule R5); None takes the only one there is."""
    username: str | None = None
    password: str | None = None
    tls: TlsSettings | None = None
    keyspace: str = KEYSPACE
    cluster_name: str | None = None
    """Checked when it is given, so that a copied address does not lead to somebody else's cluster."""

    def __repr__(self) -> str:
        """Without the password: settings end up in logs."""
        points = ",".join(map(str, self.contact_points))
        return (
            f"ConnectionSettings({points}, data_center={self.data_center}, username={self.username},"
            f" keyspace={self.keyspace}, tls={'on' if self.tls else 'off'})"
        )


def read_settings(environment: Mapping[str, str]) -> ConnectionSettings:
    """The settings that these variables tell; SettingsBroken tells every fault there is."""
    told = _with_mounted({name: value.strip() for name, value in environment.items()})
    faults = tuple(_faults(told))
    if faults:
        raise SettingsBroken(faults)
    return ConnectionSettings(
        contact_points=tuple(_addresses(told)),
        data_center=told.get("DATA_CENTER") or None,
        username=told.get("USERNAME") or None,
        password=environment.get("PASSWORD") or None,
        tls=_tls(told),
        keyspace=told.get("KEYSPACE") or KEYSPACE,
        cluster_name=told.get("CLUSTER_NAME") or None,
    )


def _with_mounted(told: Mapping[str, str]) -> dict[str, str]:
    """With the files of SSL_DIRECTORY; one that is named by its own variable is taken from there."""
    if not told.get("SSL_DIRECTORY"):
        return dict(told)
    mounted = {name: Path(told["SSL_DIRECTORY"], file) for name, file in MOUNTED.items()}
    return {**told, **{name: str(path) for name, path in mounted.items() if not told.get(name) and path.is_file()}}


def _faults(told: Mapping[str, str]) -> Iterator[str]:
    yield from _contact_point_faults(told.get("CONTACT_POINTS", ""))
    keyspace = told.get("KEYSPACE") or KEYSPACE
    if not _KEYSPACE.fullmatch(keyspace):
        yield f"KEYSPACE={keyspace}: a keyspace is at most 48 lower case letters, digits and _, a letter first"
    if bool(told.get("USERNAME")) != bool(told.get("PASSWORD")):
        missing, given = ("PASSWORD", "USERNAME") if told.get("USERNAME") else ("USERNAME", "PASSWORD")
        yield f"{missing} is empty though {given} is set: set both, or neither where Cassandra asks for no password"
    yield from _tls_faults(told)


def _contact_point_faults(text: str) -> Iterator[str]:
    parts = [part.strip() for part in text.split(",")]
    if not any(parts):
        yield "CONTACT_POINTS is not set: name nodes of your Cassandra as host[:port], separated by commas"
        return
    for part in parts:
        if not part:
            yield f"CONTACT_POINTS={text}: an empty entry between two commas"
        elif isinstance(parsed := _parse_address(part), str):
            yield parsed


def _addresses(told: Mapping[str, str]) -> Iterator[Address]:
    for part in told["CONTACT_POINTS"].split(","):
        parsed = _parse_address(part.strip())
        if isinstance(parsed, Address):
            yield parsed


def _parse_address(part: str) -> Address | str:
    """The address, or what is wrong with it."""
    host, port = part, ""
    if part.startswith("["):
        host, closed, rest = part[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            return f"CONTACT_POINTS: {part}: an IPv6 address with a port is written [address]:port"
        port = rest[1:]
        if rest == ":":
            return f"CONTACT_POINTS: {part}: a port is missing after the colon"
    elif part.count(":") == 1:
        host, _, port = part.partition(":")
        if not port:
            return f"CONTACT_POINTS: {part}: a port is missing after the colon"
    if "/" in part:
        return f"CONTACT_POINTS: {part}: a host and a port, without a scheme or a path"
    if not _HOST.fullmatch(host):
        return f"CONTACT_POINTS: {part}: not a host name or an address"
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return f"CONTACT_POINTS: {part}: a port is a number from 1 to 65535"
    return Address(host, int(port) if port else NATIVE_PORT)


def _wants_tls(told: Mapping[str, str]) -> bool:
    said = told.get("USE_SSL")
    return bool(told.get("SSL_CA")) if not said else said.lower() in _YES


def _tls(told: Mapping[str, str]) -> TlsSettings | None:
    if not _wants_tls(told):
        return None
    ca, certificate, key = (
        Path(told[name]) if told.get(name) else None for name in ("SSL_CA", "SSL_CERT", "SSL_KEY")
    )
    return TlsSettings(ca, certificate, key)


def _tls_faults(told: Mapping[str, str]) -> Iterator[str]:
    said = told.get("USE_SSL", "")
    if said.lower() not in _YES | _NO:
        yield f"USE_SSL={said}: say true or false"
        return
    if not _wants_tls(told):
        return
    if bool(told.get("SSL_CERT")) != bool(told.get("SSL_KEY")):
        missing, given = ("SSL_KEY", "SSL_CERT") if told.get("SSL_CERT") else ("SSL_CERT", "SSL_KEY")
        yield f"{missing} is empty though {given} is set: a client certificate needs both files"
    unreadable = [line for name in ("SSL_CA", "SSL_CERT", "SSL_KEY") for line in _file_faults(name, told.get(name))]
    yield from unreadable
    if not unreadable:
        yield from _content_faults(told)


def _file_faults(name: str, path: str | None) -> Iterator[str]:
    if not path:
        return
    try:
        with Path(path).open("rb"):
            return
    except OSError as error:
        yield f"{name}={path}: {(error.strerror or str(error)).lower()}: name a PEM file that this process may read"


def _content_faults(told: Mapping[str, str]) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if path := told.get("SSL_CA"):
        try:
            context.load_verify_locations(cafile=path)
        except ssl.SSLError:
            yield f"SSL_CA={path}: holds no certificate in PEM"
    certificate, key = told.get("SSL_CERT"), told.get("SSL_KEY")
    if certificate and key:
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
        except ssl.SSLError:
            yield f"SSL_CERT={certificate}, SSL_KEY={key}: not a certificate and its key in PEM, without a password"


def _no_password() -> str:
    """An encrypted key is refused; without this the terminal would be asked."""
    return ""
