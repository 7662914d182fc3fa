"""`headgate plan -f FILE...`: prints the operator's changes before they are applied."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from headgate.api.read.loader import load_files
from headgate.api.read.parse import Resource
from headgate.api.read.versions import document_of
from headgate.api.resources.queues import QueueResource
from headgate.api.resources.reasons import Reason
from headgate.command_line.arguments import define_command, files_of, files_option
from headgate.command_line.exit_codes import ExitCode
from headgate.command_line.output import Output, format_resource, output_option
from headgate.errors import InvalidRequest
from headgate.process.version import read_version
from headgate_operator.cli.kubectl import Kubectl
from headgate_operator.cli.leader_client import leader_client, leader_options
from headgate_operator.decide.dead_letters import named_by
from headgate_operator.dry_run.format_plan import PARTS, PlanDocument, build_plan_document, lines
from headgate_operator.dry_run.offline import empty_ahead, settings_of, unknown

DEAD_LETTER_MISSING = Reason.DEAD_LETTER_MISSING.value
OFFLINE = "changes in this order, on an empty cluster"
AGAINST = "changes in this order, on the cluster as it is now"


@define_command("plan")
@files_option
@click.option("--context", help="Context of the cluster to ask.")
@click.option("--kubeconfig", help="Kubeconfig of the cluster to ask.")
@leader_options
@click.option("--only", type=click.Choice(PARTS), help="One part of the plan.")
@output_option
def command(*, only: str | None, output: Output, **options: Any) -> None:
    """Show what the operator would do with files.

    Nothing is changed. FILES are YAML; - is standard input. The plan has three parts: the steps in their order, the
    CQL, and the objects.

    Without a cluster the plan is that of an empty one, and values that only a cluster knows are in angle brackets.
    With --context, --kubeconfig or --operator-address the operator of that cluster decides.

    Exit code 2 if a resource would be stalled, which only its author can fix.
    """
    paths = files_of(options)
    resources = load_files(paths)
    if not resources:
        raise InvalidRequest("The files have no Queue and no Counter", files=", ".join(map(str, paths)))
    is_asked = options["context"] or options["kubeconfig"] or options["operator_address"]
    plan = _asked(resources, options) if is_asked else _offline(resources)
    output.show(
        dict(plan),
        table=lambda: lines(plan, AGAINST if is_asked else OFFLINE, PARTS if only is None else (only,)),
        names=[format_resource(each.kind, each.metadata.namespace, each.metadata.name) for each in resources],
    )
    if any(end["stalled"] for end in plan["ends"]):
        raise SystemExit(ExitCode.INVALID)


def _offline(resources: Sequence[Resource]) -> PlanDocument:
    settings = settings_of(read_version())
    ahead = empty_ahead(resources, settings, time.time_ns() // 1000)
    while ahead.turn():
        pass
    return build_plan_document(ahead, unknown(resources, settings))


def _asked(resources: Sequence[Resource], options: dict[str, Any]) -> PlanDocument:
    """One plan per resource; shared changes are listed once. The operator plans one resource at a time, so this adds
    that a missing dead-letter queue is in these files."""
    kubectl = Kubectl(options["context"], options["kubeconfig"])
    leader = leader_client(kubectl, options)
    queues = {(each.metadata.namespace, each.metadata.name) for each in resources if isinstance(each, QueueResource)}
    plan: dict[str, list[Any]] = {"effects": [], "ends": [], "unknown": []}
    for resource in resources:
        answer = leader.post("/plan", document_of(resource))
        for part, known in plan.items():
            known += [each for each in answer.get(part) or () if each not in known]
        if plan["ends"] and DEAD_LETTER_MISSING in plan["ends"][-1]["message"] and _dead_letters(resource) <= queues:
            plan["ends"][-1]["message"] = "Ready, once the dead-letter queue of these files exists"
    return plan


def _dead_letters(resource: Resource) -> set[tuple[str, str]]:
    named = named_by(resource) if isinstance(resource, QueueResource) else ()
    return {(resource.metadata.namespace, name) for name in named}
