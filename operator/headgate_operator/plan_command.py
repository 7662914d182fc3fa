"""`headgate plan -f FILE...`: what would be done, before anything is."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from headgate.api.loader import load_files
from headgate.api.parse import Resource
from headgate.api.queues import Queue
from headgate.api.status import Reason
from headgate.api.versions import document_of
from headgate.errors import SpecError
from headgate_operator.decide_dead_letters import named_by
from headgate_operator.kubectl import Kubectl
from headgate_operator.leader import Leader, leader_options
from headgate_operator.plan_offline import empty_ahead, settings_of, unknown
from headgate_operator.plan_telling import PARTS, Told, lines, tell

EXIT_STALLED = 2
DEAD_LETTER_MISSING = Reason.DEAD_LETTER_MISSING.value
OFFLINE = "what would be done, in this order, where nothing is there yet"
AGAINST = "what would be done, in this order, to what is there now"


@click.command("plan")
@click.option(
    "-f",
    "--filename",
    "named",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file, as kubectl names it; several times, or further FILES after it.",
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option("--context", help="Ask the operator of this cluster, a context of your kubeconfig.")
@click.option("--kubeconfig", help="Ask the operator of the cluster of this kubeconfig.")
@leader_options
@click.option("--only", type=click.Choice(PARTS), help="Nothing but the order, the CQL, or the objects.")
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def command(
    named: tuple[Path, ...], files: tuple[Path, ...], *, only: str | None, as_json: bool, **options: Any
) -> None:
    """Print what the operator would do if the Queues and Counters of FILES were applied, and do nothing.

    Without a cluster: as if nothing were there, with what only a cluster knows in angle brackets. With --context or
    --kubeconfig: the operator that leads there looks and decides. Steps in their order, then the CQL, then the
    objects as they are applied. Exit code 2 if a resource would be stalled: only its author can mend it.
    """
    paths = (*named, *files)
    if not paths:
        raise click.UsageError("Missing option '-f' / '--filename', or FILES.")
    resources = load_files(paths)
    if not resources:
        raise SpecError("no Queue and no Counter in there", files=", ".join(map(str, paths)))
    is_asked = options["context"] or options["kubeconfig"] or options["operator_address"]
    told = _asked(resources, options) if is_asked else _offline(resources)
    if as_json:
        click.echo(json.dumps(told))
    else:
        for line in lines(told, AGAINST if is_asked else OFFLINE, PARTS if only is None else (only,)):
            click.echo(line)
    if any(end["stalled"] for end in told["ends"]):
        raise SystemExit(EXIT_STALLED)


def _offline(resources: Sequence[Resource]) -> Told:
    settings = settings_of(_version())
    ahead = empty_ahead(resources, settings, time.time_ns() // 1000)
    while ahead.turn():
        pass
    return tell(ahead, unknown(resources, settings))


def _asked(resources: Sequence[Resource], options: dict[str, Any]) -> Told:
    """Each resource by itself; what several of them need together is told once. The operator knows one at a time, so
    what it misses and is in these files is said here."""
    kubectl = Kubectl(options["context"], options["kubeconfig"])
    leader = Leader(kubectl, options["operator_namespace"], address=options["operator_address"])
    queues = {(each.metadata.namespace, each.metadata.name) for each in resources if isinstance(each, Queue)}
    told: dict[str, list[Any]] = {"effects": [], "ends": [], "unknown": []}
    for resource in resources:
        answer = leader.tell("/plan", document_of(resource))
        for part, known in told.items():
            known += [each for each in answer.get(part) or () if each not in known]
        if told["ends"] and DEAD_LETTER_MISSING in told["ends"][-1]["says"] and _dead_letters(resource) <= queues:
            told["ends"][-1]["says"] = "Ready, once the dead letter queue of these files is there"
    return told


def _dead_letters(resource: Resource) -> set[tuple[str, str]]:
    """The queues that it names, with their namespace."""
    named = named_by(resource) if isinstance(resource, Queue) else ()
    return {(resource.metadata.namespace, name) for name in named}


def _version() -> str:
    try:
        return version("headgate")
    except PackageNotFoundError:
        return "0.0.0"
