"""The measured figures that users read: which of the kept results, and in which words. Everything here is pure.

docs/figures.md has all of them, README the first few, and `plot.py` draws those with a baseline per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.report import Document, number
from bench.rounds import CASSANDRA_US, CLIENT_US, P50_MS, P99_MS, ROWS_PER_S
from headgate.errors import InvalidRequest

Results = Mapping[str, Document]


@dataclass(frozen=True)
class Headline:
    """One figure of a result, as users read it."""

    subject: str
    result: str
    case: str
    metric: str
    unit: str
    baseline: str = ""
    """The contender that it was measured beside, in a reader's words."""


@dataclass(frozen=True)
class Measured:
    """A headline with its values."""

    headline: Headline
    value: float
    baseline: float
    ratio: float
    date: str

    @property
    def shown(self) -> str:
        """The value with its unit."""
        unit = self.headline.unit
        return f"{number(self.value)}{'' if unit == '%' else ' '}{unit}"


_DRIVER: Final = "the driver, batches of 100"
_LOOP: Final = "the driver, one row per message"
_PATH: Final = "put + receive + ack, 1,000 single callers"
_LATER: Final = "put + receive + ack, scheduled"
_DEEP: Final = "receive of 100, after 5,000,000"
_NOW: Final = "delivery at 1,000/s, due at once"
_SOON: Final = "delivery at 1,000/s, due in 3 s"
_IDLE: Final = "an idle worker with 12 lanes"
_QUEUES: Final = "1000 Queues"
_RATE: Final = ROWS_PER_S.name

IN_SHORT: Final = (
    Headline("put, receive and acknowledge, 1,000 callers", "timeline", _PATH, _RATE, "messages/s", _LOOP),
    Headline("the same, scheduled two seconds ahead", "timeline", _LATER, _RATE, "messages/s", _LOOP),
    Headline(
        "receive 100 messages after 5,000,000 have passed, median",
        *("timeline", _DEEP, P50_MS.name, "ms", "the same after 1,000"),
    ),
    Headline("from put to delivery at 1,000 messages/s, p99, default settings", "timeline", _NOW, P99_MS.name, "ms"),
    Headline(
        "updates of one counter key, 1,000 callers",
        *("counters", "one hot key, 1,000 callers", _RATE, "updates/s", "Cassandra's counter columns"),
    ),
)
"""What README shows."""

IN_FULL: Final = (
    Headline("put, 1,000 callers", "timeline", "put, 1,000 single callers", _RATE, "messages/s", _DRIVER),
    Headline("put, 32 callers of batches of 100", "timeline", "put, 32 callers of 100", _RATE, "messages/s", _DRIVER),
    *IN_SHORT[:3],
    Headline(
        "from put to delivery at 1,000 messages/s, median, default settings",
        "timeline",
        _NOW,
        P50_MS.name,
        "ms",
    ),
    IN_SHORT[3],
    Headline("lateness of messages due in 3 s at 1,000 messages/s, median", "timeline", _SOON, P50_MS.name, "ms"),
    Headline("lateness of messages due in 3 s at 1,000 messages/s, p99", "timeline", _SOON, P99_MS.name, "ms"),
    Headline(
        "put, handle and settle through a worker, empty handler",
        "workers",
        "put + handle + settle",
        _RATE,
        "messages/s",
    ),
    Headline("an idle worker with 12 lanes, memory", "workers", _IDLE, "resident", "MB"),
    Headline("an idle worker with 12 lanes, share of a core", "workers", _IDLE, "share of a core", "%"),
    IN_SHORT[4],
    Headline(
        "updates of 10,000 counter keys",
        *("counters", "10,000 keys, 10,000 updates in flight", _RATE, "updates/s", "Cassandra's counter columns"),
    ),
    Headline("read a counter key of 20 writers, p99", "counters", "a key of 20 live mutators", P99_MS.name, "ms"),
    Headline(
        "read a million messages with Spark",
        *("spark", "read a million, packed", _RATE, "messages/s", "spark-cassandra-connector"),
    ),
    Headline("drain with Spark through a handler", "spark", "drain a backlog through a handler", _RATE, "messages/s"),
    Headline("redrive with Spark", "spark", "redrive dead letters", _RATE, "messages/s", "`headgate redrive`"),
    Headline("1,000 new Queues until all are Ready", "operator", _QUEUES, "all done after", "s"),
    Headline("the operator with 1,000 Queues, memory", "operator", _QUEUES, "most memory", "MB"),
    Headline(
        "the operator with 1,000 Queues at rest, share of a core", "operator", _QUEUES, "share of a core at rest", "%"
    ),
)
"""What docs/figures.md shows."""

COSTS: Final = (
    ("put, 1,000 callers", "timeline", "put, 1,000 single callers"),
    ("put, batches of 100", "timeline", "put, 32 callers of 100"),
    ("put, receive and acknowledge", "timeline", _PATH),
    ("the same through a worker with an empty handler", "workers", "put + handle + settle"),
    ("put, receive and acknowledge, scheduled ahead", "timeline", _LATER),
    ("put, receive and acknowledge, one by one at 1,000 messages/s", "timeline", _NOW),
)
"""Cases whose CPU time per message a user plans with."""


def measured(results: Results, headline: Headline) -> Measured:
    """The values of a headline."""
    kept = results[headline.result]
    figure = find_figure(kept, headline.case, headline.metric)
    return Measured(
        headline,
        figure["value"]["median"],
        figure["baseline"]["median"],
        figure["ratio"]["median"],
        figure.get("earlier", kept)["date"],
    )


def find_figure(kept: Document, case: str, metric: str) -> Document:
    """The figure of a case in a kept result."""
    for figure in kept["figures"]:
        if (figure["case"], figure["metric"]) == (case, metric):
            return dict(figure)
    raise InvalidRequest(
        "a result lacks a figure that the pages show",
        remedy="measure that part, or change bench/headlines.py",
        result=kept["name"],
        case=case,
        metric=metric,
    )


def build_short_table(results: Results) -> list[str]:
    """What README shows."""
    rows = [(one.headline.subject, one.shown, _versus(one)) for one in (measured(results, each) for each in IN_SHORT)]
    return _table(("Measured", "Figure", "Compared"), rows)


def build_full_table(results: Results) -> list[str]:
    """What docs/figures.md shows."""
    entries = [measured(results, each) for each in IN_FULL]
    rows = [
        (one.headline.subject, one.shown, _versus(one), f"`make bench-{one.headline.result}`, {one.date}")
        for one in entries
    ]
    return _table(("measured", "figure", "compared", "by"), rows)


def build_cost_table(results: Results) -> list[str]:
    """CPU time per message, of clients and of Cassandra."""
    rows = []
    for subject, result, case in COSTS:
        ours, cassandra = (
            find_figure(results[result], case, metric.name)["value"]["median"] for metric in (CLIENT_US, CASSANDRA_US)
        )
        rows.append((subject, f"{number(ours)} µs", f"{number(cassandra)} µs"))
    return _table(("per message", "client CPU", "Cassandra CPU"), rows)


def _versus(one: Measured) -> str:
    return f"{number(one.ratio)} times {one.headline.baseline}" if one.headline.baseline else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]
