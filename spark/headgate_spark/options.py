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
    """Of a batch. Positions are orders, and both belong to the range."""

    subject: Subject
    state: str = LIVE
    first: int | None = None
    last: int | None = None
    messages_per_split: int = MESSAGES_PER_SPLIT
    push_filters: bool = False
    """Whether the DataFrame is filtered once and for all (batch_readers.py: FilteredReader)."""
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class StreamOptions:
    subject: Subject
    messages_per_trigger: int = MESSAGES_PER_TRIGGER
    visibility_us: int = round(VISIBILITY_S * 1_000_000)
    messages_per_split: int = MESSAGES_PER_SPLIT


@dataclass(frozen=True)
class WriteOptions:
    subject: Subject
    key_column: str | None = None
    query: str | None = None
    exactly_once: bool = True
    puts_at_once: int = PUTS_AT_ONCE


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Of `spark.read`."""
    options = _Given(given, READ)
    state = options.one_of("state", STATES, LIVE)
    if ("from" in options and "fromPosition" in options) or ("to" in options and "toPosition" in options):
        raise OptionInvalid("A range has two starts, or two ends", remedy="pass a time or a position, not both")
    first, last = options.position("fromPosition"), options.position("toPosition")
    if (time := options.time("from")) is not None:
        first = position_order(first_at(time_us_from(time, "from")))
    if (time := options.time("to")) is not None:
        last = position_order(last_at(time_us_from(time, "to") - 1))
    return ReadOptions(
        options.subject(),
        state,
        first,
        last,
        options.number("messagesPerSplit", MESSAGES_PER_SPLIT),
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
        options.number("maxMessagesPerTrigger", MESSAGES_PER_TRIGGER, most=MESSAGES_PER_TRIGGER_MAX),
        round(options.seconds("visibility", VISIBILITY_S, least=30.0) * 1_000_000),
        options.number("messagesPerSplit", MESSAGES_PER_SPLIT),
    )


def write_options(given: Mapping[str, str]) -> WriteOptions:
    """Of `df.write` and `df.writeStream`."""
    options = _Given(given, WRITE)
    return WriteOptions(
        options.subject(),
        options.get("keyColumn") or None,
        options.get("query") or None,
        options.one_of("exactlyOnce", ("true", "false"), "true") == "true",
        options.number("putsAtOnce", PUTS_AT_ONCE, most=100_000),
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

    def get(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def subject(self) -> Subject:
        """The target; `load("shop/emails")` means a queue."""
        named = {kind: self._values[kind] for kind in SUBJECT if self._values.get(kind)}
        if len(named) != 1:
            raise OptionInvalid(
                "Set either a queue or a counter",
                remedy='give .option("queue", "shop/emails") or .option("counter", "shop/page-views")',
                given=", ".join(named) or "none",
            )
        connection = tuple((name, self._values[name.lower()]) for name in CONNECTION if name in self)
        return Subject(named.get("queue") or named.get("path"), named.get("counter"), connection)

    def one_of(self, name: str, allowed: Sequence[str], default: str) -> str:
        value = self._values.get(name.lower(), default).lower()
        if value not in allowed:
            raise OptionInvalid(f"{name} must be one of {', '.join(allowed)}", given=value)
        return value

    def number(self, name: str, default: int, *, most: int = 2**31 - 1) -> int:
        value = self._values.get(name.lower(), str(default))
        if not value.strip().isdigit() or not 1 <= int(value) <= most:
            raise OptionInvalid(f"{name} must be a whole number from 1 to {most}", given=value)
        return int(value)

    def seconds(self, name: str, default: float, *, least: float) -> float:
        """A length of time: a number of seconds, or with a unit, as in resources."""
        value = self._values.get(name.lower(), str(default))
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
        value = self.get(name)
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

    def position(self, name: str) -> int | None:
        """A position as the column `position` shows it, as an order."""
        value = self.get(name)
        if value is None:
            return None
        parsed: UUID | None = None
        with suppress(ValueError):
            parsed = UUID(value.strip())
        # Of ours the low bytes are below 0x80, so Python takes them for another variant, which has no version.
        if parsed is None or parsed.int >> VERSION_BITS & 0xF != 1:
            raise OptionInvalid(f"{name} must be a time uuid, as in the column position", given=value)
        return position_order(parsed)
