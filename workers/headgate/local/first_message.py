"""The first message of a local stack: put into a queue, and followed until a worker has handled it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import headgate
from headgate.api.read.parse import Resource
from headgate.api.resources.queues import QueueResource
from headgate.engines.contract import MessageState
from headgate.errors import InvalidRequest, Unavailable

HANDLED_WITHIN_S = 60.0
_BETWEEN_ASKING_S = 0.1


@dataclass(frozen=True)
class FirstMessage:
    payload: str
    then_end: bool = False
    """Whether the stack ends when it is handled."""


def find_worked_queue(resources: Sequence[Resource]) -> str:
    """The first queue that has a consumer, as `namespace/name`. Pure."""
    for each in resources:
        if isinstance(each, QueueResource) and each.spec.consumers:
            return f"{each.metadata.namespace}/{each.metadata.name}"
    raise InvalidRequest("No queue has a consumer, so nothing would handle the message", remedy="leave --put out")


def parse_payload(text: str) -> object:
    """JSON as what it means, any other text as it is. Pure."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def put_first_message(
    environment: Mapping[str, str],
    queue: str,
    payload: str,
    print_line: Callable[[str], None],
    *,
    within_s: float = HANDLED_WITHIN_S,
) -> None:
    """Put it, and return when it is handled."""
    loop = asyncio.get_running_loop()
    async with headgate.connect(environment) as connection:
        opened = await connection.queue(queue)
        message = await opened.put(parse_payload(payload))
        began_s = loop.time()
        print_line(f"message {message}: {payload}")
        while (state := (await opened.where(message)).state) is not MessageState.SETTLED:
            if loop.time() - began_s > within_s:
                raise Unavailable(
                    "The first message was not handled in time",
                    remedy="read the lines of its worker above",
                    queue=queue,
                    seconds=round(within_s),
                    state=state.value,
                )
            await asyncio.sleep(_BETWEEN_ASKING_S)
        print_line(f"handled, {loop.time() - began_s:.1f} s after it was put")
