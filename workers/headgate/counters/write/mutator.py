"""The updates of one process to one counter: applied to states in memory, and written whole, one bucket at a time.
The prose is "Mutators" in docs/internals/protocols/counters.md; the decisions are in decide_life.py.

An update costs its caller one future and no task. It waits in the buffer of its bucket until the current write of the
bucket has landed. Then it leaves with all others that arrived meanwhile, as one batch on one partition.

    mutator.add(key, update) -> future        done once the update is durable, or with the reason why that is not
    known

It does not know the meaning of a state, its callers, or how values are read.

Invariants: of a bucket one write is under way at a time; timestamps grow strictly. An update is applied when its
write is built, not before, so that an update that was never sent is distinguishable from one that may have been. A
sent write is sent again, with the same bytes and timestamp, until it is known to have landed or this mutator has to
be silent. It is acknowledged only while the mutator may acknowledge (R2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.counters.model.decide_life import Life, decide_stamp_us
from headgate.counters.model.decide_shards import bucket_of, mutator_id
from headgate.counters.model.decide_windows import TOTAL, Place, places_at
from headgate.counters.model.settings import CounterSettings
from headgate.counters.types.contract import CounterType
from headgate.counters.write.memory import Memory, Slot, SlotKey
from headgate.counters.write.part import WRITE_WITHIN_S, Writer, acknowledge_callers, fail_callers
from headgate.engines.context import Host
from headgate.errors import Bug, HeadgateError, InvalidRequest, OperationRefused, Unavailable
from headgate.process.live import Live
from headgate.store.model.statements import RowsOf, Select
from headgate.store.store import NotSent, OutcomeUnknown

KEY_BYTES_MAX = 1_024
STATE_BYTES_MAX = 8 * 1024 * 1024
FLUSH_UPDATES_MAX = 20_000
WAITING_MAX = 500_000
READS_AT_ONCE = 16
KEYS_KNOWN_MAX = 20_000
AGAIN_S = 1.0
WINDOWS_FORGOTTEN_EVERY_US = 60_000_000

Waiting = tuple[str, Any, "asyncio.Future[None]"]
"""Key, update, and the waiting caller."""


_TOTAL_ALONE: tuple[Place, ...] = (TOTAL,)


class KeyInvalid(InvalidRequest):
    """A key has 1 to 1024 bytes."""


class TooManyWait(Unavailable):
    """More updates wait than this process holds; this one was not sent."""


class StateTooLarge(OperationRefused):
    """The state of this key has grown beyond what one write takes; this update was not sent."""


class MutatorClosed(OperationRefused):
    """This counter was closed; the update was not sent."""


class UpdateUnknown(OutcomeUnknown):
    """The update may have been counted, or may still be: its write was not answered in time."""


class _Living:
    def __init__(self, life: Life, low: int, memory: Memory) -> None:
        self.life = life
        self.low = low
        self.id = mutator_id(life.end_us, low)
        self.memory = memory

    def id_in(self, place: Place) -> bytes:
        """In a window it ends with that, so that nothing of it ever seems younger than it is."""
        return self.id if place == TOTAL else mutator_id(sum(place) + self.life.refuse_within_us, self.low)


@dataclass(slots=True, eq=False)
class _BucketBuffer:
    bucket: int
    busy: bool = False
    waiting: list[Waiting] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _InFlightBatch:
    living: _Living
    callers: list[asyncio.Future[None]]
    slots: list[Slot]
    writes: list[RowsOf] = field(default_factory=list)


class Mutator(Writer):
    def __init__(self, host: Host, settings: Live[CounterSettings], kind: CounterType[Any, Any]) -> None:
        super().__init__(host, settings, kind, "counter updates")
        self.waiting = 0
        """Updates that no write has taken yet."""
        self.unknown_writes = 0
        """Writes of which it is not known whether they landed, and which are sent again."""
        self.born = 0
        self._buffers = [_BucketBuffer(bucket) for bucket in range(self.settings.buckets)]
        self._buffer_of_key: dict[str, _BucketBuffer] = {}
        self._living: _Living | None = None
        self._stamp_us = 0
        self._windows_forgotten_us = 0

    def has_waiting(self) -> bool:
        return self.waiting > 0

    @property
    def culled(self) -> int:
        return self._living.memory.culled if self._living is not None else 0

    @property
    def memory_bytes(self) -> int:
        return self._living.memory.bytes if self._living is not None else 0

    # ---- the way of an update

    def add(self, key: str, update: Any) -> asyncio.Future[None]:
        future: asyncio.Future[None] = self._loop.create_future()
        buffer = self._buffer_of_key.get(key) or self._assign_buffer(key)
        buffer.waiting.append((key, update, future))
        self.waiting += 1
        if not buffer.busy:
            buffer.busy = True
            self._loop.call_soon(self._begin, buffer)
        elif self.waiting > WAITING_MAX:
            self._refuse_waiting(buffer, TooManyWait(waiting=self.waiting))
        return future

    def _assign_buffer(self, key: str) -> _BucketBuffer:
        """Its bucket's; cached for recurring keys, since a lookup costs less than a sum over the key."""
        buffer = self._buffers[bucket_of(key, self.settings.buckets)]
        if len(self._buffer_of_key) >= KEYS_KNOWN_MAX:
            self._buffer_of_key.clear()
        self._buffer_of_key[key] = buffer
        return buffer

    def _refuse_waiting(self, buffer: _BucketBuffer, error: HeadgateError) -> None:
        buffer.waiting.pop()[2].set_exception(error)
        self.waiting -= 1

    def _begin(self, buffer: _BucketBuffer) -> None:
        self._tasks.start(self._fly(buffer))

    async def _fly(self, buffer: _BucketBuffer) -> None:
        taken: list[Waiting] = []
        try:
            while buffer.waiting:
                taken = _take(buffer)
                self.waiting -= len(taken)
                batch = await self._prepare(buffer, taken)
                if batch is not None:
                    await self._land(buffer, batch)
        except BaseException as error:
            broken = UpdateUnknown("Write aborted", error=repr(error))
            fail_callers([future for _, _, future in taken], broken)
            self._fail_waiting(buffer, Bug("Write failed", error=repr(error)))
            raise
        finally:
            buffer.busy = False

    async def _prepare(self, buffer: _BucketBuffer, taken: list[Waiting]) -> _InFlightBatch | None:
        held: list[Slot] = []
        memory: Memory | None = None
        try:
            if self._closed:
                raise MutatorClosed
            now_us = await self.read_trusted_us()
            living = self._live(now_us)
            memory = living.memory
            places = self._places(now_us)
            missing = self._missing(memory, taken, places)
            if missing:
                # States in memory may not be evicted while the rest is read back, nor those read back while more is.
                held = memory.hold_all({each[0] for each in taken}, places)
                taken = await self._bring_back(living, buffer, missing, taken, held)
                now_us = await self.read_trusted_us()
                if not living.life.accepts(now_us):  # it died meanwhile: nothing of this was applied
                    buffer.waiting[:0] = taken
                    self.waiting += len(taken)
                    return None
            batch = self._apply(living, taken, places)
            if batch.slots:
                self._write(buffer, batch, taken, now_us)
            return batch if batch.writes else None
        except HeadgateError as error:
            fail_callers([future for _, _, future in taken], error)
            return None
        finally:
            if memory is not None:
                for slot in held:
                    memory.unpin(slot)

    @staticmethod
    def _missing(memory: Memory, taken: Iterable[Waiting], places: Sequence[Place]) -> set[SlotKey]:
        """States that this mutator has evicted, as far as it knows, and needs now."""
        if not memory.culled:
            return set()
        return {
            (key, place)
            for key in {each[0] for each in taken}
            for place in places
            if memory.find(key, place) is None and memory.may_have_gone(key, place)
        }

    def _live(self, now_us: int) -> _Living:
        living = self._living
        if living is None or not living.life.accepts(now_us):
            life = Life.begin(now_us, self.settings.life)
            low = self.host.uuid().int & 0xFFFF_FFFF_FFFF_FFFF or 1
            living = self._living = _Living(life, low, Memory(self.settings.memory_bytes_max))
            self.born += 1
        return living

    def _places(self, now_us: int) -> tuple[Place, ...]:
        grains_us = self.settings.grains_us
        if not grains_us:
            return _TOTAL_ALONE
        if now_us - self._windows_forgotten_us > WINDOWS_FORGOTTEN_EVERY_US and self._living is not None:
            self._windows_forgotten_us = now_us
            self._living.memory.forget_windows(now_us)
        return places_at(now_us, grains_us)

    # ---- states that went

    async def _bring_back(
        self, living: _Living, buffer: _BucketBuffer, missing: set[SlotKey], taken: list[Waiting], held: list[Slot]
    ) -> list[Waiting]:
        """Read this mutator's own shards back; the callers of one that cannot be read get an error, and nothing was
        sent."""
        failed: dict[str, HeadgateError] = {}
        wanted = sorted(missing)
        for first in range(0, len(wanted), READS_AT_ONCE):
            some = wanted[first : first + READS_AT_ONCE]
            states = await asyncio.gather(
                *(self._read_own(living, buffer.bucket, key, place) for key, place in some), return_exceptions=True
            )
            for (key, place), state in zip(some, states, strict=True):
                if isinstance(state, HeadgateError):
                    failed[key] = NotSent("The state could not be read back; nothing was sent", last=state.message)
                elif isinstance(state, BaseException):
                    raise state
                else:
                    slot = living.memory.put(key, place, state)
                    living.memory.hold(slot)
                    held.append(slot)
        for key, _, future in taken:
            if key in failed:
                fail_callers([future], failed[key])
        return [each for each in taken if each[0] not in failed]

    async def _read_own(self, living: _Living, bucket: int, key: str, place: Place) -> Any:
        """Exact: all its writes were acknowledged before it was evicted, and nobody else writes that row."""
        tables = self.settings.tables
        whole = {**self.partition(bucket, place), "key": key, "mutator": living.id_in(place)}
        table = tables.shards if place == TOTAL else tables.windows
        rows = await self.host.store.read(Select(table, whole, ["state"]))
        return self.kind.load(rows[0].state) if rows and rows[0].state is not None else self.kind.zero()

    # ---- applying

    def _apply(self, living: _Living, taken: Iterable[Waiting], places: Sequence[Place]) -> _InFlightBatch:
        apply = self.kind.apply
        slots_of: dict[str, list[Slot]] = {}
        changed: dict[Slot, None] = {}
        callers: list[asyncio.Future[None]] = []
        for key, update, future in taken:
            if future.done():  # its callers were cancelled, and nothing of it was sent
                continue
            part = False
            try:
                slots = slots_of.get(key)
                if slots is None:
                    slots = slots_of[key] = [self._slot_of(living, key, place) for place in places]
                for slot in slots:
                    slot.state = apply(slot.state, update)
                    changed[slot] = None
                    part = True
            except Exception as error:  # a custom type may raise anything
                future.set_exception(UpdateUnknown("The update was counted in part", cause=error) if part else error)
                continue
            callers.append(future)
        return _InFlightBatch(living, callers, list(changed))

    def _slot_of(self, living: _Living, key: str, place: Place) -> Slot:
        slot = living.memory.find(key, place)
        if slot is not None:
            return slot
        if not key or len(key.encode()) > KEY_BYTES_MAX:
            raise KeyInvalid(given=key[:60])
        return living.memory.put(key, place, self.kind.zero())

    def _write(self, buffer: _BucketBuffer, batch: _InFlightBatch, taken: Sequence[Waiting], now_us: int) -> None:
        """The batches: one for each partition, all with one timestamp that no write of this mutator had."""
        self._stamp_us = stamp_us = decide_stamp_us(now_us, self._stamp_us)
        living = batch.living
        if stamp_us >= living.life.silent_after_us:
            raise Bug("A mutator's timestamps are past its end", stamp_us=stamp_us)
        dumped = [(slot, self.kind.dump(slot.state)) for slot in batch.slots]
        too_large = {slot.key for slot, state in dumped if len(state) > STATE_BYTES_MAX}
        if too_large:
            dumped = self._leave_out(batch, dumped, taken, too_large)
        rows: dict[Place, list[tuple[str, bytes, bytes]]] = {}
        for slot, state in dumped:
            living.memory.pin(slot, len(state))
            rows.setdefault(slot.place, []).append((slot.key, living.id_in(slot.place), state))
        for place, tails in rows.items():
            batch.writes += self.build_rows(buffer.bucket, place, tails, stamp_us=stamp_us, now_us=now_us)

    @staticmethod
    def _leave_out(
        batch: _InFlightBatch, dumped: list[tuple[Slot, bytes]], taken: Sequence[Waiting], too_large: set[str]
    ) -> list[tuple[Slot, bytes]]:
        """A state that is too large is evicted unchanged: the key continues with the state that was written last."""
        refused = {future for key, _, future in taken if key in too_large}
        for future in refused:
            fail_callers(
                [future], StateTooLarge(bytes_max=STATE_BYTES_MAX, remedy="spread the updates over several keys")
            )
        batch.callers = [future for future in batch.callers if future not in refused]
        for slot, _ in dumped:
            if slot.key in too_large:
                batch.living.memory.drop(slot)
        kept = [each for each in dumped if each[0].key not in too_large]
        batch.slots = [slot for slot, _ in kept]
        return kept

    # ---- landing

    async def _land(self, buffer: _BucketBuffer, batch: _InFlightBatch) -> None:
        """Until all of it is known, or the mutator has to be silent."""
        writes = batch.writes
        if len(writes) == 1:
            landed = await self._send(buffer, batch, writes[0])
        else:
            landed = all(await asyncio.gather(*(self._send(buffer, batch, each) for each in writes)))
        if not landed:
            return  # its states are lost with it
        memory = batch.living.memory
        for slot in batch.slots:
            memory.unpin(slot)
        memory.cull()
        try:
            speaks = batch.living.life.acknowledges(await self.read_trusted_us())
        except Unavailable as error:
            fail_callers(batch.callers, UpdateUnknown("The time of the answer is unknown", last=error.message))
            return
        if not speaks:
            fail_callers(batch.callers, UpdateUnknown("The mutator ended before the answer"))
            return
        acknowledge_callers(batch.callers)

    async def _send(self, buffer: _BucketBuffer, batch: _InFlightBatch, write: RowsOf) -> bool:
        """The same bytes and timestamp, until they are known to have landed. Whether they have."""
        store = self.host.store
        again = False
        try:
            while True:
                try:
                    await store.write(write, within_s=WRITE_WITHIN_S)
                    return True
                except Unavailable as error:
                    unknown = UpdateUnknown(last=error.message)
                    fail_callers(batch.callers, unknown)
                    earlier = "An earlier write of the same bucket is not known yet; this update was not sent"
                    self._fail_waiting(buffer, NotSent(earlier, last=error.message))
                if not again:
                    again = True
                    self.unknown_writes += 1
                if not await self._may_send_again(batch.living.life):
                    return False
        finally:
            self.unknown_writes -= again

    async def _may_send_again(self, life: Life) -> bool:
        """While the clock is not trusted nothing is sent; once this mutator is silent nothing is sent, for good."""
        while True:
            await self.host.store.pause(AGAIN_S)
            try:
                return life.acknowledges(self.host.now_us())
            except Unavailable:
                continue

    def _fail_waiting(self, buffer: _BucketBuffer, error: HeadgateError) -> None:
        waiting, buffer.waiting = buffer.waiting, []
        self.waiting -= len(waiting)
        fail_callers([future for _, _, future in waiting], error)


def _take(buffer: _BucketBuffer) -> list[Waiting]:
    taken = buffer.waiting
    if len(taken) <= FLUSH_UPDATES_MAX:
        buffer.waiting = []
        return taken
    buffer.waiting = taken[FLUSH_UPDATES_MAX:]
    return taken[:FLUSH_UPDATES_MAX]
