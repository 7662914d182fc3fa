"""The facts that a client needs about a Cassandra of any source: names, not processes.

The environment variables are those that every process of Headgate reads, so a test, a pod and `make demo` learn of a
server in one way.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from headgate.errors import InvalidRequest
from headgate.store.connection_variables import VARIABLES, connection_variables, prefixed

NATIVE_PORT = 9042


@dataclass(frozen=True)
class ContactPoint:
    """An address that answers CQL."""

    host: str
    port: int = NATIVE_PORT

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of a client: the trusted authorities, and its certificate where the server requires one."""

    ca: Path
    certificate: Path | None = None
    key: Path | None = None

    def context(self) -> ssl.SSLContext:
        """A context that checks the server's certificate and its host name."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True)
class Connection:
    """The address and credentials of a cluster."""

    contact_points: tuple[ContactPoint, ...]
    data_center: str = "datacenter1"
    username: str | None = None
    password: str | None = None
    tls: TlsFiles | None = None
    keyspace: str = "headgate"
    cluster_name: str = "headgate-test"

    def as_role(self, username: str, password: str) -> Connection:
        """The same cluster, as another user."""
        return replace(self, username=username, password=password)

    def environment(self) -> dict[str, str]:
        """The variables by which a process of Headgate finds this Cassandra.

        Those with the prefix are set and empty, so that these variables override any other environment. A test never
        reaches the Cassandra of a developer's HEADGATE_CONTACT_POINTS.
        """
        variables = {
            **prefixed(dict.fromkeys(VARIABLES, "")),
            "CONTACT_POINTS": ",".join(str(point) for point in self.contact_points),
            "DATA_CENTER": self.data_center,
            "KEYSPACE": self.keyspace,
            "CLUSTER_NAME": self.cluster_name,
            "USE_SSL": "false" if self.tls is None else "true",
        }
        if self.username is not None and self.password is not None:
            variables |= {"USERNAME": self.username, "PASSWORD": self.password}
        if self.tls is not None:
            variables["SSL_CA"] = str(self.tls.ca)
            if self.tls.certificate is not None and self.tls.key is not None:
                variables |= {"SSL_CERT": str(self.tls.certificate), "SSL_KEY": str(self.tls.key)}
        return variables


def read_connection(environment: Mapping[str, str]) -> Connection:
    """The connection in the variables; the inverse of `Connection.environment`."""
    environment = connection_variables(environment)
    points = parse_contact_points(environment.get("CONTACT_POINTS", ""))
    tls = None
    if parse_switch("USE_SSL", environment.get("USE_SSL", "false")):
        named = {name: Path(environment[name]) for name in ("SSL_CA", "SSL_CERT", "SSL_KEY") if environment.get(name)}
        if "SSL_CA" not in named:
            raise InvalidRequest(
                "USE_SSL is on, but no authority is trusted", remedy="set SSL_CA to the file of the authority"
            )
        tls = TlsFiles(named["SSL_CA"], named.get("SSL_CERT"), named.get("SSL_KEY"))
    return Connection(
        contact_points=points,
        data_center=environment.get("DATA_CENTER") or "datacenter1",
        username=environment.get("USERNAME") or None,
        password=environment.get("PASSWORD") or None,
        tls=tls,
        keyspace=environment.get("KEYSPACE") or "headgate",
        cluster_name=environment.get("CLUSTER_NAME") or "headgate-test",
    )


def parse_contact_points(text: str) -> tuple[ContactPoint, ...]:
    """`host[:port]` separated by commas; an IPv6 address with a port is in brackets."""
    points = tuple(_contact_point(part.strip()) for part in text.split(",") if part.strip())
    if not points:
        raise InvalidRequest("No contact point is named", remedy="set CONTACT_POINTS to host[:port],host[:port]")
    return points


def _contact_point(text: str) -> ContactPoint:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port = text, ""
    else:
        host, _, port = text.partition(":")
    if not host or (port and not (port.isdecimal() and 0 < int(port) < 65536)):
        raise InvalidRequest("Invalid contact point", remedy="write host or host:port", got=text)
    return ContactPoint(host, int(port) if port else NATIVE_PORT)


def parse_switch(name: str, text: str) -> bool:
    """true or false, in the usual spellings of environment variables."""
    lowered = text.strip().lower()
    if lowered in {"true", "1", "yes", "on"}:
        return True
    if lowered in {"false", "0", "no", "off", ""}:
        return False
    raise InvalidRequest("Neither true nor false", remedy="write true or false", name=name, got=text)
