"""A user's `.option(...)` values, checked: one clear line for each mistake. Pure.

Spark passes options without regard to case, and adds some of its own; those are ignored, all others have to be known.
The connection comes from the environment of driver and executors; an option of the same name overrides it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from headgate.client.model.times import time_us_from
from headgate.errors import InvalidRequest
from headgate.store.model.positions import first_at, last_at, position_order
from headgate_spark.engines.contract import HISTORY, LIVE

STATES = (LIVE, HISTORY)
CONNECTION = (
    "CONTACT_POINTS", "DATA_CENTER", "USERNAME", "PASSWORD", "USE_SSL", "KEYSPACE", "CLUSTER_NAME", "SSL_CA",
    "SSL_CERT", "SSL_KEY",
)  # fmt: skip
SUBJECT = ("queue", "counter", "path")
RANGE = ("from", "to", "fromPosition", "toPosition")
READ = (*SUBJECT, "state", *RANGE, "messagesPerSplit", "pushFilters", "since", "until")
STREAM = (*SUBJECT, "maxMessagesPerTrigger", "visibility", "messagesPerSplit")
WRITE = (*SUBJECT, "keyColumn", "query", "exactlyOnce", "putsAtOnce")
SPARKS_OWN = ("checkpointlocation", "queryname", "asyncprogresstrackingenabled", "schema", "mergeschema")

VERSION_BITS = 76
"""The version of a uuid is above this many bits."""
MESSAGES_PER_SPLIT = 100_000
MESSAGES_PER_TRIGGER = 10_000
MESSAGES_PER_TRIGGER_MAX = 1_000_000
VISIBILITY_S = 300.0
PUTS_AT_ONCE = 5_000


class OptionInvalid(InvalidRequest):
    """An option of the source or sink `headgate` is not as it has to be."""


@dataclass(frozen=True)
class Subject:
    """The target of a read or write: a queue or a counter, and its connection."""

    queue: str | None
    counter: str | None
    connection: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        return self.queue or self.counter or ""


@dataclass(frozen=True)
class ReadOptions:
    """Of a batch."""

    subject: Subject
    state: str = LIVE
    first: int | None = None
    """Of the range of positions, as an order; it belongs to the range."""
    last: int | None = None
    messages_per_split: int = MESSAGES_PER_SPLIT
    push_filters: bool = False
    """Whether the DataFrame is filtered once and for all (batch_readers.py: FilteredReader)."""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class StreamOptions:
    """Of a streaming read."""

    subject: Subject
    messages_per_trigger: int = MESSAGES_PER_TRIGGER
    visibility_us: int = round(VISIBILITY_S * 1_000_000)
    messages_per_split: int = MESSAGES_PER_SPLIT


@dataclass(frozen=True)
class WriteOptions:
    """Of a batch or streaming write."""

    subject: Subject
    key_column: str | None = None
    query: str | None = None
    exactly_once: bool = True
    puts_at_once: int = PUTS_AT_ONCE


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Of `spark.read`."""
    options = _Given(given, READ)
    state = options.one_of("state", STATES, LIVE)
    if ("from" in options and "fromposition" in options) or ("to" in options and "toposition" in options):
        raise OptionInvalid("A range has two starts, or two ends", remedy="pass a time or a position, not both")
    first = options.time_us("from")
    last = options.time_us("to")
    first_order = None if first is None else position_order(first_at(first))
    last_order = None if last is None else position_order(last_at(last - 1))
    return ReadOptions(
        options.subject(),
        state,
        options.position("fromPosition") if first_order is None else first_order,
        options.position("toPosition") if last_order is None else last_order,
        options.number("messagesPerSplit", MESSAGES_PER_SPLIT, least=1),
        options.one_of("pushFilters", ("true", "false"), "false") == "true",
        options.time("since"),
        options.time("until"),
    )


def stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Of `spark.readStream`."""
    options = _Given(given, STREAM)
    subject = options.subject()
    if subject.queue is None:
        raise OptionInvalid(
            "A counter cannot be read as a stream", remedy="read it as a batch", counter=subject.counter
        )
    return StreamOptions(
        subject,
        options.number("maxMessagesPerTrigger", MESSAGES_PER_TRIGGER, least=1, most=MESSAGES_PER_TRIGGER_MAX),
        round(options.seconds("visibility", VISIBILITY_S, least=30.0) * 1_000_000),
        options.number("messagesPerSplit", MESSAGES_PER_SPLIT, least=1),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Of `df.write` and `df.writeStream`."""
    options = _Given(given, WRITE)
    return WriteOptions(
        options.subject(),
        options.text("keyColumn"),
        options.text("query"),
        options.one_of("exactlyOnce", ("true", "false"), "true") == "true",
        options.number("putsAtOnce", PUTS_AT_ONCE, least=1, most=100_000),
    )


class _Given:
    """The options as they came, by their names in lower case."""

    def __init__(self, given: Mapping[str, str], known: Sequence[str]) -> None:
        self._values = {str(name).lower(): str(value) for name, value in given.items()}
        lowered = {name.lower(): name for name in (*known, *CONNECTION)}
        for name in self._values:
            if name not in lowered and name not in SPARKS_OWN:
                near = difflib.get_close_matches(name, list(lowered), n=1)
                remedy = f"did you mean {lowered[near[0]]}?" if near else f"options: {', '.join(known)}"
                raise OptionInvalid("Unknown option", option=name, remedy=remedy)

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def subject(self) -> Subject:
        """The target; `load("shop/emails")` means a queue."""
        named = {kind: self._values[kind] for kind in SUBJECT if self._values.get(kind)}
        if len(named) != 1:
            raise OptionInvalid(
                "Set either a queue or a counter",
                remedy='give .option("queue", "shop/emails") or .option("counter", "shop/page-views")',
                given=", ".join(named) or "none",
            )
        connection = tuple((name, self._values[name.lower()]) for name in CONNECTION if name.lower() in self._values)
        return Subject(named.get("queue") or named.get("path"), named.get("counter"), connection)

    def text(self, name: str) -> str | None:
        """As it is; an empty one is none."""
        return self._values.get(name.lower()) or None

    def one_of(self, name: str, allowed: Sequence[str], unset: str) -> str:
        """One of some words."""
        value = self._values.get(name.lower(), unset).lower()
        if value not in allowed:
            raise OptionInvalid(f"{name} must be one of {', '.join(allowed)}", given=value)
        return value

    def number(self, name: str, unset: int, *, least: int, most: int = 2**31 - 1) -> int:
        """A whole number within bounds."""
        value = self._values.get(name.lower())
        if value is None:
            return unset
        if not value.strip().isdigit() or not least <= int(value) <= most:
            raise OptionInvalid(f"{name} must be a whole number from {least} to {most}", given=value)
        return int(value)

    def seconds(self, name: str, unset: float, *, least: float) -> float:
        """A length of time: a number of seconds, or with a unit, as in resources."""
        value = self._values.get(name.lower())
        if value is None:
            return unset
        units = {"s": 1, "m": 60, "h": 3600}
        text = value.strip()
        number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
        try:
            parsed = float(number) * unit
        except ValueError:
            parsed = -1.0
        if not least <= parsed <= 86_400:
            raise OptionInvalid(f"{name} must be from {least:g}s to 24h, such as 90s, 5m or 1h", given=value)
        return parsed

    def time(self, name: str) -> datetime | None:
        """A time in ISO 8601, with its zone."""
        value = self._values.get(name.lower())
        if value is None:
            return None
        try:
            parsed = datetime.fromisoformat(value.strip())
        except ValueError:
            raise OptionInvalid(
                f"{name} must be a time such as 2026-11-19T02:00:00+00:00, or end with Z", given=value
            ) from None
        if parsed.tzinfo is None:
            raise OptionInvalid(f"{name} has no time zone", given=value, remedy="add +00:00, or Z")
        return parsed

    def time_us(self, name: str) -> int | None:
        """The same in microseconds since 1970."""
        parsed = self.time(name)
        return None if parsed is None else time_us_from(parsed, name)

    def position(self, name: str) -> int | None:
        """A position as the column `position` shows it, as an order."""
        value = self._values.get(name.lower())
        if value is None:
            return None
        parsed: UUID | None = None
        with suppress(ValueError):
            parsed = UUID(value.strip())
        # Of ours the low bytes are below 0x80, so Python takes them for another variant, which has no version.
        if parsed is None or parsed.int >> VERSION_BITS & 0xF != 1:
            raise OptionInvalid(f"{name} must be a time uuid, as in the column position", given=value)
        return position_order(parsed)
