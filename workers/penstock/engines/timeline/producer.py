"""Puts messages into a timeline queue: group commit. The prose is "Put" in docs/protocols/timeline.md.

A flush begins as soon as nothing is in flight, else when the write in flight returns; more than one is in flight only
when more waits than one row holds. So an idle queue answers after one write, and a busy one fills its rows, with no
time to tune. What callers put in one turn of the loop is flushed together.

It decides nothing about rows: decide_flush.py says what shares one, sender.py sends it until its fate is known.

Invariants: a caller is answered once, with ids of durable messages or with an error; one who goes away takes nothing
from others, and what of his was not sent yet is not sent; of a group one flush is under way at a time; what waits is
bounded, and who comes when it is full waits at the door.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from penstock.engines.contract import Attributes, Message
from penstock.engines.host import Host
from penstock.engines.packed import PackedRun
from penstock.engines.timeline.decide_flush import (
    ROW_BYTES_MAX,
    ROW_MESSAGES_MAX,
    WRITE_ROWS_MAX,
    FlushTerms,
    Letter,
    RowPlan,
    generation_at,
    plan_grouped,
    plan_single,
    shard_in_turn,
    share_writes,
)
from penstock.engines.timeline.layout import Place, id_text, ttl_s_of
from penstock.engines.timeline.row_writes import StampedRow, ids_of
from penstock.engines.timeline.sender import Sender
from penstock.engines.timeline.settings import ShardBy, TimelineSettings
from penstock.engines.timeline.waiting import Call, GroupLines, Ids, PlainRoom, fail, tell_failure, tell_ids
from penstock.errors import Bug, PenstockError, Refused, SpecError
from penstock.store.store import Unknown

FLIGHTS_MAX = 16
GROUP_FLIGHTS_MAX = 4
WAITING_BYTES_MAX = 64 * 1024 * 1024
LETTERS_AT_ONCE_MAX = 4 * WRITE_ROWS_MAX


class Producer:
    """The putting side of one queue in one process."""

    def __init__(self, host: Host, settings: TimelineSettings, *, read_us: int) -> None:
        self.sender = Sender(host, settings, read_us=read_us)
        self._loop = asyncio.get_running_loop()
        self._create_future = self._loop.create_future
        self._plain = PlainRoom()
        self._letters: deque[Letter] = deque()
        self._letters_bytes = 0
        self._groups = GroupLines()
        self._door: deque[asyncio.Future[None]] = deque()
        self._flights: set[asyncio.Task[None]] = set()
        self._plain_flights = self._letter_flights = self._group_flights = 0
        self._pump_set = False
        self._closed = False
        self._set_limits(settings)

    def _set_limits(self, settings: TimelineSettings) -> None:
        self._at_once = settings.delay_us == 0
        self._bytes_max = settings.message_bytes_max

    def settings_changed(self, settings: TimelineSettings, *, read_us: int) -> None:
        """What a read of the catalogue told, and when it began; told at every read."""
        self.sender.settings_changed(settings, read_us=read_us)
        self._set_limits(settings)
        self._pump_soon()

    async def put(self, messages: Sequence[Message]) -> Ids:
        """The ids of these messages, durable by then. Once keys are `once.py`'s."""
        if self._closed:
            raise Refused("the producer is closed", queue=self.sender.settings.name)
        if self._door or self._waiting_bytes >= WAITING_BYTES_MAX:
            await self._wait_at_the_door()
        alone = self.put_alone(messages[0]) if len(messages) == 1 else None
        return await (self._put_several(messages) if alone is None else alone)

    def put_alone(self, message: Message) -> asyncio.Future[Ids] | None:
        """What is done a million times: a message of the plainest kind by itself, and who waits for it. None if it
        is of another kind, or if there is no room now; nothing was done then."""
        if (
            message.due_us is not None
            or message.group is not None
            or message.once is not None
            or message.attributes
            or not self._at_once
            or self._closed
            or self._door
            or self._waiting_bytes >= WAITING_BYTES_MAX
        ):
            return None
        payload = message.payload
        size = len(payload)
        if size > self._bytes_max:
            raise _too_large(size, self._bytes_max)
        plain = self._plain
        future: asyncio.Future[Ids] = self._create_future()
        plain.payloads.append(payload)
        plain.segments.append(future)
        plain.size_bytes += size
        if not self._pump_set:
            self._pump_set = True
            self._loop.call_soon(self._pump)
        return future

    async def _put_several(self, messages: Sequence[Message]) -> Ids:
        if not messages:
            return []
        call = Call(self._create_future(), len(messages))
        if self._at_once and not any(
            [message.due_us is not None or message.group is not None or message.attributes for message in messages]  # noqa: C419 - half the time
        ):
            self._wait_plain(call, [message.payload for message in messages])
        else:
            now_us = self.sender.host.now_us()
            self._wait_letters([self._letter(message, call, index, now_us) for index, message in enumerate(messages)])
        self._pump_soon()
        return await call.future

    def _wait_plain(self, call: Call, payloads: list[bytes]) -> None:
        sizes = [len(payload) for payload in payloads]
        if max(sizes) > self._bytes_max:
            raise _too_large(max(sizes), self._bytes_max)
        self._plain.payloads += payloads
        self._plain.segments.append((call, 0, len(payloads)))
        self._plain.size_bytes += sum(sizes)

    def _wait_letters(self, letters: Sequence[Letter]) -> None:
        for letter in letters:
            self._letters_bytes += letter.size
            if letter.group is None:
                self._letters.append(letter)
            else:
                self._groups.join(letter.group, letter)

    def _letter(self, message: Message, call: Call, index: int, now_us: int) -> Letter:
        """A message as it waits, checked: what can not be kept is refused before anything is written."""
        settings = self.sender.settings
        due_us = message.due_us
        if due_us is None and settings.delay_us:
            due_us = now_us + settings.delay_us
        if due_us is not None and due_us > now_us:
            self.check_keepable(due_us, now_us)
        group = None if message.group is None else message.group.encode()
        letter = Letter(message.payload, due_us, attribute_bytes(message.attributes), group, call, index)
        if letter.size > self._bytes_max:
            raise _too_large(letter.size, self._bytes_max)
        return letter

    def check(self, message: Message) -> None:
        """Refuse what could not be kept, before anything is written."""
        self._letter(message, Call(self._create_future(), 1), 0, self.sender.host.now_us())

    def check_keepable(self, due_us: int, now_us: int) -> None:
        """Refuse what the store can not keep until it is due, and then as long as the queue says."""
        host = self.sender.host
        ttl_s_of(
            due_us,
            now_us=now_us,
            retention_us=self.sender.settings.retention_us,
            last_expiry_s=host.last_expiry_s,
        )

    # ---- the door

    @property
    def _waiting_bytes(self) -> int:
        return self._plain.size_bytes + self._letters_bytes

    async def _wait_at_the_door(self) -> None:
        """Too much waits to be written: in order of coming, until there is room."""
        while self._door or self._waiting_bytes >= WAITING_BYTES_MAX:
            turn: asyncio.Future[None] = self._create_future()
            self._door.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._open_door()
                raise
            if self._waiting_bytes < WAITING_BYTES_MAX:
                break
        self._open_door()

    def _open_door(self) -> None:
        while self._door and (self._door[0].done() or self._waiting_bytes < WAITING_BYTES_MAX):
            turn = self._door.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    # ---- turns of groups, for once keys

    async def take_turns(self, groups: Sequence[bytes]) -> None:
        """Wait until these groups have nothing under way, and hold them: in one order, so none waits for ever."""
        held: list[bytes] = []
        try:
            for group in sorted(set(groups)):
                turn: asyncio.Future[None] = self._create_future()
                self._groups.join(group, turn)
                self._pump_soon()
                try:
                    await turn
                except asyncio.CancelledError:
                    if turn.done() and not turn.cancelled():
                        held.append(group)
                    raise
                held.append(group)
        except BaseException:
            self.give_turns_back(held)
            raise

    def give_turns_back(self, groups: Sequence[bytes]) -> None:
        """Let others go on with these groups."""
        self._groups.release(set(groups))
        self._pump_soon()

    # ---- the pump

    def _pump_soon(self) -> None:
        if not self._pump_set:
            self._pump_set = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        """Begin what flushes may begin now."""
        self._pump_set = False
        try:
            if self._plain.payloads:
                self._flush_plain()
            if self._letters:
                self._flush_letters()
            if self._groups.anybody_free:
                self._flush_groups()
        except PenstockError as error:
            self._fail_all(error)
        except Exception as error:  # a caller must hear of whatever went wrong, and nobody else would
            self._fail_all(Bug("a flush could not be made", error=repr(error)))
            raise
        if self._door:
            self._open_door()

    def _room_for_flights(self) -> bool:
        return self._plain_flights + self._letter_flights + self._group_flights < FLIGHTS_MAX

    def _flush_plain(self) -> None:
        plain = self._plain
        first = self._plain_flights == 0
        while plain.payloads and (first or plain.fills_a_row) and self._room_for_flights():
            now_us = self.sender.now_fresh_us()
            ready_us = self.sender.ready_us(now_us)
            payloads, segments = plain.take_row()
            if not payloads:
                return
            try:
                count = len(payloads)
                terms = self._terms(ready_us)
                generation = generation_at(terms.generations, ready_us)
                shard = shard_in_turn(terms, generation.shards, ready_us)
                run = PackedRun(due_us=[now_us] * count, put_us=[now_us] * count, payload=payloads)
                size = sum(map(len, payloads))
                place = self.sender.place_row(generation.number, shard, ready_us, now_us=now_us, size_bytes=size)
                row = self.sender.stamp(run, place, now_us=now_us, owners=segments)
            except PenstockError as error:
                tell_failure(segments, error)
                raise
            self._plain_flights += 1
            self._launch(self._fly_plain(row))

    def _flush_letters(self) -> None:
        if (self._letter_flights and len(self._letters) < WRITE_ROWS_MAX) or not self._room_for_flights():
            return
        taken = [self._letters.popleft() for _ in range(min(len(self._letters), LETTERS_AT_ONCE_MAX))]
        self._letters_bytes -= sum(letter.size for letter in taken)
        letters = [letter for letter in taken if not letter.call.future.cancelled()]
        try:
            now_us = self.sender.now_fresh_us()
            rows = self._stamp_plans(plan_single(letters, self._terms(self.sender.ready_us(now_us))), now_us)
        except PenstockError as error:
            for letter in letters:
                letter.call.fail(error)
            raise
        for share in share_writes([(row.partition, len(row.cell)) for row in rows]):
            self._letter_flights += 1
            self._launch(self._fly_letters([rows[place] for place in share]))

    def _flush_groups(self) -> None:
        while self._groups.anybody_free and self._group_flights < GROUP_FLIGHTS_MAX and self._room_for_flights():
            letters = self._groups.take(4 * ROW_MESSAGES_MAX, 4 * ROW_BYTES_MAX)
            self._letters_bytes -= sum(letter.size for letter in letters)
            try:
                now_us = self.sender.now_fresh_us()
                terms = self._terms(self.sender.ready_us(now_us))
                flights = [self._stamp_plans(plans, now_us) for plans in plan_grouped(letters, terms)]
            except PenstockError as error:
                for letter in letters:
                    letter.call.fail(error)
                self._groups.release({letter.group for letter in letters if letter.group is not None})
                raise
            for rows in flights:
                self._group_flights += 1
                self._launch(self._fly_groups(rows))

    def _terms(self, ready_us: int) -> FlushTerms:
        settings = self.sender.settings
        return FlushTerms(
            settings.generations, ready_us, self.sender.next_turn(), settings.shard_by is ShardBy.SECOND
        )

    def _stamp_plans(self, plans: Sequence[RowPlan], now_us: int) -> list[StampedRow]:
        rows = []
        for plan in plans:
            letters = plan.letters
            size = letters[0].size if len(letters) == 1 else sum(letter.size for letter in letters)
            place = self.sender.place_row(plan.generation, plan.shard, plan.due_us, now_us=now_us, size_bytes=size)
            rows.append(self.sender.stamp(_run_of(letters, now_us), place, now_us=now_us, owners=letters))
        return rows

    # ---- flights

    def _launch(self, flight: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(flight)
        self._flights.add(task)
        task.add_done_callback(self._flights.discard)

    async def _fly_plain(self, row: StampedRow) -> None:
        try:
            await self.sender.land(
                [row],
                acknowledged=lambda row: tell_ids(row.owners, ids_of(row.first, len(row.run))),
                given_up=lambda row, error: tell_failure(row.owners, error),
            )
        except BaseException as error:
            tell_failure(row.owners, _unforeseen(error))
            raise
        finally:
            self._plain_flights -= 1
            self._pump_soon()

    async def _fly_letters(self, rows: Sequence[StampedRow], *, joint: bool = False) -> None:
        try:
            await self.sender.land(rows, acknowledged=_tell_letters, given_up=_fail_letters, joint=joint)
        except BaseException as error:
            for row in rows:
                _fail_letters(row, _unforeseen(error))
            raise
        finally:
            if not joint:
                self._letter_flights -= 1
                self._pump_soon()

    async def _fly_groups(self, rows: Sequence[StampedRow]) -> None:
        try:
            await self._fly_letters(rows, joint=True)
        finally:
            self._group_flights -= 1
            self._groups.release({letter.group for row in rows for letter in row.owners})
            self._pump_soon()

    # ---- the end

    def _fail_all(self, error: PenstockError) -> None:
        """Nothing can be stamped now: all who wait hear it, and nothing of theirs was sent."""
        tell_failure(self._plain.take_all_segments(), error)
        letters = list(self._letters)
        self._letters.clear()
        self._letters_bytes = 0
        for who in (*letters, *self._groups.take_all()):
            if isinstance(who, Letter):
                who.call.fail(error)
            elif not who.done():
                who.set_exception(error)

    async def close(self) -> None:
        """Take nothing more, write what waits, and wait for what is in flight."""
        self._closed = True
        while self._plain.payloads or self._letters or self._groups.messages or self._flights:
            self._pump_soon()
            if self._flights:
                await asyncio.wait(self._flights, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0)
        await self.sender.close()


def _tell_letters(row: StampedRow) -> None:
    ids = ids_of(row.first, len(row.run))
    for letter, message_id in zip(row.owners, ids, strict=True):
        letter.call.take(letter.index, [message_id])


def _fail_letters(row: StampedRow, error: PenstockError) -> None:
    for letter in row.owners:
        letter.call.fail(error)


def _unforeseen(error: BaseException) -> PenstockError:
    return Unknown("a flush was broken off", error=repr(error))


def _run_of(letters: Sequence[Letter], now_us: int) -> PackedRun:
    """What is stored of letters that share a row; most often it is one."""
    if len(letters) == 1 and not letters[0].attributes and letters[0].group is None:
        due_us = letters[0].due_us
        return PackedRun([now_us if due_us is None else due_us], [now_us], [letters[0].payload])
    return PackedRun(
        due_us=[now_us if letter.due_us is None else letter.due_us for letter in letters],
        put_us=[now_us] * len(letters),
        payload=[letter.payload for letter in letters],
        attributes=_column([letter.attributes for letter in letters]),
        group=_column([letter.group or b"" for letter in letters]),
    )


def _column(values: Sequence[bytes]) -> Sequence[bytes] | None:
    return values if any(values) else None


def _too_large(size: int, size_max: int) -> SpecError:
    return SpecError(
        "a message is too large", remedy="raise maxMessageSize, or keep it elsewhere", size=size, size_max=size_max
    )


def attribute_bytes(attributes: Attributes) -> bytes:
    """Attributes as they are stored: docs/formats.md."""
    if not attributes:
        return b""
    stored = {
        name: value if isinstance(value, str) else {"binary": base64.b64encode(value).decode()}
        for name, value in attributes.items()
    }
    return json.dumps(stored, ensure_ascii=False, separators=(",", ":")).encode()


def id_of(place: Place) -> str:
    """The id of the message that was first put there."""
    return id_text(place.to_bytes())


__all__ = ["Producer", "attribute_bytes", "fail", "id_of"]
