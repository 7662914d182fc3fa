"""The offset of the clocks of Cassandra's nodes from this process's clock, as metrics: the quantity that a clock
bound limits.

Reported as the last comparison measured it (docs/internals/protocols/clocks.md): once per minute, and after each
pause or step. A process with several connections reports a node once, by the comparison with the largest error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headgate.expiry import SECOND_US
from headgate.store.clock.clock import ClockFigures
from headgate.telemetry.metrics import Registry

Read = Callable[[], Iterable[ClockFigures]]
Values = Iterable[tuple[tuple[str, ...], float]]


def measure_clocks(registry: Registry, read: Read) -> None:
    """Have it computed when it is read."""

    def differences() -> Values:
        return _of_nodes(read(), of_difference=True)

    def uncertainties() -> Values:
        return _of_nodes(read(), of_difference=False)

    def bound() -> Values:
        return [((), min(each.bound_us for each in clocks) / SECOND_US)] if (clocks := list(read())) else []

    def trusted() -> Values:
        return [((), float(all(each.trusted for each in clocks)))] if (clocks := list(read())) else []

    name = "headgate_clock_"
    registry.reading(
        name + "difference_seconds", "Offset of a node's clock from this process's clock.", ["node"], differences
    )
    registry.reading(name + "uncertainty_seconds", "Uncertainty of the clock comparison.", ["node"], uncertainties)
    registry.reading(
        name + "bound_seconds",
        "Largest accepted clock error (difference plus uncertainty): half of maxClockSkew.",
        (),
        bound,
    )
    registry.reading(name + "trusted", "1 while this process's clock is trusted.", (), trusted)


def _of_nodes(clocks: Iterable[ClockFigures], *, of_difference: bool) -> Values:
    worst: dict[str, tuple[int, int]] = {}
    for each in clocks:
        for node, difference_us in each.differences_us.items():
            measured = difference_us, each.uncertainties_us[node]
            if node not in worst or abs(difference_us) + measured[1] > abs(worst[node][0]) + worst[node][1]:
                worst[node] = measured
    for node, (difference_us, uncertainty_us) in sorted(worst.items()):
        yield (node,), (difference_us if of_difference else uncertainty_us) / SECOND_US
