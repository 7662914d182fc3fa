"""What `penstock repair` and `penstock gc` have in common: a pass is asked for one resource, or for all of a
namespace with a schedule, and many are made side by side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import sample

import click

from penstock.api.cron import SAYS, accepts
from penstock.errors import PenstockError, SpecError
from penstock.store.catalogue_entry import Entry

AT_ONCE = 4


def check_whom(command: str, kind: str, name: str | None, namespace: str | None, schedule: str | None) -> None:
    """Refuse what does not say clearly whom it means; `kind` is queue or counter."""
    if (name is None) == (namespace is None):
        raise SpecError(f"{command} needs to know what", remedy=f"give either --{kind}, or --namespace")
    if schedule is not None and namespace is None:
        raise SpecError(f"--schedule picks {kind}s of a namespace", remedy="give --namespace too")
    if schedule is not None and not accepts(in_words(schedule)):
        raise SpecError(f"--schedule {SAYS}", given=repr(schedule))


def schedule_of(entry: Entry, block: str, default: str) -> str:
    """The schedule that a block of a resource has, or the one it has unless set."""
    told = entry.spec.get(block)
    return in_words(str(told.get("schedule", default) if isinstance(told, dict) else default))


def in_words(schedule: str) -> str:
    """However many blanks stand between its fields."""
    return " ".join(schedule.split())


async def pass_over_all(names: list[str], make: Callable[[str], Awaitable[bool]]) -> bool:
    """Some at a time, in an order of chance, so that none is always the one for which no time is left. Even a bug
    that one of them meets is told only when all have ended."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> bool:
        async with at_once:
            try:
                return await make(name)
            except PenstockError as error:
                click.echo(f"{name}: {error}", err=True)
                return False

    ended = await asyncio.gather(*(one(name) for name in sample(names, len(names))), return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return all(ended)
