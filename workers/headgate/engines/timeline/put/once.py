"""Messages with a once key: within onceWindow the same key, from any process, creates one message. The prose and its
argument are "Once" in docs/internals/protocols/timeline.md; decisions are decide_once.py.

An LWT claims a place for the key, then the message is written to it as a copy, then that is noted. A process that
finds a claim without the note finishes it first: the same row at the same place, or a restamped row that names it.

Invariants: nothing is answered before a row of the claim is durable, in time for its reader; all rows of one claim
are at its place or name it; the note never outlives the claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from headgate.engines.contract import NewMessage
from headgate.engines.packed_row import attribute_bytes
from headgate.engines.timeline.model.decide_place import generation_at
from headgate.engines.timeline.model.layout import SECOND_US, MessagePlace, RowPlace, id_alone, id_text
from headgate.engines.timeline.model.row import share_writes
from headgate.engines.timeline.put.copies import Copy, write_copies
from headgate.engines.timeline.put.decide_once import (
    CLAIMED_AT_ONCE_MAX,
    Claim,
    ClaimedKey,
    ClaimStatus,
    Finish,
    OnceKey,
    Share,
    chunks,
    decide_finish,
    line_up,
    slot_of,
    sort_standings,
)
from headgate.engines.timeline.put.decide_row_ack import LatencyWindow
from headgate.engines.timeline.put.producer import Producer
from headgate.engines.timeline.put.row_sender import Sender
from headgate.engines.timeline.put.waiting_calls import not_sent, outcome_unknown
from headgate.errors import HeadgateError, InvalidRequest, Unavailable
from headgate.store.model.deadline import Deadline
from headgate.store.model.positions import time_us_of
from headgate.store.model.rows import Row
from headgate.store.model.statements import Batch, BatchIf, InsertIfAbsent, Select, Update, UpdateIf, is_
from headgate.store.store import Outcome, OutcomeUnknown

SLOTS_AT_ONCE_MAX = 16
LINES_AT_ONCE_MAX = 4
ROUNDS_MAX = 100
SCOPE_KEYS_MAX = 10_000
CLAIM_US_MIN = 100_000
"""The assumed duration of claims before the first was measured."""
CLAIM_US_MAX = SECOND_US
"""A claim that takes longer costs a restamped row, not a delay of every other message."""
NOTE_BYTES = 100
"""The size of a note that a message is written, besides its key."""

T = TypeVar("T")


@dataclass(slots=True)
class _Wanted:
    """One key of a put: its first message, and the place that it may go to."""

    slot: bytes
    key: bytes
    message: NewMessage
    place: MessagePlace
    proposal: Claim
    """Of that place."""
    proposed: bytes
    """The same as it is stored."""


_Taken = tuple[_Wanted, ClaimedKey]


class OncePuts:
    """The once keys of one queue in one process."""

    def __init__(self, producer: Producer, *, see_to: Callable[[Sender, RowPlace], Awaitable[None]]) -> None:
        """`see_to` returns once a durable row was read, found or moved, whatever became of its generation."""
        self._producer = producer
        self._see_to = see_to
        self._sender = producer.sender
        self._host = producer.sender.host
        self._claims = LatencyWindow()

    async def put(self, messages: Sequence[NewMessage], *, deadline: Deadline | None = None) -> list[str]:
        """The ids of messages that all have a once key; the first id, for a taken key. Durable by then. A claim that
        the deadline interrupts is finished by the next put of its key."""
        groups = [message.group.encode() for message in messages if message.group is not None]
        _check_scopes(messages)
        async with _until(deadline, not_sent):
            await self._producer.take_turns(groups)
        try:
            if deadline is not None and deadline.is_over(asyncio.get_running_loop().time()):
                raise not_sent()
            keys = [_key(message) for message in messages]
            firsts: dict[OnceKey, NewMessage] = {}
            for key, message in zip(keys, messages, strict=True):
                firsts.setdefault(key, message)
            lines = line_up(list(firsts), together=bool(groups))
            async with _until(deadline, outcome_unknown):
                puts = [self._put_line(line, firsts) for line in lines]
                ids = _all_of(await _outcomes(puts, LINES_AT_ONCE_MAX))
        finally:
            self._producer.give_turns_back(groups)
        id_of = {key: message_id for of_line in ids for key, message_id in of_line.items()}
        return [id_of[key] for key in keys]

    def _window_s(self) -> int:
        return max(1, self._sender.settings.once_window_us // SECOND_US)

    # ---- shares of a put

    async def _put_line(self, line: Sequence[Share], firsts: Mapping[OnceKey, NewMessage]) -> dict[OnceKey, str]:
        """The ids by their keys."""
        if len(line) == 1 and sum(map(len, line[0])) == len(firsts):
            return await self._put_share(line[0], firsts)
        ids: dict[OnceKey, str] = {}
        for share in line:
            try:
                ids |= await self._put_share(share, {key: firsts[key] for of_slot in share for key in of_slot})
            except Unavailable as error:
                raise _in_part(error) if ids else error from None
        return ids

    async def _put_share(self, share: Share, firsts: Mapping[OnceKey, NewMessage]) -> dict[OnceKey, str]:
        """Places are proposed just before they are claimed, in the order of the messages. The rows are one write."""
        wanted = self._propose(firsts)
        claims = [self._claim([wanted[key] for key in of_slot]) for of_slot in share]
        claimed = await _outcomes(claims, SLOTS_AT_ONCE_MAX)
        mine = [one for each in claimed if isinstance(each, tuple) for one in each[0]]
        taken = [one for each in claimed if isinstance(each, tuple) for one in each[1]]
        ids = {(one.slot, one.key): _id_of(one.place) for one in mine}
        if mine:
            await self._write([(one, one.proposal) for one in mine])
        for one, there in taken:
            ids[one.slot, one.key] = id_text(Claim.from_bytes(there.claim).place)
        unfinished = [(one, Claim.from_bytes(there.claim)) for one, there in taken if not there.written]
        if unfinished:
            ids |= await self._finish(unfinished)
        _all_of(claimed)
        return ids

    def _propose(self, firsts: Mapping[OnceKey, NewMessage]) -> dict[OnceKey, _Wanted]:
        """A place for each key, chosen before anything is claimed. They are adjacent, unless their groups or times
        require otherwise: they are one write then."""
        sender = self._sender
        delay_us = sender.settings.delay_us
        extra_us = min(max(CLAIM_US_MIN, 2 * self._claims.p99_us()), CLAIM_US_MAX)
        now_us = sender.now_fresh_us()
        ends_us = now_us + self._window_s() * SECOND_US
        turn = sender.next_turn()
        wanted: dict[OnceKey, _Wanted] = {}
        for (slot, key), message in firsts.items():
            place = sender.fix_place(
                now_us + delay_us if message.due_us is None else message.due_us,
                group=None if message.group is None else message.group.encode(),
                extra_us=extra_us,
                size_bytes=len(message.payload),
                now_us=now_us,
                turn=turn,
            )
            proposal = Claim(place.to_bytes(), now_us, ends_us)
            wanted[slot, key] = _Wanted(slot, key, message, place, proposal, proposal.to_bytes())
        return wanted

    # ---- claiming

    async def _claim(self, wanted: Sequence[_Wanted]) -> tuple[list[_Wanted], list[_Taken]]:
        """Claim keys of one slot: which are ours by now, and which are another process's."""
        mine: list[_Wanted] = []
        taken: list[_Taken] = []
        for some in chunks(wanted, CLAIMED_AT_ONCE_MAX):
            mine_of_some, taken_of_some = await self._claim_at_once(some)
            mine += mine_of_some
            taken += taken_of_some
        return mine, taken

    async def _claim_at_once(self, wanted: Sequence[_Wanted]) -> tuple[list[_Wanted], list[_Taken]]:
        """Each rejection names at least one existing key, so that the others need fewer keys each time."""
        left = {one.key: one for one in wanted}
        mine: list[_Wanted] = []
        taken: list[_Taken] = []
        for _ in range(ROUNDS_MAX):
            if not left:
                return mine, taken
            outcome = await self._claim_all(list(left.values()))
            if outcome.applied:
                mine += left.values()
                return mine, taken
            claimed = _claimed_keys_of(outcome.rows)
            standings = sort_standings({key: one.proposed for key, one in left.items()}, claimed)
            mine += [left.pop(key) for key in standings[ClaimStatus.MINE]]
            for key in (*standings[ClaimStatus.WRITTEN], *standings[ClaimStatus.UNFINISHED]):
                taken.append((left.pop(key), claimed[key]))
        if left:
            raise Unavailable("Once keys could not be claimed because of contention", keys=len(left))
        return mine, taken

    async def _claim_all(self, wanted: Sequence[_Wanted]) -> Outcome:
        sent_us = self._host.now_us()
        attempt = self._host.uuid()
        outcome = await self._host.store.decide(
            BatchIf(
                [
                    InsertIfAbsent(
                        self._sender.settings.tables.once,
                        {**self._key_of(one), "place": one.proposed},
                        attempt=attempt,
                        ttl_s=self._window_s(),
                    )
                    for one in wanted
                ]
            )
        )
        now_us = self._host.now_us()
        self._claims.add(now_us - sent_us, now_us)
        return outcome

    def _key_of(self, one: _Wanted) -> dict[str, Any]:
        return {"queue": self._sender.settings.queue, "slot": one.slot, "key": one.key}

    # ---- writing

    async def _write(self, claims: Sequence[tuple[_Wanted, Claim]], *, counted: bool = True) -> None:
        """Make the messages of claims durable, each at its place or in a restamped row that names it; then note it. A
        process that finishes another's claim does not count them: the other does, or has."""
        copies = [self._copy(one, claim) for one, claim in claims]
        await write_copies(self._sender, copies, late_is_repaired=False, counted=counted)
        await self._note_written(claims)

    def _copy(self, one: _Wanted, claim: Claim) -> tuple[MessagePlace, Copy]:
        """All of it follows from the message and the claim: every writer writes the same. It is due at the claim's
        time, also where another put of the key, for a later time, finishes it."""
        message = one.message
        place = one.place if claim is one.proposal else MessagePlace.from_bytes(claim.place)
        asked_us = claim.claimed_us if message.due_us is None else message.due_us
        return place, Copy(
            payload=message.payload,
            message_id=claim.place,
            put_us=claim.claimed_us,
            due_us=min(asked_us, time_us_of(place.row.due)),
            attributes=attribute_bytes(message.attributes),
            group=None if message.group is None else message.group.encode(),
        )

    async def _note_written(self, claims: Sequence[tuple[_Wanted, Claim]]) -> None:
        """That they are written saves the next put of the same key some work; nothing depends on it."""
        settings = self._sender.settings
        try:
            now_us = self._host.now_us()
            to = {"written": now_us}
            notes: list[Update] = []
            sizes: list[tuple[bytes, int]] = []
            for one, claim in claims:
                ttl_s = claim.written_ttl_s(now_us, settings.skew_us)
                if ttl_s >= 1:
                    note = Update(settings.tables.once, self._key_of(one), to, timestamp_us=now_us, ttl_s=ttl_s)
                    notes.append(note)
                    sizes.append((one.slot, len(one.key) + NOTE_BYTES))
            shares = [[notes[at] for at in share] for share in share_writes(sizes)]
            writes = [share[0] if len(share) == 1 else Batch(share) for share in shares]
            await asyncio.gather(*map(self._host.store.write, writes))
        except HeadgateError:
            return  # without the note the next put of the key finishes it once more, and finds it done

    # ---- finishing others' claims

    async def _finish(self, unfinished: Sequence[tuple[_Wanted, Claim]]) -> dict[OnceKey, str]:
        """The ids of those that were claimed again."""
        ids: dict[OnceKey, str] = {}
        settings = self._sender.settings
        now_us = self._sender.now_fresh_us()
        at_place = []
        for one, claim in unfinished:
            place = MessagePlace.from_bytes(claim.place)
            ready_us = self._sender.ready_us(now_us)
            how = decide_finish(
                due_us=time_us_of(place.row.due),
                now_us=now_us,
                retention_us=settings.retention_us,
                place_is_owned=self._owns(place.row.generation, time_us_of(place.row.due)),
                restamp_is_owned=self._owns(place.row.generation, ready_us),
                margin_us=settings.skew_us,
            )
            if how is Finish.AT_ITS_PLACE:
                at_place.append((one, claim))
            elif not await self._finish_by_reading(one, claim, place):
                ids[one.slot, one.key] = _id_of(one.place)
        if at_place:
            await self._write(at_place, counted=False)
        return ids

    def _owns(self, generation: int, due_us: int) -> bool:
        return generation_at(self._sender.settings.generations, due_us).number == generation

    async def _finish_by_reading(self, one: _Wanted, claim: Claim, place: MessagePlace) -> bool:
        """No lane can distinguish a restamped row from the original any more. An existing row is durable, and is
        answered once it was read, found or moved. Otherwise, and then this is False, the key is claimed again, unless
        another process has done so."""
        if await self._is_there(place):
            await self._see_to(self._sender, place.row)
            await self._note_written([(one, claim)])
            return True
        statement = UpdateIf(
            self._sender.settings.tables.once,
            self._key_of(one),
            {"place": one.proposed},
            is_("place", claim.to_bytes()),
            attempt=self._host.uuid(),
            ttl_s=self._window_s(),
        )
        outcome = await self._host.store.decide(statement)
        if not outcome.applied:
            raise OutcomeUnknown("Another process is claiming the once key", remedy="try again", key=one.key.decode())
        await self._write([(one, one.proposal)])
        return False

    async def _is_there(self, place: MessagePlace) -> bool:
        settings = self._sender.settings
        row = place.row
        rows = await self._host.store.read(
            Select(
                settings.tables.later if row.lies_later else settings.tables.work,
                {
                    "queue": settings.queue,
                    "generation": row.generation,
                    "part": row.part(settings.part_us),
                    "sub": row.sub,
                    "shard": row.shard,
                    "due": row.due,
                },
                ("run",),
            )
        )
        return any(row.run is not None for row in rows)


def _key(message: NewMessage) -> OnceKey:
    if message.once is None:
        raise InvalidRequest("A message without a once key is among messages with one")
    key = message.once.encode()
    return slot_of(key, None if message.once_scope is None else message.once_scope.encode()), key


def _id_of(place: MessagePlace) -> str:
    row = place.row
    return id_alone(row.generation, row.shard, row.sub, row.due)


def _check_scopes(messages: Sequence[NewMessage]) -> None:
    """A scope is one partition, and claims in it are one Paxos key: it has to stay small."""
    keys: dict[str, set[str | None]] = {}
    for message in messages:
        if message.once_scope is not None:
            keys.setdefault(message.once_scope, set()).add(message.once)
    for scope, of_scope in keys.items():
        if len(of_scope) > SCOPE_KEYS_MAX:
            raise InvalidRequest(
                "Too many once keys in one scope", remedy="use one scope per task", scope=scope, keys=len(of_scope)
            )


def _claimed_keys_of(rows: Iterable[Row]) -> dict[bytes, ClaimedKey]:
    """The keys that a rejection shows. A row whose claim has just expired shows no place: it counts as free."""
    return {row.key: ClaimedKey(row.place, row.written is not None) for row in rows if row.place is not None}


@asynccontextmanager
async def _until(deadline: Deadline | None, error: Callable[[], Unavailable]) -> AsyncGenerator[None]:
    """What follows ends at the deadline, in this error."""
    try:
        async with asyncio.timeout_at(None if deadline is None else deadline.at_s):
            yield
    except TimeoutError:
        raise error() from None


async def _outcomes(works: Sequence[Coroutine[Any, Any, T]], at_once: int) -> list[T | BaseException]:
    """The result or the error of each, some at a time. All have ended by then: no task continues unnoticed."""
    gate = asyncio.Semaphore(at_once)

    async def through(work: Coroutine[Any, Any, T]) -> T:
        async with gate:
            return await work

    return await asyncio.gather(*map(through, works), return_exceptions=True)


def _all_of(outcomes: Sequence[T | BaseException]) -> list[T]:
    """The results, or the first error."""
    results = [each for each in outcomes if not isinstance(each, BaseException)]
    for error in outcomes:
        if isinstance(error, BaseException):
            raise _in_part(error) if results else error
    return results


def _in_part(error: BaseException) -> BaseException:
    """The error of some messages of a put, where others are put: it is no promise that nothing was put."""
    if isinstance(error, OutcomeUnknown) or not isinstance(error, Unavailable):
        return error
    return OutcomeUnknown("Only some of the messages are put", remedy="put them again", last=error.message)
