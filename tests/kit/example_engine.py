"""A whole engine in one file, to prove that the seam suffices: it joins by one line in the registry, in a test.

One partition for each queue and one row for each message, where every put, delivery and settle is an LWT. It is what
the page "How to add an engine" points at, and nothing to use.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from headgate.api.read.versions import resource_of
from headgate.api.resources.queues import QueueResource
from headgate.engines.context import Host, Opening
from headgate.engines.contract import (
    Ack,
    Delivery,
    Engine,
    ExtendDelivery,
    MessageLocation,
    MessageState,
    NackDelivery,
    NewMessage,
    NotSupported,
    Peeked,
    Settle,
    Settled,
    Stats,
    Visibility,
)
from headgate.engines.registry import EngineRecord
from headgate.errors import HeadgateError, InvalidRequest
from headgate.store.catalogue.entry import Entry
from headgate.store.model.consistency import Consistency
from headgate.store.model.deadline import Deadline
from headgate.store.model.positions import time_us_of
from headgate.store.model.rows import Row
from headgate.store.model.statements import InsertIfAbsent, Select, UpdateIf, is_
from headgate.store.model.table import Column, Table, WrittenBy
from headgate.store.model.types import Type, Value
from headgate.store.store import NotSent, OutcomeUnknown

MS_US, SECOND_US = 1_000, 1_000_000
POLL_S = 0.1

LWT = WrittenBy.LWT
MESSAGES = Table(
    "example_messages",
    "the messages of a queue, all by LWT",
    partition=(Column("queue", Type.UUID),),
    clustering=(Column("id", Type.TIMEUUID),),
    columns=(
        Column("message", Type.BLOB, LWT),
        Column("attributes", Type.TEXT, LWT),
        Column("put_us", Type.BIGINT, LWT),
        Column("receipt", Type.UUID, LWT),
        Column("receives", Type.INT, LWT),
        Column("hidden_us", Type.BIGINT, LWT),
        Column("done", Type.INT, LWT),
        Column("attempt", Type.UUID, LWT),
    ),
    rows=LWT,
    attempt="attempt",
)


@dataclass(frozen=True)
class ExampleSettings:
    """One queue. Values that are not in its entry have one default for all."""

    queue: UUID
    name: str
    table: Table = MESSAGES
    visibility_us: int = 30 * SECOND_US
    free_visibility_us: int | None = None
    skew_us: int = SECOND_US // 2
    retention_us: int = 86_400 * SECOND_US
    once_window_us: int = 0
    max_receives: int = 5
    message_bytes_max: int = 64 * 1024
    dead_letter: str | None = None


def settings_of(entry: Entry, data_center: str) -> ExampleSettings:
    """From the catalogue's entry."""
    entry.require_home(data_center)
    resource = resource_of(entry.document)
    assert isinstance(resource, QueueResource)
    table = MESSAGES if entry.place.tables == "shared" else dedicated_tables(entry.id)[0]
    name = f"{entry.name.namespace}/{entry.name.name}"
    return ExampleSettings(entry.id, name, table, resource.spec.visibility_timeout.ms * MS_US)


def dedicated_tables(creation: UUID) -> tuple[Table, ...]:
    """Of one queue."""
    return (MESSAGES.named(f"q_{creation.hex}_messages"),)


class ExampleQueue(Engine):
    """One queue in one process, which remembers nothing: every answer is a read."""

    def __init__(self, host: Host, settings: ExampleSettings) -> None:
        self.host = host
        self._settings = settings
        self._is_closed = False

    @property
    def settings(self) -> ExampleSettings:
        """As the catalogue last stated."""
        return self._settings

    def now_us(self) -> int:
        """The host's."""
        return self.host.now_us()

    def settings_changed(self, settings: Any, *, read_us: int) -> None:
        """In force at once."""
        self._settings = settings

    async def close(self) -> None:
        """Nothing is buffered."""
        self._is_closed = True

    # ---- messages

    def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> Awaitable[list[str]]:
        """All are checked before the first is written."""
        return self._put_all(messages, deadline)

    async def _put_all(self, messages: Sequence[NewMessage], deadline: Deadline | None) -> list[str]:
        ids: list[str] = []
        for message in messages:
            self._check(message)
        for message in messages:
            try:
                ids.append(await self._put_in_time(message, deadline))
            except NotSent as error:
                raise OutcomeUnknown("Only the first of the messages are put") if ids else error from None
        return ids

    async def _put_in_time(self, message: NewMessage, deadline: Deadline | None) -> str:
        if deadline is not None and deadline.is_over(asyncio.get_running_loop().time()):
            raise NotSent
        try:
            async with asyncio.timeout_at(None if deadline is None else deadline.at_s):
                return await self._put_one(message)
        except TimeoutError:
            raise OutcomeUnknown from None

    async def put_each(
        self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None
    ) -> list[str | HeadgateError]:
        """One after the other."""
        outcomes: list[str | HeadgateError] = []
        for message in messages:
            try:
                self._check(message)
                outcomes.append(await self._put_in_time(message, deadline))
            except HeadgateError as error:
                outcomes.append(error)
        return outcomes

    def _check(self, message: NewMessage) -> None:
        if message.group is not None or message.once is not None or message.due_us is not None:
            raise NotSupported("The example takes plain messages alone", queue=self.settings.name)
        if len(message.payload) > self.settings.message_bytes_max:
            raise InvalidRequest("The message is too large", queue=self.settings.name)

    async def _put_one(self, message: NewMessage) -> str:
        now_us = self.now_us()
        id_ = self.host.positions.at(now_us)
        values: dict[str, Value] = {"queue": self.settings.queue, "id": id_, "message": message.payload}
        values |= {"attributes": json.dumps(dict(message.attributes)), "put_us": now_us, "receipt": self.host.uuid()}
        values |= {"receives": 0, "hidden_us": 0, "done": 0}
        await self.host.store.decide(InsertIfAbsent(self.settings.table, values, attempt=self.host.uuid()))
        return str(id_)

    async def receive(self, limit: int, *, visibility_us: int | None = None, wait_us: int = 0) -> list[Delivery]:
        """Claims, one after the other, what is visible."""
        visibility_us = self.settings.visibility_us if visibility_us is None else visibility_us
        until_us = self.now_us() + wait_us
        while not self._is_closed:
            visible = [row for row in await self._live() if row.hidden_us <= self.now_us()]
            claims = [await self._claim(row, visibility_us) for row in visible[:limit]]
            deliveries = [claim for claim in claims if claim is not None]
            if deliveries or self.now_us() >= until_us:
                return deliveries
            await asyncio.sleep(POLL_S)
        return []

    async def _claim(self, row: Row, visibility_us: int) -> Delivery | None:
        receipt, until_us = self.host.uuid(), self.now_us() + visibility_us
        changed = {"receipt": receipt, "hidden_us": until_us, "receives": row.receives + 1}
        if await self._change(row, changed) is not Settled.DONE:
            return None
        text = f"{row.id}/{receipt}"
        due_us, attributes = time_us_of(row.id), json.loads(row.attributes)
        attempt = row.receives + 1
        return Delivery(
            str(row.id), row.message, attributes, None, attempt, due_us, row.put_us, attempt, until_us, text
        )

    async def settle(self, settles: Sequence[Settle]) -> list[Settled]:
        """One after the other."""
        return [await self._settle(settle) for settle in settles]

    async def _settle(self, settle: Settle) -> Settled:
        id_, _, receipt = settle.receipt.partition("/")
        row, now_us = await self._row(id_), self.now_us()
        if row is None or row.done or str(row.receipt) != receipt or row.hidden_us <= now_us:
            return Settled.STALE
        if isinstance(settle, Ack):
            return await self._change(row, {"done": 1})
        if isinstance(settle, ExtendDelivery):
            return await self._change(row, {"hidden_us": now_us + settle.visibility_us})
        uncharged = isinstance(settle, NackDelivery) and not settle.charged
        changed: dict[str, Value] = {"receipt": self.host.uuid(), "receives": row.receives - uncharged}
        return await self._change(row, {**changed, "hidden_us": now_us + settle.delay_us})

    async def _change(self, row: Row, to: dict[str, Value]) -> Settled:
        """The change of a row that is still as it was read."""
        key = {"queue": self.settings.queue, "id": row.id}
        as_read = (is_("receipt", row.receipt), is_("hidden_us", row.hidden_us), is_("done", 0))
        try:
            update = UpdateIf(self.settings.table, key, to, *as_read, attempt=self.host.uuid())
            outcome = await self.host.store.decide(update)
        except OutcomeUnknown:
            return Settled.UNKNOWN
        return Settled.DONE if outcome.applied else Settled.STALE

    # ---- inspection

    async def _live(self) -> list[Row]:
        select = Select(self.settings.table, {"queue": self.settings.queue}, consistency=Consistency.SERIAL)
        return [row for row in await self.host.store.read(select) if row.done == 0]

    async def _row(self, message_id: str) -> Row | None:
        try:
            key: dict[str, Value] = {"queue": self.settings.queue, "id": UUID(message_id)}
        except ValueError:
            raise InvalidRequest("The id is not one of this queue", given=message_id) from None
        rows = await self.host.store.read(Select(self.settings.table, key, consistency=Consistency.SERIAL))
        return rows[0] if rows else None

    async def peek(self, limit: int, *, from_us: int | None = None) -> list[Peeked]:
        """By their ids, which begin with the time."""
        now_us = self.now_us()
        return [
            Peeked(
                str(row.id),
                row.message,
                json.loads(row.attributes),
                None,
                time_us_of(row.id),
                row.put_us,
                row.receives,
                Visibility.IN_FLIGHT if row.hidden_us > now_us else Visibility.READY,
                row.hidden_us,
            )
            for row in await self._live()
            if time_us_of(row.id) >= (from_us or 0)
        ][:limit]

    async def where(self, message_id: str) -> MessageLocation:
        """Its row."""
        row = await self._row(message_id)
        if row is None:
            return MessageLocation(message_id, MessageState.NOT_FOUND, ())
        hidden = MessageState.IN_FLIGHT if row.hidden_us > self.now_us() else MessageState.WAITING
        return MessageLocation(message_id, MessageState.SETTLED if row.done else hidden, (message_id,))

    async def stats(self) -> Stats:
        """By counting all rows."""
        live, now_us = await self._live(), self.now_us()
        in_flight = sum(row.hidden_us > now_us for row in live)
        oldest_us = min((time_us_of(row.id) for row in live if row.hidden_us <= now_us), default=None)
        return Stats(len(live) - in_flight, in_flight, 0, oldest_us)

    async def purge(self, before_us: int | None = None) -> int:
        """Settle what was put before."""
        before_us = self.now_us() if before_us is None else before_us
        for row in await self._live():
            if row.put_us < before_us:
                await self._change(row, {"done": 1})
        return before_us


def open_queue(opening: Opening) -> ExampleQueue:
    """In this process."""
    return ExampleQueue(opening.queue.host, opening.queue.settings)


RECORD = EngineRecord(
    capabilities=frozenset(),
    shared_tables=lambda: (MESSAGES,),
    dedicated_tables=dedicated_tables,
    settings_of=settings_of,
    open=open_queue,
)
