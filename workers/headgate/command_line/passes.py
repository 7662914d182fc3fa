"""What `headgate repair` and `headgate gc` share, also with those of Spark: their target, and how a pass is shown."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import click

from headgate.api.values.cron import CRON
from headgate.client.connection import Headgate
from headgate.command_line.connection import run_connected
from headgate.command_line.exit_codes import exit_code_for
from headgate.command_line.output import Output
from headgate.engines.summary.pass_results import PassResults
from headgate.errors import HeadgateError, InvalidRequest
from headgate.maintenance.pass_groups import (
    PassGroup,
    PassOutcome,
    in_words,
    pass_over_all,
    record_failure,
    results_of,
)
from headgate.store.catalogue.entry import Entry

Scheduled = Callable[[Headgate, str, str | None, PassGroup], Awaitable[dict[str, Entry]]]


class MakePass(Protocol):
    """Makes one pass, and records it, with others if there are `results`."""

    def __call__(
        self, connection: Headgate, name: str, /, *, results: PassResults | None
    ) -> Coroutine[Any, Any, PassOutcome]: ...


schedule_option = click.option("--schedule", metavar="CRON", help="Only those with this schedule.")


@dataclass(frozen=True)
class PassTarget:
    """What the passes of a command work on: one queue or counter, or those of a namespace with a schedule."""

    command: str
    kind: str
    name: str | None
    namespace: str | None
    schedule: str | None

    def __post_init__(self) -> None:
        if (self.name is None) == (self.namespace is None):
            remedy = f"name a {self.kind} as NAMESPACE/NAME, or give --namespace"
            raise InvalidRequest(f"{self.command} needs one target", remedy=remedy)
        if self.schedule is not None and self.namespace is None:
            raise InvalidRequest(f"--schedule selects {self.kind}s of a namespace", remedy="give --namespace too")
        if self.schedule is not None and not CRON.accepts(in_words(self.schedule)):
            raise InvalidRequest(f"--schedule {CRON.message}", given=repr(self.schedule))

    async def entries(self, connection: Headgate, scheduled: Scheduled) -> dict[str, Entry]:
        """Those of the namespace with that schedule, and of this process's group."""
        return await scheduled(connection, self.namespace or "", self.schedule, PassGroup.of(os.environ))


def pass_document(kind: str, name: str, *, message: str, problems: Sequence[str]) -> dict[str, Any]:
    """A pass of repair or gc over the `kind` queue or counter."""
    return {kind: name, "done": not problems, "message": message, "problems": list(problems)}


def show_pass(kind: str, name: str, output: Output, outcome: PassOutcome) -> None:
    """The result of one pass; its problems also on standard error."""
    is_refused = outcome.message in outcome.problems
    output.show_item(
        pass_document(kind, name, message=outcome.message, problems=outcome.problems),
        line=None if is_refused else f"{name}: {outcome.message}",
        name=name,
    )
    for problem in outcome.problems if output.is_table or output.form == "name" else ():
        click.echo(f"{name}: {problem}", err=True)


async def _write(results: PassResults) -> None:
    """That the last ones are not recorded is no failure: the next passes write their own."""
    try:
        await results.write()
    except HeadgateError as error:
        click.echo(f"results of passes not recorded: {error}", err=True)


def run_passes(
    target: PassTarget,
    output: Output,
    make: MakePass,
    scheduled: Scheduled,
) -> None:
    """Make the passes; ends with the exit code where one had a problem."""

    async def work(connection: Headgate) -> tuple[int, int]:
        if target.name is not None:
            outcome = await make(connection, target.name, results=None)
            show_pass(target.kind, target.name, output, outcome)
            return 0, len(outcome.problems)
        entries = await target.entries(connection, scheduled)
        if not entries:
            which = f" has the {target.command} schedule {target.schedule!r}" if target.schedule is not None else ""
            click.echo(f"no {target.kind} in {target.namespace}{which}", err=True)

        results = results_of(connection)

        async def one(name: str) -> PassOutcome:
            return await record_failure(connection, entries[name], lambda: make(connection, name, results=results))

        def ended(name: str, outcome: PassOutcome | HeadgateError) -> None:
            if isinstance(outcome, PassOutcome):
                show_pass(target.kind, name, output, outcome)
            else:
                click.echo(f"{name}: {outcome}", err=True)

        try:
            return await pass_over_all(entries, one, ended)
        finally:
            await _write(results)

    done, failed = run_connected(work)
    if failed:
        raise SystemExit(exit_code_for(done, failed))
