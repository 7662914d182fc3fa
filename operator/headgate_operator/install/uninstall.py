"""`python3 -m headgate_operator.install.uninstall`: runs before an uninstall, so that nothing stays that only the
operator can end.

The chart runs it in a Job before it deletes anything. It refuses while a resource has `deletionPolicy: Delete`. Else
it ends the operator, removes finalizers and deletes the Lease. With `--remove` it first deletes all resources with
their children, and then the CustomResourceDefinitions; the data stay in Cassandra, as under Retain. The decisions are
in `install/decide_uninstall.py`. It may be run again, also without a running operator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import click

from headgate.errors import OperationRefused, Unavailable
from headgate_operator.cluster.port import Denial, Denied
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.install.decide_crds import NAMES
from headgate_operator.install.decide_uninstall import (
    OF_A_TEST,
    UninstallPlan,
    address_of_resource,
    decide_leaving,
    format_few,
    format_leftover,
    without_finalizer,
)
from headgate_operator.install.hook import cluster_options, request_until_answered, run_to_its_end
from headgate_operator.model.kinds import (
    COUNTER,
    CRD,
    CRON_JOB,
    DEPLOYMENT,
    LEASE,
    POD,
    QUEUE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Document,
    ObjectAddress,
    ResourceKind,
)
from headgate_operator.model.names import CONNECTION_COPY, LEASE_NAME, MANAGER

OURS: Final = "app.kubernetes.io/managed-by=headgate"
OF_NAMESPACES: Final = (CRON_JOB, ROLE_BINDING, SERVICE_ACCOUNT)
"""Children that no resource owns, in addition to the copies of the Secret."""
PAGE: Final = 500
ENDING_WITHIN_S: Final = 150.0
BY_THE_OPERATOR_WITHIN_S: Final = 20.0
GONE_WITHIN_S: Final = 60.0
"""In addition to the time for the operator. A cluster's collector learns of a new kind after half a minute, and
retries earlier objects with doubling pauses: measured are at most 41 s, and usually 0.2 s."""
POLL_EVERY_S: Final = 0.5


class DataWouldBeOrphaned(OperationRefused):
    """Resources have deletionPolicy: Delete, and no operator would be left to drop their data."""


@dataclass(frozen=True)
class OperatorInstallation:
    namespace: str
    deployment: str
    selector: str
    """Label selector of its pods."""


@click.command("leave", context_settings={"help_option_names": ["-h", "--help"]})
@cluster_options
@click.option("--namespace", required=True, help="Namespace of the operator.")
@click.option("--deployment", required=True, help="Deployment of the operator.")
@click.option("--selector", required=True, help="Label selector of the operator's pods.")
@click.option("--remove/--keep", help="Removal of all resources and the CRDs.")
def main(
    kubeconfig: str | None, context: str | None, namespace: str, deployment: str, selector: str, *, remove: bool
) -> None:
    """Prepare an uninstall: refuse while data would be orphaned, else remove finalizers. Data stay in Cassandra."""
    installation = OperatorInstallation(namespace, deployment, selector)
    run_to_its_end(
        lambda cluster: leave(cluster, installation, remove=remove), kubeconfig=kubeconfig, context=context
    )


async def leave(port: ClusterPort, installation: OperatorInstallation, *, remove: bool) -> None:
    """All of it, in the order in which nothing can be left over."""
    resources = await _decided(port, remove=remove)
    namespaces = await _namespaces(port, resources)
    await _release(port, resources)
    for document in resources.remove:
        await _delete(port, address_of_resource(document))
    if remove:
        await _until_removed(port, namespaces)
    await _end_operator(port, installation)
    await _release(port, await _read_plan(port, remove=False))  # finalizers that an operator may have set at last
    if remove:
        for name in NAMES:
            await _delete(port, ObjectAddress(CRD, None, name))
    await _delete(port, ObjectAddress(LEASE, installation.namespace, LEASE_NAME))
    for document in await _all(port, POD, OF_A_TEST, namespace=installation.namespace):
        await _delete(port, ObjectAddress(POD, installation.namespace, str(document["metadata"]["name"])))


async def _decided(port: ClusterPort, *, remove: bool) -> UninstallPlan:
    """The decision; refused while data would be orphaned, and waits while data are being dropped."""
    plan = UninstallPlan()

    async def nothing_ends() -> bool:
        nonlocal plan
        plan = await _read_plan(port, remove=remove)
        return bool(plan.refused) or not plan.ending

    if not await _until(nothing_ends, ENDING_WITHIN_S):
        raise Unavailable(
            "Resources are being deleted with their data, which needs an operator",
            resources=format_few(plan.ending),
            remedy="wait for them or set `deletionPolicy: Retain`, and uninstall again",
        )
    if plan.refused:
        raise DataWouldBeOrphaned(
            resources=format_few(plan.refused),
            remedy="delete them, or set `deletionPolicy: Retain` to keep their data, and uninstall again",
        )
    return plan


async def _read_plan(port: ClusterPort, *, remove: bool) -> UninstallPlan:
    everything = [each for kind in (QUEUE, COUNTER) for each in await _all(port, kind)]
    return decide_leaving(everything, remove=remove)


async def _release(port: ClusterPort, resources: UninstallPlan) -> None:
    for document in resources.release:
        at = address_of_resource(document)
        done = await port.patch(at, without_finalizer(document), manager=MANAGER)
        if not isinstance(done, Denied):
            click.echo(f"{at}: finalizer removed")


async def _namespaces(port: ClusterPort, resources: UninstallPlan) -> frozenset[str]:
    """Namespaces that may have objects of the operator without an owner."""
    children = [each for kind in OF_NAMESPACES for each in await _all(port, kind, OURS)]
    return frozenset(str(each["metadata"]["namespace"]) for each in (*resources.remove, *children))


async def _until_removed(port: ClusterPort, namespaces: Iterable[str]) -> None:
    """The operator removes its children and notes in the catalogue that data stay; this removes the rest."""

    await _until(
        lambda: _none_of(port, (QUEUE, COUNTER, *OF_NAMESPACES)), BY_THE_OPERATOR_WITHIN_S
    )  # without a running operator this waits in vain
    for kind in OF_NAMESPACES:
        for document in await _all(port, kind, OURS):
            metadata = document["metadata"]
            await _delete(port, ObjectAddress(kind, str(metadata["namespace"]), str(metadata["name"])))
    for namespace in sorted(namespaces):
        await _delete_copy(port, namespace)
    collected = (QUEUE, COUNTER, DEPLOYMENT)
    if not await _until(lambda: _none_of(port, collected), GONE_WITHIN_S):
        left = await _left_of(port, collected)
        raise Unavailable(
            "Resources or their children still exist",
            waited_s=GONE_WITHIN_S,
            left=format_few(format_leftover(each) for each in left),
            remedy="check their finalizers, and uninstall again",
        )


async def _none_of(port: ClusterPort, kinds: Sequence[ResourceKind]) -> bool:
    return not await _left_of(port, kinds)


async def _left_of(port: ClusterPort, kinds: Sequence[ResourceKind]) -> list[Document]:
    return [each for kind in kinds for each in await _all(port, kind, _mark(kind))]


async def _delete_copy(port: ClusterPort, namespace: str) -> None:
    secret = await request_until_answered(
        lambda: port.get(ObjectAddress(SECRET, namespace, CONNECTION_COPY), metadata_only=True)
    )
    if isinstance(secret, Denied):
        return
    labels = secret.document["metadata"].get("labels") or {}
    if labels.get("app.kubernetes.io/managed-by") == "headgate":
        await _delete(port, ObjectAddress(SECRET, namespace, CONNECTION_COPY))


async def _end_operator(port: ClusterPort, installation: OperatorInstallation) -> None:
    """End all its processes, so that none of them recreates the objects that are removed next."""
    at = ObjectAddress(DEPLOYMENT, installation.namespace, installation.deployment)
    done = await request_until_answered(lambda: port.patch(at, {"spec": {"replicas": 0}}, manager=MANAGER))
    if isinstance(done, Denied):
        return

    async def is_gone() -> bool:
        page = await request_until_answered(
            lambda: port.list(POD, installation.namespace, labels=installation.selector, metadata_only=True)
        )
        return isinstance(page, Denied) or not page.items

    if not await _until(is_gone, GONE_WITHIN_S):
        raise Unavailable("The operator does not end", deployment=str(at), waited_s=GONE_WITHIN_S)
    click.echo(f"{at}: ended")


async def _all(
    port: ClusterPort, kind: ResourceKind, labels: str = "", *, namespace: str | None = None
) -> list[Document]:
    documents: list[Document] = []
    more: str | None = None
    while True:
        page = await request_until_answered(partial(port.list, kind, namespace, labels=labels, limit=PAGE, more=more))
        if isinstance(page, Denied):
            return documents
        documents += [{**each, "kind": kind.kind} for each in page.items]
        more = page.more
        if more is None:
            return documents


async def _delete(port: ClusterPort, at: ObjectAddress) -> None:
    deleted = await request_until_answered(lambda: port.delete(at))
    if not (isinstance(deleted, Denied) and deleted.denial is Denial.NOT_FOUND):
        click.echo(f"{at}: deleted")


def _mark(kind: ResourceKind) -> str:
    return "" if kind in (QUEUE, COUNTER) else OURS


async def _until(holds: Callable[[], Awaitable[bool]], within_s: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + within_s
    while not await holds():
        if loop.time() > deadline_s:
            return False
        await asyncio.sleep(POLL_EVERY_S)
    return True


if __name__ == "__main__":
    main()
