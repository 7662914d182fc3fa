"""Earlier figures of the baselines, on a quiet machine of two cores shared by clients and server, payloads of 200
bytes.

A baseline that is far slower now was measured on a machine too slow or too busy, or was built incorrectly: then
nothing compared with it counts (`bench/baseline.py`). Of a measured range, this file has the lower end. Rows per
second of CPU, of Cassandra's and of the clients'; by wall clock where that was the limit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Known:
    """The earlier figure of a baseline; None where it was not measured."""

    per_cassandra_cpu_s: float | None = None
    per_client_cpu_s: float | None = None
    per_s: float | None = None


DRIVER = {
    "single inserts": Known(12_000, 8_000),
    "batches of 10": Known(33_000, 37_000),
    "batches of 100": Known(116_000, 111_000),
    "packed rows of 100": Known(385_000, 500_000),
    "slices of 500": Known(200_000, 540_000),
    "LWT, distinct keys": Known(1_200, 4_500),
    "LWT, one hot key": Known(per_s=1_000),
}
"""cassandra-driver 3.30.1 with libev and prepared statements, commitlog_sync periodic, Cassandra 5.0.9."""

PEERS = {
    "time queue's loop": Known(8_000, 7_000, 5_700),
    "bucket queue's four LWTs": Known(51, 184, 76),
    "counter columns, 10,000 keys": Known(4_200, 6_500, 5_000),
    "counter columns, one hot key": Known(7_500, 9_800, 7_800),
}
"""The baselines of Headgate's protocols: put + receive + ack, or updates of native counter columns."""
