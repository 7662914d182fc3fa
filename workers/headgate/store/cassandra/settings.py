"""The address and credentials of Cassandra, read from the environment (or from the keys of a Secret) and checked as
text.

It opens nothing but the named certificate files, and knows no driver. Every fault is one line, and all of them are
reported at once, so that nobody fixes one only to get the next.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from headgate.errors import InvalidRequest
from headgate.store.connection_variables import (
    MEMORY,
    PREFIX,
    VARIABLES,
    connection_variables,
    prefixed,
    variable_names,
)

MOUNTED = {"SSL_CA": "ca.crt", "SSL_CERT": "tls.crt", "SSL_KEY": "tls.key"}
"""The file names in SSL_DIRECTORY, where a Secret is mounted: existing files count as named."""
NATIVE_PORT = 9042
KEYSPACE = "headgate"
CONTACT_POINTS_MAX = 256
ADDRESS_MAX = 300
"""Characters; a name of DNS has at most 253."""

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9a-fA-F:.]*:[0-9a-fA-F:.]*(%[A-Za-z0-9._-]+)?")
_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_YES = frozenset(("true", "1", "yes", "on"))
_NO = frozenset(("false", "0", "no", "off", ""))


class InvalidConnectionSettings(InvalidRequest):
    """Invalid Cassandra connection settings."""

    def __init__(self, faults: tuple[str, ...]) -> None:
        super().__init__("\n".join(faults))
        self.faults = faults


@dataclass(frozen=True)
class Address:
    host: str
    port: int = NATIVE_PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class TlsSettings:
    """PEM files: the trusted authorities (default: the system's), and the client certificate where the server
    requires one."""

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class ConnectionSettings:
    """A connection, valid as far as text can show."""

    contact_points: tuple[Address, ...]
    data_center: str | None = None
    """The home data centre (rule R5); None takes the only one there is."""
    username: str | None = None
    password: str | None = None
    tls: TlsSettings | None = None
    keyspace: str = KEYSPACE
    cluster_name: str | None = None
    """Checked when it is set, so that a copied address does not lead to another cluster."""
    memory: str | None = None
    """The address of queues in this process's memory; then there is no Cassandra."""

    def __repr__(self) -> str:
        """Without the password: settings end up in logs."""
        points = ",".join(map(str, self.contact_points))
        return (
            f"ConnectionSettings({points}, data_center={self.data_center}, username={self.username},"
            f" keyspace={self.keyspace}, tls={'on' if self.tls else 'off'})"
        )


class ConnectionOptions(TypedDict, total=False):
    """Settings that a caller gives by name. None is as if it were not given."""

    contact_points: str | Sequence[str] | None
    data_center: str | None
    username: str | None
    password: str | None
    keyspace: str | None
    use_ssl: bool | None
    ssl_ca: str | Path | None
    ssl_cert: str | Path | None
    ssl_key: str | Path | None
    cluster_name: str | None


def read_settings(environment: Mapping[str, str], options: ConnectionOptions | None = None) -> ConnectionSettings:
    """The settings of a process's environment (names: connection_variables.py), and the options that go before them.
    InvalidConnectionSettings has all faults, each by the name that its user gave."""
    given = {name: _as_text(name, value) for name, value in (options or {}).items() if value is not None}
    names = {**variable_names(environment), **{name.upper(): name for name in given}}
    settings = _Given.of({**environment, **given}, names, missing=PREFIX)
    address = settings.get("CONTACT_POINTS")
    return ConnectionSettings((), memory=address) if address.startswith(MEMORY) else _read(settings)


WITH_SESSION = ("keyspace", "data_center", "cluster_name")
"""The options that apply together with a session; all others are the session's own."""


def read_session_settings(
    session: Any, environment: Mapping[str, str], options: ConnectionOptions
) -> ConnectionSettings:
    """The settings for a session of the application: its contact points are the nodes that the session knows."""
    others = sorted(name for name, value in options.items() if value is not None and name not in WITH_SESSION)
    if others:
        raise InvalidRequest(
            "A connection on a session of yours takes no addresses and no credentials.",
            remedy="set them on the Cluster of the session",
            given=", ".join(others),
        )
    if getattr(session, "cluster", None) is None:
        raise InvalidRequest(
            "The session is no session of the DataStax driver for Python.",
            remedy="pass what cassandra.cluster.Cluster.connect() returns",
            given=type(session).__name__,
        )
    kept = {setting.upper() for setting in WITH_SESSION}
    variables = connection_variables(environment)
    named = prefixed({setting: value for setting, value in variables.items() if setting in kept})
    settings = read_settings(named, {**options, "contact_points": "localhost"})
    hosts = sorted(session.cluster.metadata.all_hosts(), key=lambda host: str(host.address))
    return replace(settings, contact_points=tuple(Address(str(host.address), host.endpoint.port) for host in hosts))


def _as_text(name: str, value: object) -> str:
    """An option as a variable would have it."""
    if name not in ConnectionOptions.__annotations__:
        known = ", ".join(sorted(ConnectionOptions.__annotations__))
        raise InvalidRequest("Unknown connection option", given=name, remedy=f"options: {known}")
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def read_secret_settings(secret: Mapping[str, str]) -> ConnectionSettings:
    """The settings of a Secret, whose keys have no prefix and no other purpose."""
    return _read(_Given.of(secret, {name: name for name in VARIABLES if name in secret}, missing=""))


@dataclass(frozen=True, repr=False)
class _Given:
    """The settings by their names without the prefix, and the full name of each. Its repr shows no values, since the
    password is among them."""

    values: Mapping[str, str]
    names: Mapping[str, str]
    missing: str
    """The prefix of a missing setting whose partner is missing too."""
    password: str | None
    """As it is, with the spaces at its ends."""

    @classmethod
    def of(cls, variables: Mapping[str, str], names: Mapping[str, str], *, missing: str) -> _Given:
        values = {setting: variables[name].strip() for setting, name in names.items()}
        password = variables[names["PASSWORD"]] if "PASSWORD" in names else None
        return cls(*_with_mounted(values, names), missing, password or None)

    def get(self, setting: str, default: str = "") -> str:
        return self.values.get(setting) or default

    def path(self, setting: str) -> Path | None:
        return Path(self.get(setting)) if self.get(setting) else None

    def name(self, setting: str, *, instead_of: str | None = None) -> str:
        """Its name; for a missing one, in the form of its partner."""
        if setting in self.names:
            return self.names[setting]
        if instead_of is None or instead_of not in self.names:
            return self.missing + setting
        if self.names[instead_of] == instead_of.lower():
            return setting.lower()
        return self.names[instead_of].removesuffix(instead_of) + setting


def _read(given: _Given) -> ConnectionSettings:
    name, text = given.name("CONTACT_POINTS"), given.get("CONTACT_POINTS")
    parsed = _parse_contact_points(name, text)
    faults = (*(each for each in parsed if isinstance(each, str)), *_faults(given))
    if faults:
        raise InvalidConnectionSettings(faults)
    tls = TlsSettings(given.path("SSL_CA"), given.path("SSL_CERT"), given.path("SSL_KEY"))
    return ConnectionSettings(
        contact_points=tuple(each for each in parsed if isinstance(each, Address)),
        data_center=given.get("DATA_CENTER") or None,
        username=given.get("USERNAME") or None,
        password=given.password,
        tls=tls if _wants_tls(given) else None,
        keyspace=given.get("KEYSPACE", KEYSPACE),
        cluster_name=given.get("CLUSTER_NAME") or None,
    )


def _with_mounted(values: Mapping[str, str], names: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """With the files of SSL_DIRECTORY; a file with its own variable is taken from there."""
    if not values.get("SSL_DIRECTORY"):
        return dict(values), dict(names)
    form = names["SSL_DIRECTORY"].removesuffix("SSL_DIRECTORY")
    mounted = {
        name: str(path)
        for name, file in MOUNTED.items()
        if not values.get(name) and (path := Path(values["SSL_DIRECTORY"], file)).is_file()
    }
    return {**values, **mounted}, {**names, **{name: form + name for name in mounted}}


def _faults(given: _Given) -> Iterator[str]:
    keyspace = given.get("KEYSPACE", KEYSPACE)
    if not _KEYSPACE.fullmatch(keyspace):
        name = given.name("KEYSPACE")
        yield f"{name}={keyspace}: a keyspace name has at most 48 lower case letters, digits and _, a letter first"
    remedy = "set both, or neither if Cassandra requires no password"
    yield from _pair_faults(given, "USERNAME", "PASSWORD", remedy)
    yield from _tls_faults(given)


def _pair_faults(given: _Given, first: str, second: str, remedy: str) -> Iterator[str]:
    if bool(given.get(first)) == bool(given.get(second)):
        return
    missing, there = (second, first) if given.get(first) else (first, second)
    yield f"{given.name(missing, instead_of=there)} is empty though {given.name(there)} is set: {remedy}"


def _parse_contact_points(name: str, text: str) -> list[Address | str]:
    """Each address, or its fault."""
    parts = [part.strip() for part in text.split(",", CONTACT_POINTS_MAX)]
    if len(parts) > CONTACT_POINTS_MAX:
        return [f"{name} names more than {CONTACT_POINTS_MAX} nodes: a few of them lead to the others"]
    if not any(parts):
        return [f"{name} is not set: name nodes of your Cassandra as host[:port], separated by commas"]
    parsed = (_parse_address(part) if part else "" for part in parts)
    empty = f"{name}={text}: an empty entry between two commas"
    return [each if isinstance(each, Address) else f"{name}: {each}" if each else empty for each in parsed]


def _parse_address(part: str) -> Address | str:
    """The address, or its fault. A longer text is not read: it may come from a Secret of anybody."""
    if len(part) > ADDRESS_MAX:
        return f"{part[:40]}...: longer than an address"
    host, port = part, ""
    if part.startswith("["):
        host, closed, rest = part[1:].partition("]")
        if not closed or (rest and not rest.startswith(":")):
            return f"{part}: an IPv6 address with a port is written [address]:port"
        port = rest[1:]
        if rest == ":":
            return f"{part}: a port is missing after the colon"
    elif part.count(":") == 1:
        host, _, port = part.partition(":")
        if not port:
            return f"{part}: a port is missing after the colon"
    if "/" in part:
        return f"{part}: must be a host and a port, without a scheme or a path"
    if not _HOST.fullmatch(host):
        return f"{part}: not a host name or an address"
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return f"{part}: a port must be a number from 1 to 65535"
    return Address(host, int(port) if port else NATIVE_PORT)


def _wants_tls(given: _Given) -> bool:
    switch = given.get("USE_SSL")
    return bool(given.get("SSL_CA")) if not switch else switch.lower() in _YES


def _tls_faults(given: _Given) -> Iterator[str]:
    switch = given.get("USE_SSL")
    if switch.lower() not in _YES | _NO:
        yield f"{given.name('USE_SSL')}={switch}: set it to true or false"
        return
    if not _wants_tls(given):
        return
    yield from _pair_faults(given, "SSL_CERT", "SSL_KEY", "a client certificate needs both files")
    unreadable = [fault for name in MOUNTED if (fault := _file_fault(given, name))]
    yield from unreadable or _content_faults(given)


def _file_fault(given: _Given, setting: str) -> str:
    path = given.path(setting)
    try:
        if path is not None:
            path.open("rb").close()
    except OSError as error:
        cause = (error.strerror or str(error)).lower()
        return f"{given.name(setting)}={path}: {cause}: name a PEM file that this process may read"
    return ""


def _content_faults(given: _Given) -> Iterator[str]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if path := given.get("SSL_CA"):
        try:
            context.load_verify_locations(cafile=path)
        except ssl.SSLError:
            yield f"{given.name('SSL_CA')}={path}: contains no PEM certificate"
    certificate, key = given.get("SSL_CERT"), given.get("SSL_KEY")
    if certificate and key:
        files = f"{given.name('SSL_CERT')}={certificate}, {given.name('SSL_KEY')}={key}"
        fault = f"{files}: not a certificate and its key in PEM format without a password"
        # An encrypted key is not even tried: its author chooses how many hours the decryption takes, and without a
        # password OpenSSL would prompt on the terminal.
        if b"ENCRYPTED" in Path(key).read_bytes():
            yield fault
            return
        try:
            context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError:
            yield fault
