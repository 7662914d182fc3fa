"""`kubectl headgate`: what an engineer on call needs, by the engineer's own kubectl, login and rights.

The prose is docs/start-on-call.md. kubectl finds it as the program `kubectl-headgate` on PATH.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import click
import yaml

from headgate.api.resources.reasons import Reason
from headgate.client.model.times import format_time
from headgate.command_line.arguments import DURATION, limit_option, yes_option
from headgate.command_line.exit_codes import exit_code_of
from headgate.command_line.output import FORMS, Output, output_option
from headgate.errors import HeadgateError
from headgate_operator.cli.leader_client import leader_client, leader_options
from headgate_operator.cli.run_in_cluster import run_errand
from headgate_operator.cli.target import Target, kubectl_of, kubectl_options, read_target
from headgate_operator.model.kinds import QUEUE, Document

START_WITHIN: Final = "60s"
KUBECTL: Final = "kubectl"
SHOWN: Final = 5
TRANSIENT: Final = ("Reconciling", "Stalled")
REMEDIES: Final = {reason.value: reason.remedy for reason in Reason}
QUIET: Final = "no change needed"
WIDTH: Final = 118


class Commands(click.Group):
    """Every HeadgateError is one line and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadgateError as error:
            click.echo("\n".join(str(error).splitlines()), err=True)
            raise SystemExit(exit_code_of(error)) from None


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(prog_name="kubectl-headgate", package_name="headgate")
def main() -> None:
    """Explain and operate queues and counters."""


@main.command("why")
@click.argument("resource", metavar="RESOURCE")
@click.option(
    "--last", type=click.IntRange(0), metavar="N", default=SHOWN, show_default=True, help="Number of decisions."
)
@click.option("--inputs", is_flag=True, help="Also the inputs of each decision.")
@output_option
@kubectl_options
@leader_options
def why(resource: str, *, last: int, inputs: bool, output: Output, **options: Any) -> None:
    """Explain the state of a queue or counter.

    Its conditions, what to do, and the operator's last decisions. RESOURCE is queue/NAME, counter/NAME, or the name
    of a queue. `-o json` prints the operator's answer.
    """
    target = read_target(options, resource)
    leader = leader_client(kubectl_of(options), options)
    if output.is_table:
        for line in (str(target), age_line(target.document), *condition_lines(target.document)):
            if line:
                click.echo(line)
    answer = leader.ask(f"/why/{target.kind.kind.lower()}/{target.namespace}/{target.name}")

    def decisions() -> list[str]:
        known = answer.get("decisions") or []
        head = f"\n{_count(len(known))} recorded by {answer.get('leader') or 'the leader'}"
        return [head, *decision_lines(known, last, with_inputs=inputs)]

    output.show(answer, table=decisions, names=[f"{target.kind.kind.lower()}/{target.namespace}/{target.name}"])


def _count(number: int) -> str:
    return {0: "no decision", 1: "1 decision"}.get(number, f"{number} decisions")


# ---- by a Job in the queue's namespace


def job_options(command: Any) -> Any:
    image = click.option("--image", help="Image of the Job. Default: the operator's.")
    start_timeout = click.option(
        "--start-timeout",
        type=DURATION,
        default=START_WITHIN,
        show_default=True,
        help="Maximum time until the Job starts.",
    )
    return image(start_timeout(command))


def _run(target: Target, task: str, words: list[str], options: dict[str, Any]) -> None:
    queue = f"{target.namespace}/{target.name}"
    command = ["headgate", words[0], queue, *words[1:]]
    if options["output"].form != FORMS[0]:
        command += ["--output", options["output"].form]
    code = run_errand(
        target, task, command, image=options["image"], start_within_s=options["start_timeout"].total_seconds()
    )
    if code:
        raise SystemExit(code)


@main.command("lanes")
@click.argument("queue", metavar="QUEUE")
@output_option
@job_options
@kubectl_options
def lanes(queue: str, **options: Any) -> None:
    """Show the lanes of a queue.

    It shows the messages of the queue, and the owner, lease and position of each lane.
    """
    _run(read_target(options, queue, only=QUEUE), "lanes", ["stats", "--lanes"], options)


@main.command("redrive")
@click.argument("queue", metavar="QUEUE")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this message. Repeatable.")
@click.option("--reason", metavar="TEXT", help="Only messages with TEXT in their reason.")
@click.option("--to", metavar="NAMESPACE/NAME", help="Target queue. Default: its source queue.")
@limit_option(default=None)
@output_option
@job_options
@kubectl_options
def redrive(
    queue: str, *, ids: tuple[str, ...], reason: str | None, to: str | None, limit: int | None, **options: Any
) -> None:
    """Move dead letters back to their source."""
    words = ["redrive", *(word for id_ in ids for word in ("--id", id_))]
    for option, value in (("--reason", reason), ("--to", to), ("--limit", limit)):
        if value is not None:
            words += [option, str(value)]
    _run(read_target(options, queue, only=QUEUE), "redrive", words, options)


@main.command("purge")
@click.argument("queue", metavar="QUEUE")
@click.option("--until", metavar="TIME", help="End (exclusive): an ISO time, or an age.")
@yes_option
@output_option
@job_options
@kubectl_options
def purge(queue: str, *, until: str | None, yes: bool, **options: Any) -> None:
    """Delete all messages of a queue.

    Delayed messages are deleted too. A purge cannot be undone. `kubectl headgate lanes` shows how many there are.
    """
    target = read_target(options, queue, only=QUEUE)
    if not yes:
        which = "all messages" if until is None else f"messages put before {until}"
        click.confirm(f"Delete {which} in {target}?", abort=True, err=True)
    _run(target, "purge", ["purge", "--yes", *(["--until", until] if until else [])], options)


# ---- pausing


@main.command("pause")
@click.argument("resource", metavar="RESOURCE")
@kubectl_options
def pause(resource: str, **options: Any) -> None:
    """Stop the operator's changes to a resource.

    Its workers continue.
    """
    _set_paused(read_target(options, resource), paused=True)


@main.command("resume")
@click.argument("resource", metavar="RESOURCE")
@kubectl_options
def resume(resource: str, **options: Any) -> None:
    """Resume the operator's changes to a resource."""
    _set_paused(read_target(options, resource), paused=False)


def _set_paused(target: Target, *, paused: bool) -> None:
    word = "paused" if paused else "not paused"
    if bool(target.spec.get("paused")) is paused:
        click.echo(f"{target} is {word} already")
        return
    patch = json.dumps({"spec": {"paused": paused}})
    target.kubectl.run("patch", target.kind.resource, target.name, "--type=merge", "--patch", patch)
    click.echo(f"{target} is {word}")
    others = ", ".join(_appliers(target))
    source = f"{others} applies its spec and" if others else "a spec from git (Argo CD, Flux)"
    click.echo(f"note: {source} will revert this, so change spec.paused at its source too")


def _appliers(target: Target) -> list[str]:
    """Programs that apply its spec, by its managed fields; without kubectl and Headgate."""
    managers = {
        str(each.get("manager"))
        for each in target.document["metadata"].get("managedFields") or ()
        if "f:spec" in (each.get("fieldsV1") or {}) and not each.get("subresource")
    }
    return sorted(name for name in managers if not name.startswith((KUBECTL, "headgate")))


def condition_lines(document: Document) -> Iterator[str]:
    conditions: Sequence[Document] = (document.get("status") or {}).get("conditions") or ()
    if not conditions:
        yield "the operator has not reported a status yet"
    for one in conditions:
        if one["type"] in TRANSIENT or (one["status"] == "True" and one["type"] != "Ready"):
            continue
        yield f"{one['type']} is {one['status']}, {one['reason']}, since {one.get('lastTransitionTime', 'never')}"
        if one.get("message"):
            yield f"  {one['message']}"
        remedy = REMEDIES.get(one["reason"], "") if one["status"] != "True" else ""
        if remedy:
            yield f"  remedy: {remedy}"


def decision_lines(decisions: Sequence[Document], shown: int, *, with_inputs: bool) -> Iterator[str]:
    """The last of them, the latest last."""
    for one in decisions[-shown:] if shown else ():
        yield ""
        yield format_time(one.get("at_us"))
        sentences = [
            *(one.get("trail") or ()),
            *(f"checks whether it exists: {each}" for each in one.get("asks") or ()),
        ]
        yield from (f"  {sentence}" for sentence in sentences or (QUIET,))
        yield from (f"  effect: {effect}" for effect in one.get("effects") or ())
        if one.get("outcome"):
            yield f"  error: {one['outcome']}"
        if one.get("again_at_us"):
            yield f"  decides again at {format_time(one['again_at_us'])}"
        if with_inputs:
            yield "  inputs:"
            text = yaml.safe_dump(one.get("rested_on"), sort_keys=False, width=WIDTH, allow_unicode=True)
            yield from (f"    {line}" for line in text.splitlines())


def age_line(document: Document, now: datetime | None = None) -> str:
    """A note if the status is of an older spec."""
    generation = document["metadata"].get("generation")
    observed = (document.get("status") or {}).get("observedGeneration")
    if generation is None or observed == generation:
        return ""
    when = f"{now or datetime.now(UTC):%H:%M:%S}"
    return (
        f"the spec was changed (generation {generation}), and as of {when} UTC the operator has not decided about it"
    )


if __name__ == "__main__":
    main()
