"""The operator's leader, found by its Lease and reached by `kubectl port-forward` to its pod, for commands that
people run by their own kubectl.

An operator that does not run in a pod is reached at an address.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click

from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest, Unavailable
from headgate_operator.cli.kubectl import ApiServerUnreachable, Kubectl, ObjectNotFound
from headgate_operator.model.names import INSPECTION_PORT, LEASE_NAME

NAMESPACE: Final = "headgate-system"
LATE: Final = timedelta(seconds=60)
"""How long a Lease is believed after its end, since clocks differ."""
WITHIN_S: Final = 30.0

Command = TypeVar("Command", bound=Callable[..., Any])


class NoLeader(Unavailable):
    """No operator leads."""


class LeaderUnreachable(Unavailable):
    """The leading operator cannot be reached."""


@dataclass(frozen=True)
class LeaderClient:
    """The way to the operator: the URL `address`, or through the cluster."""

    kubectl: Kubectl
    namespace: str = NAMESPACE
    port: int = INSPECTION_PORT
    address: str | None = None

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
            return _read_url(self.address, path, body)
        pod = self.pod()
        try:
            with self._kubectl().forward(pod, self.port) as address:
                return _read_url(address, path, body)
        except (ObjectNotFound, ApiServerUnreachable, LeaderUnreachable) as error:
            remedy = "pass --operator-address if it runs outside of the cluster"
            raise LeaderUnreachable(pod=pod, answer=error.facts.get("answer"), remedy=remedy) from None


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
    )
    for option in reversed(options):
        command = option(command)
    return command


def _read_url(address: str, path: str, body: str | None) -> dict[str, Any]:
    if not address.startswith(("http://", "https://")):
        raise InvalidRequest(f"--operator-address is a URL such as http://127.0.0.1:{INSPECTION_PORT}", given=address)
    data = None if body is None else body.encode()
    request = urllib.request.Request(address.rstrip("/") + path, data=data)  # noqa: S310  http, as checked
    try:
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:  # noqa: S310  as above
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
    if "error" in document:
        raise HeadgateError("The operator answered with an error", answer=document["error"])
    return document


def _parse_time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return None
