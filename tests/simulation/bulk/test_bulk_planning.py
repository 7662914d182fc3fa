"""The number of a drain's reads before it borrows does not grow with the number of settled messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

from headgate_spark.engines.contract import Budget
from headgate_spark.engines.timeline.lanes import TimelineLending
from tests.simulation.timeline.timeline_history import TWO_LANES, one_waits_behind
from tests.simulation.timeline.timeline_puts import Client, Queue, simulate

ALL = Budget(messages_max=100_000, bytes_max=1 << 30, rows_max=100_000)


def requests_of_a_first_batch(parts: int) -> int:
    """How many requests it takes to find the first batch where this number of parts was put and settled before, and
    one message waits."""

    async def scenario(queue: Queue) -> int:
        looker = await one_waits_behind(queue, parts)
        assert 1 == await looker.process.start(_first_batch(looker, queue))
        return len(looker.store.sent)

    return simulate(scenario, settings=TWO_LANES)


async def _first_batch(looker: Client, queue: Queue) -> int:
    engine = SimpleNamespace(
        host=looker.host, settings=queue.settings, producer=SimpleNamespace(sender=looker.producer.sender)
    )
    opened: Any = SimpleNamespace(engine=engine)
    lanes = await TimelineLending(opened, UUID(int=7)).lanes(from_us=None, until_us=looker.host.now_us())
    observations = [await lane.preview(ALL) for lane in lanes]
    return sum(preview.messages for preview in observations if preview is not None)


def test_what_finding_the_first_batch_of_a_drain_asks_does_not_grow_with_history() -> None:
    assert requests_of_a_first_batch(2) == requests_of_a_first_batch(40)
