"""Passes over one resource, or over those with a schedule; each pass is recorded where the operator reads it.

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
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from random import sample
from typing import Any
from uuid import UUID

from headgate.client.connection import Headgate
from headgate.engines.summary.pass_results import Failure, PassResults, Result, write_pass_result
from headgate.errors import HeadgateError
from headgate.store.catalogue.entry import Entry, EntryState

log = logging.getLogger("headgate.maintenance")

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

    def select(
        self, entries: Iterable[Entry], schedule: str | None, *, block: str, default_schedule: str
    ) -> dict[str, Entry]:
        """Those of the group with that schedule, by their names. A resource that is being created or deleted, or that
        is retained, needs no pass."""
        wanted = None if schedule is None else in_words(schedule)
        return {
            f"{entry.name.namespace}/{entry.name.name}": entry
            for entry in entries
            if entry.state is EntryState.ACTIVE
            and wanted in (None, in_words(str(_block(entry, block).get("schedule", default_schedule))))
            and self.has(entry, block)
        }


def _block(entry: Entry, name: str) -> Mapping[str, Any]:
    block = entry.spec.get(name)
    return block if isinstance(block, Mapping) else {}


def in_words(schedule: str) -> str:
    """However many blanks stand between its fields."""
    return " ".join(schedule.split())


@dataclass(frozen=True)
class PassOutcome:
    """The result of one pass: what was done, and what needs someone's attention."""

    message: str
    problems: tuple[str, ...] = ()

    def add(self, fact: str | None) -> PassOutcome:
        """With one more fact in its message, if there is one."""
        return self if fact is None else replace(self, message=f"{self.message}; {fact}")


async def record_failure(
    connection: Headgate, entry: Entry, work: Callable[[], Awaitable[PassOutcome]]
) -> PassOutcome:
    """Make a pass; that it failed is recorded, and raised."""
    try:
        return await work()
    except HeadgateError as error:
        missed = await write_result(connection, entry.id, Failure(connection.now_us(), str(error)))
        if missed is not None:
            log.warning("result of a pass not recorded", extra={"error": missed})
        raise


def results_of(connection: Headgate) -> PassResults:
    """Where the results of many passes wait to be written together."""
    process_context = connection.process_context
    return PassResults(process_context.store_in(process_context.keyspace))


async def write_result(
    connection: Headgate, id_: UUID, result: Result, *, results: PassResults | None = None
) -> str | None:
    """Record a pass, with others if there are `results`; returns why not, if so. That is no failure of the pass: the
    next one writes its own."""
    process_context = connection.process_context
    try:
        if results is not None:
            await results.add(id_, result)
        else:
            await write_pass_result(process_context.store_in(process_context.keyspace), id_, result)
    except HeadgateError as error:
        return f"not recorded: {error}"
    return None


async def pass_over_all(
    names: Iterable[str],
    make: Callable[[str], Awaitable[PassOutcome]],
    ended: Callable[[str, PassOutcome | HeadgateError], None],
) -> tuple[int, int]:
    """Some at a time, in a random order, so that it is not always the same one for which no time is left. Returns how
    many had no problem, and how many had one. A bug is raised only when all have ended."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> bool:
        async with at_once:
            outcome: PassOutcome | HeadgateError
            try:
                outcome = await make(name)
            except HeadgateError as error:
                outcome = error
            ended(name, outcome)
            return isinstance(outcome, PassOutcome) and not outcome.problems

    order = list(names)
    results = await asyncio.gather(*(one(name) for name in sample(order, len(order))), return_exceptions=True)
    for each in results:
        if isinstance(each, BaseException):
            raise each
    return sum(map(bool, results)), sum(not each for each in results)
