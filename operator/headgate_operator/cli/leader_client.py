"""The operator's leader, found by its Lease and reached by `kubectl port-forward` to its pod, for commands that
people run by their own kubectl.

An operator that does not run in a pod is reached at an address.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest, Unavailable
from headgate_operator.cli.kubectl import ApiServerUnreachable, Kubectl, ObjectNotFound
from headgate_operator.model.names import INSPECTION_PORT, LEASE_NAME

NAMESPACE: Final = "headgate-system"
LATE: Final = timedelta(seconds=60)
"""How long a Lease is believed after its end, since clocks differ."""
WITHIN_S: Final = 30.0
STANDBY_TRIES: Final = 8
"""At an address that several operators share, each try reaches one of them."""

Command = TypeVar("Command", bound=Callable[..., Any])


class NoLeader(Unavailable):
    """No operator leads."""


class LeaderUnreachable(Unavailable):
    """The leading operator cannot be reached."""


class StandbyReached(Unavailable):
    """The operator at this address stands by."""


@dataclass(frozen=True)
class LeaderClient:
    """The way to the operator: the URL `address`, or through the cluster."""

    kubectl: Kubectl
    namespace: str = NAMESPACE
    port: int = INSPECTION_PORT
    address: str | None = None
    token: Path | None = None
    """A file with the token for `address`."""
    authority: Path | None = None
    """A file with the certificates that are trusted for `address`."""

    def ask(self, path: str) -> dict[str, Any]:
        return self._read(path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        return self._read(path, json.dumps(body, separators=(",", ":"), ensure_ascii=False))

    def pod(self) -> str:
        see = f"see `kubectl get pods -n {self.namespace}`"
        try:
            lease = self._kubectl().read("get", "lease", LEASE_NAME, "-o", "json")
        except ObjectNotFound:
            raise NoLeader(namespace=self.namespace, remedy=f"{see}, or pass --operator-namespace") from None
        spec = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if not holder:
            raise NoLeader(namespace=self.namespace, remedy=see)
        renewed = _parse_time(spec.get("renewTime"))
        ttl = timedelta(seconds=int(spec.get("leaseDurationSeconds") or 15))
        if renewed is None or datetime.now(UTC) - renewed > ttl + LATE:
            since = "ever" if renewed is None else f"{renewed:%Y-%m-%dT%H:%M:%SZ}"
            raise NoLeader("No operator leads any more", last=holder, silent_since=since, remedy=see)
        return holder.split("_", maxsplit=1)[0]

    def _kubectl(self) -> Kubectl:
        return replace(self.kubectl, namespace=self.namespace)

    def _read(self, path: str, body: str | None) -> dict[str, Any]:
        if self.address is not None:
            return self._read_address(self.address, path, body)
        pod = self.pod()
        try:
            with self._kubectl().forward(pod, self.port) as address:
                return _read_url(address, path, body)
        except (ObjectNotFound, ApiServerUnreachable, LeaderUnreachable) as error:
            remedy = "pass --operator-address if it runs outside of the cluster"
            raise LeaderUnreachable(pod=pod, answer=error.facts.get("answer"), remedy=remedy) from None

    def _read_address(self, address: str, path: str, body: str | None) -> dict[str, Any]:
        """The answer of the leader: one of several operators at the address leads, and the others refer to it."""
        headers = {}
        if self.token is not None:
            if not address.startswith("https://"):
                raise InvalidRequest("A token is sent to https:// addresses only", given=address)
            headers["Authorization"] = f"Bearer {_read_token(self.token)}"
        for _ in range(STANDBY_TRIES - 1):
            with suppress(StandbyReached):
                return _read_url(address, path, body, headers=headers, authority=self.authority)
        return _read_url(address, path, body, headers=headers, authority=self.authority)


def leader_options(command: Command) -> Command:
    options = (
        click.option(
            "--operator-namespace",
            envvar="HEADGATE_NAMESPACE",
            default=NAMESPACE,
            show_default=True,
            metavar="NAMESPACE",
            help="Namespace of the operator.",
        ),
        click.option(
            "--operator-address",
            metavar="URL",
            help="URL of the operator. Default: by its Lease.",
        ),
        click.option(
            "--operator-token",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="File with a token for that URL.",
        ),
        click.option(
            "--operator-ca",
            metavar="FILE",
            type=click.Path(path_type=Path),
            help="File with the CA of that URL.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def leader_client(kubectl: Kubectl, options: Mapping[str, Any]) -> LeaderClient:
    """By the options of the command."""
    return LeaderClient(
        kubectl,
        options["operator_namespace"],
        address=options["operator_address"],
        token=options["operator_token"],
        authority=options["operator_ca"],
    )


def _read_token(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, ValueError) as error:
        raise EnvironmentProblem("The token cannot be read", file=str(file), cause=str(error)) from None


def _trusted(authority: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if authority is None else str(authority))
    except (OSError, ValueError) as error:
        raise EnvironmentProblem("The CA cannot be read", file=str(authority), cause=str(error)) from None


def _read_url(
    address: str,
    path: str,
    body: str | None,
    *,
    headers: Mapping[str, str] | None = None,
    authority: Path | None = None,
) -> dict[str, Any]:
    if not address.startswith(("http://", "https://")):
        raise InvalidRequest(f"--operator-address is a URL such as http://127.0.0.1:{INSPECTION_PORT}", given=address)
    data = None if body is None else body.encode()
    request = urllib.request.Request(  # noqa: S310  http, as checked
        address.rstrip("/") + path, data=data, headers=dict(headers or {})
    )
    trusted = _trusted(authority) if address.startswith("https://") else None
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S, context=trusted) as answer:  # noqa: S310  as above
            document = json.load(answer)
    except urllib.error.HTTPError as error:
        try:
            document = json.loads(error.read())
        except ValueError:
            document = None
        if not isinstance(document, dict) or "error" not in document:
            raise LeaderUnreachable(address=address, status=error.code) from None
    except (OSError, ValueError) as error:
        raise LeaderUnreachable(address=address, answer=getattr(error, "reason", error)) from None
    if not isinstance(document, dict):
        raise EnvironmentProblem("The address is not of a Headgate operator", address=address)
    if document.get("standby") is True:
        raise StandbyReached(answer=document.get("error"), remedy="retry, or pass the address of the leader")
    if "error" in document:
        raise HeadgateError("The operator answered with an error", answer=document["error"])
    return document


def _parse_time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
