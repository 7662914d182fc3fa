"""The resource of a `kubectl headgate` command: `queue/emails`, in kubectl's namespace and cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import click

from headgate.errors import InvalidRequest
from headgate_operator.cli.kubectl import Kubectl, ObjectNotFound
from headgate_operator.model.kinds import COUNTER, QUEUE, ResourceKind

NAMES: Final[Mapping[str, ResourceKind]] = {
    name: kind
    for kind, short in ((QUEUE, "hgq"), (COUNTER, "hgc"))
    for name in (kind.kind.lower(), kind.plural, short, kind.resource, f"{kind.kind.lower()}.{kind.group}")
}

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Target:
    kubectl: Kubectl
    """In its namespace."""
    kind: ResourceKind
    document: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"]["namespace"])

    @property
    def spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.document.get("spec") or {}
        return spec

    def __str__(self) -> str:
        return f"{self.kind.kind.lower()} {self.namespace}/{self.name}"


def kubectl_options(command: Command) -> Command:
    """Options of the cluster and the namespace, as kubectl's own."""
    options = (
        click.option("-n", "--namespace", help="Namespace. Default: of your context."),
        click.option("--context", help="Context. Default: the current one."),
        click.option("--kubeconfig", help="Kubeconfig. Default: that of kubectl."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def kubectl_of(options: Mapping[str, Any]) -> Kubectl:
    return Kubectl(options["context"], options["kubeconfig"], options["namespace"])


def read_target(options: Mapping[str, Any], text: str, *, only: ResourceKind | None = None) -> Target:
    kind, name = parse_target(text)
    if only is not None and kind is not only:
        raise InvalidRequest(f"This command takes a {only.kind.lower()}, not a {kind.kind.lower()}", given=text)
    kubectl = kubectl_of(options)
    try:
        document = kubectl.read("get", kind.resource, name, "-o", "json", "--show-managed-fields")
    except ObjectNotFound:
        where = f"in namespace {kubectl.namespace}" if kubectl.namespace else "in the namespace of your context"
        remedy = f"see `kubectl get {kind.plural} -A`"
        raise ObjectNotFound(f"There is no {kind.kind.lower()} {name} {where}", remedy=remedy) from None
    return Target(replace(kubectl, namespace=document["metadata"]["namespace"]), kind, document)


def parse_target(text: str) -> tuple[ResourceKind, str]:
    """`queue/emails`, `counter/views`; a name alone is a queue's."""
    kind, slash, name = text.rpartition("/")
    if not slash:
        return QUEUE, name
    resource_kind = NAMES.get(kind.lower())
    if resource_kind is None or not name:
        raise InvalidRequest("The name of a resource is like queue/emails or counter/views", given=text)
    return resource_kind, name
