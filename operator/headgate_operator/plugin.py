"""`kubectl headgate`: commands for an engineer on call, by the engineer's own kubectl, with its login and rights.

The prose is docs/start-on-call.md. kubectl finds it as the program `kubectl-headgate` on PATH.
"""

from __future__ import annotations

import json
from typing import Any, Final

import click

from headgate.cli.main import EXIT_FAILED, EXIT_SPEC
from headgate.errors import HeadgateError, SpecError
from headgate_operator.kinds import QUEUE
from headgate_operator.leader import Leader, leader_options
from headgate_operator.plugin_jobs import run_errand
from headgate_operator.plugin_target import Target, kubectl_of, kubectl_options, read_target
from headgate_operator.plugin_why import SHOWN, age_line, condition_lines, decision_lines

START_WITHIN_S: Final = 60.0
KUBECTL: Final = "kubectl"


class Commands(click.Group):
    """Prints every HeadgateError as one line, and sets an exit code by its class."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadgateError as error:
            click.echo("\n".join(str(error).splitlines()), err=True)
            raise SystemExit(EXIT_SPEC if isinstance(error, SpecError) else EXIT_FAILED) from None


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(prog_name="kubectl-headgate", package_name="headgate")
def main() -> None:
    """Inspect and control the queues and counters of Headgate."""


@main.command("why")
@click.argument("resource", metavar="RESOURCE")
@click.option("--last", type=click.IntRange(0), default=SHOWN, show_default=True, help="Number of decisions.")
@click.option("--inputs", is_flag=True, help="Inputs of each decision too.")
@click.option("--json", "as_json", is_flag=True, help="JSON of the leader's answer.")
@kubectl_options
@leader_options
def why(resource: str, *, last: int, inputs: bool, as_json: bool, **options: Any) -> None:
    """Explain the state of a resource: conditions, remedies, and the operator's last decisions.

    RESOURCE is queue/NAME, counter/NAME, or the name of a queue.
    """
    target = read_target(options, resource)
    leader = Leader(kubectl_of(options), options["operator_namespace"], address=options["operator_address"])
    if not as_json:
        for line in (str(target), age_line(target.document), *condition_lines(target.document)):
            if line:
                click.echo(line)
    answer = leader.ask(f"/why/{target.kind.kind.lower()}/{target.namespace}/{target.name}")
    if as_json:
        click.echo(json.dumps(answer))
        return
    decisions = answer.get("decisions") or []
    click.echo(f"\n{_count(len(decisions))} in the memory of {answer.get('leader') or 'the leader'}")
    for line in decision_lines(decisions, last, with_inputs=inputs):
        click.echo(line)


def _count(number: int) -> str:
    return {0: "no decision", 1: "1 decision"}.get(number, f"{number} decisions")


# ---- by a Job in the queue's namespace


def job_options(command: Any) -> Any:
    """Options of the Job."""
    image = click.option("--image", help="Image of the Job. Default: the operator's.")
    timeout = click.option(
        "--timeout", type=float, default=START_WITHIN_S, show_default=True, help="Seconds until the Job has to start."
    )
    return image(timeout(command))


def _run(target: Target, task: str, words: list[str], options: dict[str, Any]) -> None:
    queue = f"{target.namespace}/{target.name}"
    told = ["headgate", words[0], "--queue", queue, *words[1:]]
    code = run_errand(target, task, told, image=options["image"], start_within_s=options["timeout"])
    if code:
        raise SystemExit(code)


@main.command("lanes")
@click.argument("queue", metavar="QUEUE")
@click.option("--json", "as_json", is_flag=True, help="JSON instead of text.")
@job_options
@kubectl_options
def lanes(queue: str, *, as_json: bool, **options: Any) -> None:
    """Show the counts of a queue, and its lanes with owner, lease and position."""
    words = ["stats", "--lanes", *(["--json"] if as_json else [])]
    _run(read_target(options, queue, only=QUEUE), "lanes", words, options)


@main.command("redrive")
@click.argument("queue", metavar="QUEUE")
@click.option("--to", metavar="NAMESPACE/NAME", help="Target queue. Default: each message's source queue.")
@click.option(
    "--limit", type=click.IntRange(1), help="Maximum number of messages. Default: all that are in the queue now."
)
@job_options
@kubectl_options
def redrive(queue: str, *, to: str | None, limit: int | None, **options: Any) -> None:
    """Return the dead letters in QUEUE to their source queues."""
    words = ["redrive", *(["--to", to] if to else []), *(["--limit", str(limit)] if limit else [])]
    _run(read_target(options, queue, only=QUEUE), "redrive", words, options)


@main.command("purge")
@click.argument("queue", metavar="QUEUE")
@click.option("--before", metavar="TIME", help="Time of the newest put to purge (ISO 8601). Default: now.")
@click.option("--yes", is_flag=True, help="No confirmation.")
@job_options
@kubectl_options
def purge(queue: str, *, before: str | None, yes: bool, **options: Any) -> None:
    """Settle all messages that are in QUEUE now, delayed ones too. This cannot be undone."""
    target = read_target(options, queue, only=QUEUE)
    if not yes:
        what = "all messages" if before is None else f"all messages put before {before}"
        click.confirm(f"Settle {what} in {target}?", abort=True)
    _run(target, "purge", ["purge", "--yes", *(["--before", before] if before else [])], options)


# ---- pause and resume


@main.command("pause")
@click.argument("resource", metavar="RESOURCE")
@kubectl_options
def pause(resource: str, **options: Any) -> None:
    """Pause reconciling: the operator changes nothing of the resource. Workers keep running."""
    _set_paused(read_target(options, resource), paused=True)


@main.command("resume")
@click.argument("resource", metavar="RESOURCE")
@kubectl_options
def resume(resource: str, **options: Any) -> None:
    """Resume reconciling of a paused resource."""
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
    """Programs that apply its spec, by the managed fields, except kubectl and Headgate."""
    managers = {
        str(each.get("manager"))
        for each in target.document["metadata"].get("managedFields") or ()
        if "f:spec" in (each.get("fieldsV1") or {}) and not each.get("subresource")
    }
    return sorted(name for name in managers if not name.startswith((KUBECTL, "headgate")))


if __name__ == "__main__":
    main()
