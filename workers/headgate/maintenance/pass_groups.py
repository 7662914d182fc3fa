"""What `headgate repair` and `headgate gc` share: passes over one resource, or over those with a schedule.

Some passes run at the same time. The result of each is written where the operator reads it.

Of several CronJobs with one schedule, each has a group of its own. The operator names the group in the environment,
by the Secret and the image that resources name. A resource that names none belongs to the Secret
`headgate-connection` and to the default image. Variables that are not set exclude nothing, so in doubt a pass runs
twice, which is harmless.

    HEADGATE_CONNECTION       the Secret of this group
    HEADGATE_IMAGE            the image of this group
    HEADGATE_DEFAULT_IMAGE    the image of resources that name none
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from random import sample
from typing import Any
from uuid import UUID

import click

from headgate.api.cron import RULE_TEXT, accepts
from headgate.cli.documents import pass_document
from headgate.cli.exit_codes import ExitCode, exit_code_for
from headgate.cli.output import Output
from headgate.client.connection import Headgate
from headgate.engines.summary.standing import Failure, Result, write_pass_result
from headgate.errors import HeadgateError, InvalidRequest
from headgate.store.catalogue.entry import Entry

AT_ONCE = 4
DEFAULT_CONNECTION = "headgate-connection"
"""The Secret that the operator copies for resources that name none."""


@dataclass(frozen=True)
class PassGroup:
    """Which resources a CronJob handles, in addition to their schedule; None: whatever they name."""

    connection: str | None = None
    image: str | None = None
    default_image: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> PassGroup:
        """From the environment; an empty variable is not set."""
        names = ("HEADGATE_CONNECTION", "HEADGATE_IMAGE", "HEADGATE_DEFAULT_IMAGE")
        return cls(*(environment.get(name) or None for name in names))

    def has(self, entry: Entry, block: str) -> bool:
        """Whether this resource is of the group; `block` is where it may name an image."""
        connection = _block(entry, "storage").get("connectionSecret") or DEFAULT_CONNECTION
        image = _block(entry, block).get("image") or self.default_image
        return self.connection in (None, connection) and (self.image is None or image in (None, self.image))


schedule_option = click.option("--schedule", metavar="CRON", help="Only those with this schedule.")


def check_whom(command: str, kind: str, name: str | None, namespace: str | None, schedule: str | None) -> None:
    """Refuse a request that is not clear about its target; `kind` is queue or counter."""
    if (name is None) == (namespace is None):
        raise InvalidRequest(
            f"{command} needs one target", remedy=f"name a {kind} as NAMESPACE/NAME, or give --namespace"
        )
    if schedule is not None and namespace is None:
        raise InvalidRequest(f"--schedule selects {kind}s of a namespace", remedy="give --namespace too")
    if schedule is not None and not accepts(in_words(schedule)):
        raise InvalidRequest(f"--schedule {RULE_TEXT}", given=repr(schedule))


def show_pass(kind: str, name: str, output: Output, *, message: str, problems: Sequence[str]) -> None:
    """The result of one pass; its problems also on standard error."""
    is_refused = message in problems
    output.show_item(
        pass_document(kind, name, message=message, problems=problems),
        table=lambda: [] if is_refused else [f"{name}: {message}"],
        name=name,
    )
    for problem in problems if output.is_table or output.form == "name" else ():
        click.echo(f"{name}: {problem}", err=True)


def schedule_of(entry: Entry, block: str, default: str) -> str:
    """The schedule that a block of a resource has, or the one it has unless set."""
    return in_words(str(_block(entry, block).get("schedule", default)))


def _block(entry: Entry, name: str) -> Mapping[str, Any]:
    block = entry.spec.get(name)
    return block if isinstance(block, Mapping) else {}


def in_words(schedule: str) -> str:
    """However many blanks stand between its fields."""
    return " ".join(schedule.split())


async def noted(connection: Headgate, entry: Entry | None, work: Callable[[], Awaitable[bool]]) -> bool:
    """Make a pass; that it failed is noted, as far as it is known of what."""
    try:
        return await work()
    except HeadgateError as error:
        if entry is not None:
            await note(connection, entry.id, Failure(connection.now_us(), str(error)))
        raise


async def note(connection: Headgate, id_: UUID, result: Result) -> None:
    """Write the result of a pass. A failed write is no failure of the pass: the next one writes its own."""
    process_context = connection.process_context
    try:
        await write_pass_result(process_context.store_in(process_context.keyspace), id_, result)
    except HeadgateError as error:
        click.echo(f"The result of a pass could not be written: {error}", err=True)


async def pass_over_all(names: list[str], make: Callable[[str], Awaitable[bool]]) -> ExitCode:
    """Some at a time, in a random order, so that it is not always the same one for which no time is left. A bug that
    one of them meets is raised only when all have ended."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> bool:
        async with at_once:
            try:
                return await make(name)
            except HeadgateError as error:
                click.echo(f"{name}: {error}", err=True)
                return False

    ended = await asyncio.gather(*(one(name) for name in sample(names, len(names))), return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    failed = sum(not each for each in ended)
    return exit_code_for(len(ended) - failed, failed)
