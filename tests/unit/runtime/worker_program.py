"""A worker process on a queue in memory, for tests of signals: it prints what happens, a JSON line each.

python -m tests.unit.runtime.worker_program HANDLER COUNT PAYLOAD GRACE_S [HEALTH_PORT]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence

from headgate.engines.contract import Settle, Settled
from headgate.runtime.startup.drain_files import DrainFiles
from headgate.runtime.startup.worker_process import WorkerOptions, run_worker
from headgate.runtime.worker.worker import WorkerTerms
from tests.kit.worker_queue import FaultyQueue


class Chatty(FaultyQueue):
    """Reports the end of its messages."""

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        results = await super().settle(settles)
        for settle, result in zip(settles, results, strict=True):
            print_event(
                type(settle).__name__.removesuffix("Delivery").lower(), receipt=settle.receipt, how=result.value
            )
        return results

    async def close(self) -> None:
        await super().close()
        print_event("closed", live=self.live, deliveries=len(self.deliveries))


def print_event(what: str, **facts: object) -> None:
    """One line."""
    print(json.dumps({"event": what, **facts}), flush=True)  # noqa: T201


def main() -> None:
    """Run it."""
    handler, count, payload, grace_s = sys.argv[1:5]
    port = int(sys.argv[5]) if len(sys.argv) > 5 else None

    async def open_queue() -> FaultyQueue:
        queue = Chatty(name="test/queue")
        for _ in range(int(count)):
            queue.put_now(payload.encode(), suspect="HEADGATE_TEST_SUSPECTS" in os.environ)
        asyncio.get_running_loop().call_later(0.2, print_event, "open")
        return queue

    options = WorkerOptions(
        queue="test/queue",
        handler=handler,
        terms=WorkerTerms(concurrency=2, prefetch=2, grace_s=float(grace_s)),
        health=None if port is None else ("127.0.0.1", port),
        drain=DrainFiles.of(os.environ),
        log_level="warning",
    )
    run_worker(options, open_queue)
    print_event("ended")


if __name__ == "__main__":
    main()
