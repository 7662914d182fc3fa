"""Puts dead letters back into their source queues, each once.

A dead letter is received like any message, put under a once key that is derived from its id and its death, and then
settled. If the process dies in between, the message is received again, and the second put has no effect.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Protocol

from headgate.client.directory import QueueDeleted, QueueUnknown
from headgate.client.message import Message
from headgate.client.outgoing import Put
from headgate.client.queue import Queue
from headgate.engines.contract import Ack, Nack, Settle
from headgate.errors import SpecError

DIED_IN = "headgate.dead.queue"
DIED_OF = "headgate.dead.reason"
DEATH = "headgate.dead."
AT_ONCE = 200
WAIT_S = 8.0
"""Longer than it takes to acquire the lanes of a queue without workers."""
IDLE_S = 2.0


class Connection(Protocol):
    """The function that opens queues."""

    async def queue(self, name: str) -> Queue:
        """The queue of that name."""
        ...


@dataclass
class Redriven:
    """The result."""

    moved: int = 0
    left: int = 0
    """These name no source queue, or one that was deleted."""


async def redrive(connection: Connection, dead: str, *, to: str | None = None, limit: int | None = None) -> Redriven:
    """All messages that are in the queue `dead` now, or up to `limit` of them."""
    graves = await connection.queue(dead)
    if to is not None and (await connection.queue(to)).name == graves.name:
        raise SpecError("a dead-letter queue cannot be redriven into itself", queue=dead)
    done = Redriven()
    homeless: dict[str, Message] = {}
    until_us = graves.now_us()
    wait_s = WAIT_S
    while limit is None or done.moved < limit:
        found = await graves.receive(AT_ONCE if limit is None else min(AT_ONCE, limit - done.moved), wait=wait_s)
        wait_s = IDLE_S
        if not found:
            break
        done.moved += await _move(connection, graves, found, to, homeless)
        if min(message.delivery.due_us for message in found) > until_us:
            break
    if homeless:
        await graves.settle([Nack(message.receipt, charged=False) for message in homeless.values()])
    done.left = len(homeless)
    return done


async def _move(
    connection: Connection, graves: Queue, found: list[Message], to: str | None, homeless: dict[str, Message]
) -> int:
    """Put back the messages that name a source queue; returns their number. The others stay in flight, so that they
    do not come again."""
    by_target: dict[str, list[Message]] = defaultdict(list)
    for message in found:
        target = to or message.attributes.get(DIED_IN)
        if isinstance(target, str) and target != graves.name:
            by_target[target].append(message)
        else:
            homeless[message.id] = message
    settled: list[Settle] = []
    try:
        for target, messages in by_target.items():
            try:
                await (await connection.queue(target)).put_many(_put(message) for message in messages)
            except (QueueUnknown, QueueDeleted):
                if to is not None:
                    raise
                homeless |= {message.id: message for message in messages}
                continue
            settled += [Ack(message.receipt) for message in messages]
    finally:
        if settled:
            await graves.settle(settled)
    return len(settled)


def _put(message: Message) -> Put:
    """The message without the attributes of its death; the key distinguishes this death from any later one."""
    attributes = {name: value for name, value in message.attributes.items() if not name.startswith(DEATH)}
    once = f"redrive {message.id} {message.delivery.due_us}"
    return Put(message.payload, group=message.group, once=once, attributes=attributes)
