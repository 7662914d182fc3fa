"""The way of a put through the engine: the files that it crosses, and what takes the fast path."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headgate.client.model.outgoing import build_plain_message
from headgate.engines.contract import NewMessage
from headgate.engines.packed_row import unpack
from headgate.engines.timeline import engine
from tests.simulation.timeline.timeline_puts import Client, Queue, simulate

ENGINE = Path(engine.__file__).parent
ROUTE = {"model/row.py", "put/decide_row_ack.py", "put/producer.py", "put/waiting_calls.py", "put/row_sender.py"}
"""Each holds the message in one of its forms."""
CONSULTED = {"model/decide_place.py", "model/layout.py", "model/partitions.py", "put/part_records.py"}
"""Asked for a place, an id, an index row or a count; they never hold a message."""


def test_a_put_crosses_five_files_of_the_engine() -> None:
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ENGINE):
            files.add(path.relative_to(ENGINE).as_posix())

    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        sys.setprofile(note)
        try:
            assert await queue.put(client, NewMessage(b"m")) is not None
            await asyncio.sleep(2)
        finally:
            sys.setprofile(None)

    simulate(scenario)
    assert ROUTE | CONSULTED == files


def cells_of(client: Client) -> list[bytes]:
    """The rows that were sent."""
    return [row.values[row.shape.value_names.index("run")] for row in client.store.sent_to("work")]


@pytest.mark.parametrize("payload", [b"bytes", "a text", {"to": "you"}, [1, 2]])
def test_a_put_without_options_takes_the_fast_path_whatever_its_payload(payload: Any) -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        future = client.producer.put_alone(build_plain_message(payload))
        assert future is not None
        assert 1 == len(await future)

    simulate(scenario)


def test_payloads_of_all_forms_share_a_row_and_keep_their_own_content_type() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        payloads: list[Any] = [b"bytes", {"to": "you"}, "a text", b"bytes"]
        await asyncio.gather(*(queue.put(client, build_plain_message(payload)) for payload in payloads))
        (cell,) = cells_of(client)
        run = unpack(cell)
        assert [b"bytes", b'{"to":"you"}', b"a text", b"bytes"] == list(run.payload)
        assert [
            b"",
            b'{"content-type":"application/json"}',
            b'{"content-type":"text/plain; charset=utf-8"}',
            b"",
        ] == list(run.attributes or ())

    simulate(scenario)


def test_attributes_count_for_the_size_of_a_row() -> None:
    async def scenario(queue: Queue) -> None:
        client = queue.client("producer")
        await client.producer.put([NewMessage(b"", attributes={"a": "x" * 100_000}) for _ in range(3)])
        assert [1, 1, 1] == [len(unpack(cell)) for cell in cells_of(client)]

    simulate(scenario)
