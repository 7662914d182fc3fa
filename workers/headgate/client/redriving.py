"""Moves dead letters back into the queue they came from, each once.

A dead letter is received like any message, put under a once key made of its id and its due time in the dead-letter
queue, and then settled. A process that dies in between leaves a message that is received again and put no second
time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from headgate.client.catalogue.queue_record import QueueDeleted, QueueNotFound
from headgate.client.message import Message, Received
from headgate.client.model.outgoing import Put
from headgate.engines.contract import Ack, MessageState, NackDelivery, Settle
from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from headgate.client.queue import Queue

SOURCE_QUEUE: Final = "headgate.dead.queue"
DEATH_REASON: Final = "headgate.dead.reason"
DEATH_PREFIX: Final = "headgate.dead."
AT_ONCE: Final = 200
WAIT_S: Final = 8.0
"""Longer than it takes to get the lanes of a queue that has no consumers."""
IDLE_S: Final = 2.0
SCOPE_US: Final = 10_000_000
"""Messages that died within this time claim their keys together: one by one they cost some twenty times as much."""
IDS_MAX: Final = 10_000
LIVE: Final = (MessageState.WAITING, MessageState.IN_FLIGHT, MessageState.LATE)
HELD_MAX: Final = 10_000
"""Messages that are received and stay are held until the end; at this number the redrive stops."""

Filter = Callable[[Received], bool]


class QueueOpener(Protocol):
    async def queue(self, name: str) -> Queue: ...


class SkipReason(Enum):
    """Why a message stays in the dead-letter queue."""

    NO_SOURCE = "it has no source queue; give a target"
    SOURCE_NOT_FOUND = "its source queue does not exist; give a target"
    NOT_FOUND = "it is not in this queue"
    NOT_RECEIVED = "it was not received in time; it may be in flight elsewhere"


@dataclass(frozen=True, slots=True)
class SkippedMessage:
    """A message that stays."""

    message_id: str
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """What a redrive did: the number of messages moved, and those that stay though they were meant."""

    moved: int = 0
    skipped: tuple[SkippedMessage, ...] = ()
    complete: bool = True
    """False where it stopped because it held too many messages that stay; run it again after it."""


@dataclass
class _Run:
    """One redrive, while it runs: which messages are meant, and what became of them."""

    source: Queue
    to: str | None
    matching: Filter | None
    limit: int | None
    wanted: set[str] | None = None
    """Ids that were not received yet; None: any."""
    moved: int = 0
    held: dict[str, Message] = field(default_factory=dict)
    """Received messages that stay: they are returned at the end, so that none is received twice."""
    skipped: dict[str, SkipReason] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        return self._is_full(self.moved) or self.wanted == set() or len(self.held) >= HELD_MAX

    @property
    def at_once(self) -> int:
        """How many to receive: no more than the limit, where every message counts."""
        if self.limit is None or self.wanted is not None or self.matching is not None:
            return AT_ONCE
        return min(AT_ONCE, self.limit - self.moved)

    def _is_full(self, count: int) -> bool:
        return self.limit is not None and count >= self.limit

    async def find(self, ids: Iterable[str]) -> None:
        """Want those of the ids that are live messages of the queue."""
        given = dict.fromkeys(ids)
        if not given or len(given) > IDS_MAX:
            raise InvalidRequest(f"A redrive takes from 1 to {IDS_MAX} ids", given=len(given))
        self.wanted = set()
        for id_ in given:
            if (await self.source.read_location(id_)).fate in LIVE:
                self.wanted.add(id_)
            else:
                self.skipped[id_] = SkipReason.NOT_FOUND

    def select(self, received: Sequence[Message]) -> list[Message]:
        """Those to move; the others are held."""
        selected: list[Message] = []
        for message in received:
            if self._is_meant(message) and not self._is_full(self.moved + len(selected)):
                selected.append(message)
            else:
                self.held[message.id] = message
        if self.wanted is not None:
            self.wanted -= {message.id for message in received}
        return selected

    def _is_meant(self, message: Message) -> bool:
        if self.wanted is not None and message.id not in self.wanted:
            return False
        return self.matching is None or self.matching(message)

    def _skip(self, messages: Iterable[Message], reason: SkipReason) -> None:
        for message in messages:
            self.held[message.id] = message
            self.skipped[message.id] = reason

    async def move(self, connection: QueueOpener, messages: list[Message]) -> int:
        """Put messages into their targets and settle them in the dead-letter queue. How many were moved; the others
        are skipped."""
        by_target: dict[str, list[Message]] = defaultdict(list)
        for message in messages:
            target = self.to or message.attributes.get(SOURCE_QUEUE)
            if isinstance(target, str) and target != self.source.name:
                by_target[target].append(message)
            else:
                self._skip([message], SkipReason.NO_SOURCE)
        settles: list[Settle] = []
        try:
            for target, group in by_target.items():
                try:
                    queue = await connection.queue(target)
                    await queue.put_many(_put(message) for message in group)
                except (QueueNotFound, QueueDeleted):
                    if self.to is not None:
                        raise
                    self._skip(group, SkipReason.SOURCE_NOT_FOUND)
                    continue
                settles += [Ack(message.receipt) for message in group]
        finally:
            if settles:
                await self.source.settle(settles)
        self.moved += len(settles)
        return len(settles)

    def result(self) -> RedriveResult:
        missing = () if self._is_full(self.moved) else sorted(self.wanted or ())
        reasons = self.skipped | dict.fromkeys(missing, SkipReason.NOT_RECEIVED)
        skipped = tuple(SkippedMessage(id_, reason) for id_, reason in reasons.items())
        return RedriveResult(self.moved, skipped, complete=len(self.held) < HELD_MAX)


async def redrive(
    connection: QueueOpener,
    dead_letters: str,
    *,
    ids: Iterable[str] | None = None,
    matching: Filter | None = None,
    to: str | None = None,
    limit: int | None = None,
    on_moved: Callable[[int], None] | None = None,
) -> RedriveResult:
    """Move what is in the queue `dead_letters` now: all of it, these ids, what `matching` accepts, or up to `limit`.

    `to` is the target; by default each message returns to its source queue. `on_moved` is called with the number of
    messages of each step.
    """
    source = await connection.queue(dead_letters)
    if to is not None and (await connection.queue(to)).name == source.name:
        raise InvalidRequest(
            "A dead-letter queue is not its own target", queue=dead_letters, remedy="name another queue"
        )
    run = _Run(source, to, matching, limit)
    if ids is not None:
        await run.find(ids)
    until_us = source.now_us()
    wait_s = WAIT_S
    try:
        while not run.is_over:
            received = await source.receive(run.at_once, wait=wait_s)
            wait_s = IDLE_S
            if all(message.id in run.held for message in received):
                break  # none is left, or those that stay come again
            moved = await run.move(connection, run.select(received))
            if on_moved is not None and moved:
                on_moved(moved)
            if min(message.delivery.due_us for message in received) > until_us:
                break
    finally:
        if run.held:
            await asyncio.shield(
                source.settle([NackDelivery(each.receipt, charged=False) for each in run.held.values()])
            )
    return run.result()


def _put(message: Message) -> Put:
    """The message as it was before its death; the key differs from that of any later death."""
    attributes = {name: value for name, value in message.attributes.items() if not name.startswith(DEATH_PREFIX)}
    due_us = message.delivery.due_us
    once, scope = f"redrive {message.id} {due_us}", f"redrive {due_us // SCOPE_US}"
    return Put(message.payload, group=message.group, once=once, once_scope=scope, attributes=attributes)
