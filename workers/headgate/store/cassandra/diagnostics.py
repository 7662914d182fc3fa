"""Faults in the environment of a connection, each reported as one line: the fault, the place, the remedy."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import cassandra
from cassandra import UnresolvableContactPoints

from headgate.errors import EnvironmentProblem, HeadgateError
from headgate.store.cassandra.driver import driver
from headgate.store.cassandra.settings import ConnectionSettings


def tls_context(settings: ConnectionSettings) -> ssl.SSLContext | None:
    """A context that checks the server's certificate and its host name; None without TLS."""
    if settings.tls is None:
        return None
    ca = settings.tls.ca
    context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
    if settings.tls.certificate is not None and settings.tls.key is not None:
        context.load_cert_chain(settings.tls.certificate, settings.tls.key)
    return context


def check_cluster(metadata: Any, settings: ConnectionSettings, keyspace: str | None) -> None:
    """Reject the wrong cluster, the wrong data center (rule R5), or a missing keyspace."""
    if settings.cluster_name is not None and metadata.cluster_name != settings.cluster_name:
        raise EnvironmentProblem(
            "Another cluster answers at the contact points",
            remedy="set CLUSTER_NAME and CONTACT_POINTS to the same cluster",
            wanted=settings.cluster_name,
            actual=metadata.cluster_name,
        )
    centres = _centres(metadata.all_hosts())
    if settings.data_center is None and len(centres) > 1:
        raise EnvironmentProblem(
            "DATA_CENTER is not set, and the cluster has several data centers",
            remedy=f"set DATA_CENTER to one of {', '.join(centres)}",
        )
    if settings.data_center is not None and settings.data_center not in centres:
        raise _wrong_centre(settings, centres)
    if keyspace is not None and keyspace not in metadata.keyspaces:
        raise EnvironmentProblem(
            "The keyspace does not exist, or the role may not read it",
            remedy="set KEYSPACE, or create it with `headgate apply`",
            keyspace=keyspace,
            at=_points(settings),
        )


def explain(error: Exception, settings: ConnectionSettings, known: Iterable[Any]) -> HeadgateError:
    """Why no connection came to be."""
    if isinstance(error, HeadgateError):
        return error
    if isinstance(error, UnresolvableContactPoints):
        return EnvironmentProblem(
            "No contact point has an address",
            remedy="check the names in CONTACT_POINTS and the name service",
            at=_points(settings),
        )
    centres = _centres(known)
    if settings.data_center is not None and centres and settings.data_center not in centres:
        return _wrong_centre(settings, centres)
    errors = getattr(error, "errors", None) if isinstance(error, driver.NoHostAvailable) else None
    causes = list(errors.values()) if isinstance(errors, dict) and errors else [error]
    for cause in causes:
        if (explanation := _explain_cause(cause, settings)) is not None:
            return explanation
    return EnvironmentProblem(
        "Cassandra cannot be reached",
        remedy="check that it is up, and check CONTACT_POINTS and USE_SSL",
        at=_points(settings),
        cause="; ".join(dict.fromkeys(f"{cause}" for cause in causes)),
    )


def _explain_cause(cause: BaseException, settings: ConnectionSettings) -> EnvironmentProblem | None:
    detail, at = str(cause), _points(settings)
    if isinstance(cause, cassandra.AuthenticationFailed) or "Bad credentials" in detail:
        if settings.username is None:
            return EnvironmentProblem("Cassandra requires a password", remedy="set USERNAME and PASSWORD", at=at)
        message = "Cassandra rejects this user and password"
        return EnvironmentProblem(message, remedy="check USERNAME and PASSWORD", at=at, username=settings.username)
    if isinstance(cause, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in detail:
        if "mismatch" in detail or "not valid for" in detail:
            message = "the server's certificate names another host"
            remedy = "issue a certificate with the address in its SAN, since nodes are known by address"
        else:
            message, remedy = "the server's certificate is not trusted", "set SSL_CA to the authority that signed it"
        return EnvironmentProblem(message, remedy=remedy, at=at)
    if isinstance(cause, ssl.SSLError) or "SSL" in detail:
        return EnvironmentProblem(
            "The TLS handshake with the server failed",
            remedy="check USE_SSL, and whether the server requires SSL_CERT and SSL_KEY",
            at=at,
            cause=detail,
        )
    if isinstance(cause, ConnectionRefusedError) or "Connection refused" in detail:
        message = "No server listens at the contact points"
        return EnvironmentProblem(message, remedy="start Cassandra, or fix CONTACT_POINTS", at=at)
    return None


def _wrong_centre(settings: ConnectionSettings, centres: tuple[str, ...]) -> EnvironmentProblem:
    return EnvironmentProblem(
        "No node is in the data center of this connection",
        remedy=f"set DATA_CENTER to one of {', '.join(centres)}",
        data_center=settings.data_center,
        at=_points(settings),
    )


def _centres(hosts: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted({host.datacenter for host in hosts if host.datacenter is not None}))


def _points(settings: ConnectionSettings) -> str:
    return ",".join(map(str, settings.contact_points))
