"""The metrics of clocks: each node once, with its sign, and nothing where nothing was compared."""

from __future__ import annotations

from headgate.store.clock.clock import ClockFigures, measure_clocks
from headgate.telemetry.metrics import Registry


def clock(*, trusted: bool = True, bound_us: int = 250_000, **differences_us: int) -> ClockFigures:
    """One that found these, each to half a millisecond."""
    return ClockFigures(trusted, differences_us, dict.fromkeys(differences_us, 500), (), bound_us, 0, 0)


def report(*clocks: ClockFigures) -> dict[tuple[str, ...], float]:
    """By name, and node."""
    registry = Registry()
    measure_clocks(registry, lambda: clocks)
    return {
        (each.name.removeprefix("headgate_clock_"), *(value for _, value in each.labels)): each.value
        for each in registry.samples()
    }


def test_each_node_is_reported_with_its_sign_beside_what_it_may_be() -> None:
    assert {
        ("difference_seconds", "a"): 0.002,
        ("difference_seconds", "b"): -0.3,
        ("uncertainty_seconds", "a"): 0.0005,
        ("uncertainty_seconds", "b"): 0.0005,
        ("bound_seconds",): 0.25,
        ("trusted",): 0.0,
    } == report(clock(trusted=False, a=2_000, b=-300_000))


def test_of_several_connections_the_worst_is_reported_once() -> None:
    result = report(clock(a=2_000, bound_us=250_000), clock(a=-3_000, bound_us=50_000, trusted=False))
    assert (-0.003, 0.05, 0.0) == (result["difference_seconds", "a"], result["bound_seconds",], result["trusted",])


def test_without_a_connection_nothing_is_reported() -> None:
    assert {} == report()
