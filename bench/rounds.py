"""Interleaved rounds: in each, every contender has one window, and the first one changes from round to round.

So a machine that grows slower in the course of a run, or a neighbour's minute of load, meets all contenders alike.
A run is bounded by its rounds and by time; it ends after a whole round, so that the rounds stay comparable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.figure import Series
from headgate.errors import Bug

ROUNDS_MIN = 3
"""Of fewer values than this the median is one end of them."""


@dataclass(frozen=True)
class Window:
    """The work of one contender in one round, and its cost. Rows are rows of messages, however many a request holds.

    `wall_s` is the clients' time at work; `span_s` is the time between the readings of CPU seconds, a little longer.
    """

    contender: str
    wall_s: float
    span_s: float
    rows: int
    requests: int
    failed: int
    clients_cpu_s: float
    cassandra_cpu_s: float
    others_cpu_s: float
    stolen_cpu_s: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Metric:
    """A quantity of a window."""

    name: str
    unit: str
    of: Callable[[Window], float]


ROWS_PER_S = Metric("rows per second", "/s", lambda window: window.rows / window.wall_s)
CLIENT_US = Metric("client CPU per row", "µs", lambda window: window.clients_cpu_s / window.rows * 1e6)
ROWS_PER_CLIENT_CPU_S = Metric(
    "rows per client CPU second", "/CPU s", lambda window: window.rows / window.clients_cpu_s
)
CASSANDRA_US = Metric("Cassandra CPU per row", "µs", lambda window: window.cassandra_cpu_s / window.rows * 1e6)
ROWS_PER_CPU_S = Metric(
    "rows per CPU second", "/CPU s", lambda window: window.rows / (window.clients_cpu_s + window.cassandra_cpu_s)
)
P50_MS = Metric("p50 of a request", "ms", lambda window: window.p50_ms)
P99_MS = Metric("p99 of a request", "ms", lambda window: window.p99_ms)


def order_of_round(contenders: Sequence[str], number: int) -> list[str]:
    """All of them, beginning with another one in each round."""
    first = number % len(contenders)
    return [*contenders[first:], *contenders[:first]]


@dataclass(frozen=True)
class Rounds:
    """The windows of one case by contender, a window a round."""

    run: str
    case: str
    windows: dict[str, tuple[Window, ...]]

    def __post_init__(self) -> None:
        if len({len(windows) for windows in self.windows.values()}) != 1:
            raise Bug("contenders had different numbers of rounds", case=self.case)

    @property
    def count(self) -> int:
        """How many rounds there were."""
        return len(next(iter(self.windows.values())))

    @property
    def all_windows(self) -> list[Window]:
        """Those of all contenders."""
        return [window for windows in self.windows.values() for window in windows]

    def series(self, contender: str, metric: Metric) -> Series:
        """One quantity of one contender, round by round."""
        return Series(self.run, contender, tuple(metric.of(window) for window in self.windows[contender]))


def take_rounds(
    run: str,
    case: str,
    contenders: Sequence[str],
    take: Callable[[str], Window],
    *,
    rounds: int,
    time_is_up: Callable[[], bool],
) -> Rounds:
    """Up to `rounds` rounds, at least one; none is started when time is up."""
    taken: dict[str, list[Window]] = {contender: [] for contender in contenders}
    for number in range(rounds):
        if number and time_is_up():
            break
        for contender in order_of_round(contenders, number):
            taken[contender].append(take(contender))
    return Rounds(run, case, {contender: tuple(windows) for contender, windows in taken.items()})
