"""bench-workers reads the figures that a worker reports."""

from __future__ import annotations

from bench.workers_handling import parse_metrics


def test_a_worker_s_metrics_are_read_as_sums_over_their_labels() -> None:
    page = """# HELP headgate_worker_acked_total Messages handled and settled.
headgate_worker_acked_total{queue="bench/q"} 41.0
headgate_worker_settle_failures_total{result="stale",queue="bench/q"} 1.0
headgate_worker_settle_failures_total{result="unknown",queue="bench/q"} 2.0
headgate_worker_lag_seconds_bucket{le="0.5",queue="bench/q"} 3.0
other_total 7.0
"""
    assert {"acked_total": 41.0, "settle_failures_total": 3.0} == parse_metrics(page)
