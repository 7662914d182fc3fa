"""`python3 -m headgate_operator.install.crds`: the CustomResourceDefinitions of this image, made or brought up to
date.

The chart runs it in a Job before it installs or upgrades anything else. It may be run again, by several at a time;
what is decided about each definition is in `install/decide_crds.py`. It ends once the API server serves them.
"""

from __future__ import annotations

import asyncio
from typing import Final

import click

from headgate.errors import OperationRefused, Unavailable
from headgate.process.version import read_version
from headgate_operator.cluster.port import ApiObject, Denied
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.install.decide_crds import CrdStep, decide_crd, definitions
from headgate_operator.install.hook import cluster_options, request_until_answered, run_to_its_end
from headgate_operator.model.kinds import CRD, Document, ObjectAddress
from headgate_operator.model.names import MANAGER

TRIES: Final = 5
SERVED_WITHIN_S: Final = 60.0
POLL_EVERY_S: Final = 0.2


class CrdRefused(OperationRefused):
    """A CustomResourceDefinition cannot be updated to this version."""


@click.command("bring_crds", context_settings={"help_option_names": ["-h", "--help"]})
@cluster_options
def main(kubeconfig: str | None, context: str | None) -> None:
    """The CustomResourceDefinitions of this image, made or brought up to date."""
    run_to_its_end(lambda cluster: bring_crds(cluster, read_version()), kubeconfig=kubeconfig, context=context)


async def bring_crds(port: ClusterPort, version: str) -> None:
    """All of them; raises for the first that cannot be updated."""
    for wanted in definitions(version):
        step = await _bring(port, wanted)
        click.echo(f"crd {wanted['metadata']['name']} {step.message}")
    for wanted in definitions(version):
        await _until_served(port, str(wanted["metadata"]["name"]))


async def _bring(port: ClusterPort, wanted: Document) -> CrdStep:
    at = ObjectAddress(CRD, None, str(wanted["metadata"]["name"]))
    denied: Denied | None = None
    for _ in range(TRIES):
        existing = await request_until_answered(lambda: port.get(at))
        step = decide_crd(existing.document if isinstance(existing, ApiObject) else None, wanted)
        if step.do == "refuse":
            raise CrdRefused(crd=at.name, reason=step.message)
        if step.document is None:
            return step
        document = step.document
        if step.do == "make":
            done = await port.apply(document, manager=MANAGER)
        else:
            done = await port.replace(document, manager=MANAGER)
        if isinstance(done, ApiObject):
            return step
        denied = done
        if done.is_permanent:
            break
    raise CrdRefused(crd=at.name, answer=str(denied))


async def _until_served(port: ClusterPort, name: str) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + SERVED_WITHIN_S
    while not _is_served(await request_until_answered(lambda: port.get(ObjectAddress(CRD, None, name)))):
        if loop.time() > deadline_s:
            raise Unavailable("The API server does not serve the CRD", crd=name, waited_s=SERVED_WITHIN_S)
        await asyncio.sleep(POLL_EVERY_S)


def _is_served(answer: ApiObject | Denied) -> bool:
    if isinstance(answer, Denied):
        return False
    conditions = (answer.document.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


if __name__ == "__main__":
    main()
