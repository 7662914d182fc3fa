"""`headgate put`: the options that reach the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any

import pytest
from click.testing import CliRunner

from headgate.cli import messages
from headgate.client.model.outgoing import Put


class Recorded:
    """A queue that notes its calls."""

    def __init__(self) -> None:
        self.timeouts: list[object] = []

    async def put_many(self, messages: Sequence[Put], **options: object) -> list[str]:
        """As the SDK's."""
        self.timeouts.append(options["timeout"])
        return ["id"] * len(messages)


@pytest.mark.parametrize(("given", "timeout"), [([], None), (["--timeout", "2s"], timedelta(seconds=2))])
def test_the_timeout_of_a_put_reaches_the_queue(
    monkeypatch: pytest.MonkeyPatch, given: list[str], timeout: timedelta | None
) -> None:
    queue = Recorded()

    def run(name: str, work: Callable[[Any], Coroutine[Any, Any, int]]) -> int:
        return asyncio.run(work(queue))

    monkeypatch.setattr(messages, "run_on_queue", run)
    answer = CliRunner().invoke(messages.put, ["shop/emails", "payload", *given])
    assert (0, "id\n") == (answer.exit_code, answer.output)
    assert [timeout] == queue.timeouts
