"""The books of one lane: which messages are ready, in flight, held or settled, and up to where everything is settled.

A pure state machine. Rows, deliveries and settles go in with their times; deliveries, facts to make durable and
copies to write come out. It does no I/O, knows no engine and no table; `lanes/dispatcher.py` is the loop around it,
docs/internals/protocols/dispatcher.md the prose. Keep the states in both in step.

Invariants:
- each message of a row that was added is in exactly one state: unread, ready, in flight, held, moving, settled;
- at most one delivery of a message is open, and only that one settles it;
- of a group at most one message is in flight or held, and those before it in the lane are settled;
- the position is below the lowest message whose settling is not durable.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as counter
from typing import Any

from headgate.engines.lanes.read_budget import ReadBudget
from headgate.engines.lanes.rows import DeliveryTerms, HandOut, LaneRow, Move, Why
from headgate.engines.lanes.settle_log_format import Moved, RowFacts, Tried, bits_of, ranges_of
from headgate.process.live import Live

NEVER_US = 2**63 - 1
CHARGES_BORNE = 2
"""A suspect may be charged once for another's fault, and keeps a try of its own: else it goes alone."""


NOTHING_KNOWN = RowFacts()


@dataclass(slots=True, eq=False)
class _State:
    row: LaneRow
    durable: int
    accepted: int = 0
    hidden: dict[int, int] = field(default_factory=dict)
    handed_out: dict[int, _HandedOut] = field(default_factory=dict)
    tried: dict[int, int] = field(default_factory=dict)
    moving: dict[int, _Moving] = field(default_factory=dict)
    suspect: bool = False
    counted: bool = False
    freed_bytes: int = 0
    """Of the row's bytes, those that its settled messages held."""

    @property
    def full(self) -> int:
        return bits_of(0, self.row.count)

    def attempts_before(self, index: int) -> int:
        base = self.row.attempts[index] if self.row.attempts is not None else 0
        return self.tried.get(index, base)


@dataclass(frozen=True, slots=True)
class _HandedOut:
    """One hand-out; several messages that were handed out together share it."""

    attempt: int
    until_us: int
    alone: bool = False


@dataclass(slots=True)
class _Moving:
    attempt: int
    why: Why
    due_us: int
    reason: str
    place: bytes | None = None


class DeliveryState:
    """The state of one tenure of a lane."""

    def __init__(
        self,
        terms: Live[DeliveryTerms],
        epoch: int,
        *,
        groups_held: bool = False,
        budget: ReadBudget | None = None,
    ) -> None:
        self._terms = terms
        self._budget = budget or ReadBudget()
        self.epoch = epoch
        self.groups_held = groups_held
        """Whether messages of groups are read and lined up, but not offered (attack C2)."""
        self._groups_open_at: Any = None
        self._rows: deque[_State] = deque()
        self._by_key: dict[bytes, _State] = {}
        self._unread: deque[tuple[_State, int]] = deque()
        self._again: deque[tuple[_State, int]] = deque()
        self._suspects: deque[tuple[_State, int]] = deque()
        self._suspects_alone: deque[tuple[_State, int]] = deque()
        self._kept_back: list[tuple[_State, int]] = []
        self._reserved: list[tuple[Any, Any]] = []
        """Ranges, the oldest first: a range that was given back counts until its settles are known."""
        self._timers: list[tuple[int, int, bytes, Sequence[int], int]] = []
        """At its time, by a ticket: a row's key, its messages, and the attempt whose visibility ends; 0 where
        messages are held. By its key, so that a passed row is not kept for its visibility."""
        self._ticket = counter()
        self._groups: dict[bytes, deque[tuple[_State, int]]] = {}
        self._pending_facts: dict[_State, RowFacts] = {}
        self._moves: list[tuple[_State, int]] = []
        self._horizon: Any = None
        self.in_flight = 0
        self.suspects_in_flight = 0
        self.alone_in_flight = 0
        self.held = 0
        self.unsettled = 0
        self.holes = 0
        self.bytes_held = 0
        self.redelivered = 0

    # ---- rows

    def add(self, row: LaneRow, known: RowFacts | None = None, *, suspect: bool = False, now_us: int) -> None:
        """Add the next row of the lane, with the facts of earlier tenures' records."""
        facts = known or NOTHING_KNOWN
        state = _State(row, 0, suspect=suspect)
        self._rows.append(state)
        self._by_key[row.key] = state
        self._horizon = row.order
        self._hold(row.size_bytes)
        self.unsettled += row.count
        self._settle_durably(state, (facts.settled | row.settled) & state.full)
        for index, moved in facts.moved.items():
            if not state.durable >> index & 1:
                self._resume_move(state, index, moved, now_us)
        for index, place in row.moved.items():
            if not state.durable >> index & 1:
                self._finish_move(state, index, place, now_us)
        for index, tried in facts.tried.items():
            state.tried[index] = max(tried.attempt, state.attempts_before(index))
            state.hidden[index] = tried.hidden_until_us
        if not suspect and not facts.tried and row.groups is None and not state.moving:
            if state.durable != state.full:
                self._unread.append((state, 0))
            return
        for index in range(row.count):
            if not (state.durable >> index & 1) and index not in state.moving:
                self._line_up(state, index)

    def reached(self, order: Any) -> None:
        """The engine has read everything up to this order, with or without rows."""
        self._horizon = order
        if self._groups_open_at is not None and order >= self._groups_open_at:
            self._open_groups()

    def _settle_durably(self, state: _State, fresh: int) -> None:
        """These are settled for good. Their content is dropped and does not count towards the read-ahead any more, or
        one slow message would stop its lane. The row itself is a fact that the record carries until the position has
        passed it."""
        if not fresh:
            return
        state.durable |= fresh
        self.unsettled -= fresh.bit_count()
        freed = state.row.release(fresh)
        state.freed_bytes += freed
        self._hold(-freed)
        if not state.counted:
            state.counted = True
            self.holes += 1

    def _hold(self, size_bytes: int) -> None:
        self.bytes_held += size_bytes
        self._budget.hold(size_bytes)

    def let_go(self) -> None:
        """The tenure is over: other lanes may use the memory of these books."""
        self._hold(-self.bytes_held)
        self._budget = ReadBudget()

    def _resume_move(self, state: _State, index: int, moved: Moved, now_us: int) -> None:
        """An earlier owner fixed a place for a copy; it is finished before anything else."""
        state.moving[index] = _Moving(moved.attempt, Why.RETRY, now_us, "", moved.place)
        self._moves.append((state, index))

    def _finish_move(self, state: _State, index: int, place: bytes, now_us: int) -> None:
        """Its row shows where it was moved to: it is never delivered from this lane, whatever the records state."""
        if index not in state.moving:
            self._moves.append((state, index))
        state.moving[index] = _Moving(state.attempts_before(index), Why.MOVED, now_us, "", place)

    def _line_up(self, state: _State, index: int) -> None:
        """Put a message behind its group, or where it can be given out."""
        group = state.row.groups[index] if state.row.groups is not None else b""
        if group:
            line = self._groups.setdefault(group, deque())
            line.append((state, index))
            if len(line) > 1 or self.groups_held:
                return
        self._offer(state, index)

    def _offer(self, state: _State, index: int) -> None:
        if not state.suspect:
            self._again.append((state, index))
        elif self._goes_alone(state.attempts_before(index) + 1):
            self._suspects_alone.append((state, index))
        else:
            self._suspects.append((state, index))

    def _goes_alone(self, attempt: int) -> bool:
        """Whether a crash suspect must be in flight alone: it was charged before, or cannot bear a charge."""
        return attempt > 1 or self._terms.now.max_receives <= CHARGES_BORNE

    def open_groups_at(self, order: Any) -> None:
        """Earlier generations are drained. Groups may be delivered once the lane has been read up to this order,
        since the remaining messages of the earlier generations are due by then."""
        if self.groups_held and self._groups_open_at is None:
            self._groups_open_at = order

    @property
    def groups_may_open(self) -> bool:
        """Whether nothing but reading on keeps groups back."""
        return self._groups_open_at is not None

    def open_groups_if_allowed(self) -> None:
        """No more can be read before messages are delivered: the rest may come late in its group."""
        if self._groups_open_at is not None:
            self._open_groups()

    def _open_groups(self) -> None:
        """Each in the order in which its messages were first put: a restamped row, or one that moved to this lane
        when it was due already, takes the place of its original."""
        self.groups_held, self._groups_open_at = False, None
        self._groups = {group: deque(sorted(line, key=_turn)) for group, line in self._groups.items()}
        for line in self._groups.values():
            self._offer(*line[0])

    def _time(self, at_us: int, state: _State, index: int, attempt: int) -> None:
        self._time_all(at_us, state, (index,), attempt)

    def _time_all(self, at_us: int, state: _State, indexes: Sequence[int], attempt: int) -> None:
        heapq.heappush(self._timers, (at_us, next(self._ticket), state.row.key, indexes, attempt))

    # ---- handing out

    def hand_out(
        self,
        limit: int,
        *,
        now_us: int,
        visibility_us: int,
        reach: Any,
        suspects: bool = False,
        together: bool = False,
    ) -> list[HandOut]:
        """Up to `limit` messages, none beyond `reach`. Crash suspects are included only on request, one at a time.
        Those that were never charged are also delivered several together, to a caller that runs each in a process of
        its own."""
        self.tick(now_us)
        given: list[HandOut] = []
        until_us = now_us + visibility_us
        limit = min(limit, self._terms.now.in_flight_max - self.in_flight)
        if self.is_held():
            return given
        waiting = self._again if not suspects else self._suspects or self._suspects_alone
        if suspects and together:
            waiting = self._suspects
        elif suspects:
            limit = min(limit, 1)
        for _ in range(len(waiting)):
            if len(given) >= limit:
                break
            state, index = waiting.popleft()
            if state.row.order > reach:
                waiting.append((state, index))
            elif self._may_give(state, index, now_us):
                self._give(state, index, until_us, now_us, given)
        if not suspects:
            self._give_unread(limit, until_us, now_us, reach, given)
        return given

    def is_held(self) -> bool:
        """Whether too many messages are settled above one message, so that nothing new may be delivered
        (LaneHeld)."""
        return self.holes > self._terms.now.holes_max

    def _may_give(self, state: _State, index: int, now_us: int) -> bool:
        """Whether this one can be delivered now. A hidden one goes to the timers, a lent one is kept back."""
        if (state.durable | state.accepted) >> index & 1:
            self._free_group(state, index)
            return False
        if index in state.moving or index in state.handed_out:
            return False
        if self._is_reserved(state):
            self._kept_back.append((state, index))
            return False
        hidden_us = state.hidden.get(index, 0)
        if hidden_us > now_us:
            self.held += 1
            self._time(hidden_us, state, index, 0)
            return False
        return True

    def _give_unread(self, limit: int, until_us: int, now_us: int, reach: Any, given: list[HandOut]) -> None:
        while self._unread and len(given) < limit:
            state, index = self._unread[0]
            if state.row.order > reach:
                return
            if self._is_reserved(state):
                self._unread.popleft()
                self._kept_back += [(state, each) for each in range(index, state.row.count)]
                continue
            self._give_from_row(limit, until_us, now_us, given)

    def _give_from_row(self, limit: int, until_us: int, now_us: int, given: list[HandOut]) -> None:
        state, index = self._unread.popleft()
        closed = state.durable | state.accepted
        fresh = not state.tried and state.row.attempts is None and not state.suspect
        if fresh and not closed >> index and self._terms.now.max_receives >= 1:
            end = min(state.row.count, index + limit - len(given))
            self._give_run(state, range(index, end), until_us, now_us, given)
            if end < state.row.count:
                self._unread.appendleft((state, end))
            return
        while index < state.row.count and len(given) < limit:
            if not closed >> index & 1:
                self._give(state, index, until_us, now_us, given)
            index += 1
        if index < state.row.count:
            self._unread.appendleft((state, index))

    def _give_run(
        self, state: _State, indexes: Sequence[int], until_us: int, now_us: int, given: list[HandOut]
    ) -> None:
        """Messages of a row without earlier deliveries: the usual case, with one timer and one fact for all of
        them."""
        state.handed_out.update(dict.fromkeys(indexes, _HandedOut(1, until_us)))
        self.in_flight += len(indexes)
        self._time_all(until_us, state, indexes, 1)
        needs_record = until_us - now_us > self._terms.now.remembered_us
        if needs_record:
            self._facts_of(state).tried.update(dict.fromkeys(indexes, Tried(self.epoch, 0, 1, until_us)))
        row = state.row
        given += [HandOut(row, index, 1, until_us, False, needs_record) for index in indexes]

    def _give(self, state: _State, index: int, until_us: int, now_us: int, given: list[HandOut]) -> None:
        attempt = state.attempts_before(index) + 1
        if attempt > self._terms.now.max_receives:
            self._move(state, index, attempt - 1, Why.DEAD, now_us, "received too often")
            return
        alone = state.suspect and self._goes_alone(attempt)
        state.handed_out[index] = _HandedOut(attempt, until_us, alone)
        self.in_flight += 1
        self.suspects_in_flight += state.suspect
        self.alone_in_flight += alone
        self._time(until_us, state, index, attempt)
        needs_record = attempt > 1 or state.suspect or until_us - now_us > self._terms.now.remembered_us
        if needs_record:
            self._record_attempt(state, index, attempt, until_us)
            self.redelivered += attempt > 1
        given.append(HandOut(state.row, index, attempt, until_us, state.suspect, needs_record))

    def tick(self, now_us: int) -> None:
        """Process everything that is due by now: visibilities end, held messages become ready."""
        while self._timers and self._timers[0][0] <= now_us:
            at_us, _, key, indexes, attempt = heapq.heappop(self._timers)
            state = self._by_key.get(key)
            if not attempt:
                self.held -= len(indexes)
            if state is not None:
                for index in indexes:
                    self._time_is_up(state, index, attempt, at_us, now_us)

    def _time_is_up(self, state: _State, index: int, attempt: int, at_us: int, now_us: int) -> None:
        hand_out = state.handed_out.get(index)
        if not attempt:
            self._offer(state, index)
        elif hand_out is not None and hand_out.attempt == attempt and hand_out.until_us == at_us:
            self._end_hand_out(state, index)
            self._fail(state, index, attempt, 0, "not settled within its visibility", now_us)

    @property
    def next_timer_us(self) -> int:
        """When `tick` has something to do."""
        return self._timers[0][0] if self._timers else NEVER_US

    # ---- settling

    def holds(self, key: bytes, index: int, attempt: int) -> bool:
        """Whether that delivery is open: a receipt of any other is stale."""
        return self._holder(key, index, attempt) is not None

    def _holder(self, key: bytes, index: int, attempt: int) -> _State | None:
        state = self._by_key.get(key)
        hand_out = state.handed_out.get(index) if state is not None else None
        return state if hand_out is not None and hand_out.attempt == attempt else None

    def ack(self, key: bytes, index: int, attempt: int) -> bool:
        """It is done; the fact has still to be made durable. False if the receipt is stale."""
        state = self._holder(key, index, attempt)
        if state is None:
            return False
        self._end_hand_out(state, index)
        self._accept(state, index)
        return True

    def nack(
        self,
        key: bytes,
        index: int,
        attempt: int,
        *,
        delay_us: int,
        reason: str,
        now_us: int,
        charged: bool = True,
    ) -> bool:
        """It failed, or was not tried and is returned without charge. False if the receipt is stale."""
        if not self.holds(key, index, attempt):
            return False
        state = self._by_key[key]
        self._end_hand_out(state, index)
        if charged:
            self._fail(state, index, attempt, delay_us, reason, now_us)
        else:
            self._again_later(state, index, attempt - 1, delay_us, reason, now_us)
        return True

    def reject(self, key: bytes, index: int, attempt: int, *, delay_us: int, reason: str, now_us: int) -> bool:
        """It can never succeed: a dead letter at once, or a failure without a dead-letter queue."""
        if not self.holds(key, index, attempt):
            return False
        state = self._by_key[key]
        self._end_hand_out(state, index)
        if self._terms.now.dead_letters:
            state.tried[index] = attempt
            self._move(state, index, attempt, Why.DEAD, now_us, reason)
        else:
            self._fail(state, index, attempt, delay_us, reason, now_us)
        return True

    def extend(self, key: bytes, index: int, attempt: int, *, until_us: int, now_us: int) -> bool:
        """It takes longer. False if the receipt is stale."""
        if not self.holds(key, index, attempt):
            return False
        state = self._by_key[key]
        state.handed_out[index] = _HandedOut(attempt, until_us, state.handed_out[index].alone)
        self._time(until_us, state, index, attempt)
        if until_us - now_us > self._terms.now.remembered_us:
            self._record_attempt(state, index, attempt, until_us)
        return True

    def _end_hand_out(self, state: _State, index: int) -> None:
        hand_out = state.handed_out.pop(index)
        self.in_flight -= 1
        self.suspects_in_flight -= state.suspect
        self.alone_in_flight -= hand_out.alone

    def _fail(self, state: _State, index: int, attempt: int, delay_us: int, reason: str, now_us: int) -> None:
        if attempt >= self._terms.now.max_receives:
            state.tried[index] = attempt
            self._move(state, index, attempt, Why.DEAD, now_us, reason)
        else:
            self._again_later(state, index, attempt, delay_us, reason, now_us)

    def _again_later(self, state: _State, index: int, attempt: int, delay_us: int, reason: str, now_us: int) -> None:
        """Once more after a delay, with this many attempts charged to it."""
        state.tried[index] = attempt
        group = state.row.groups[index] if state.row.groups is not None else b""
        if not group and delay_us > self._terms.now.hold_us_max:
            self._move(state, index, attempt, Why.RETRY, now_us + delay_us, reason)
        else:
            state.hidden[index] = now_us + delay_us
            self._record_attempt(state, index, attempt, now_us + delay_us)
            self._offer(state, index)

    def _accept(self, state: _State, index: int) -> None:
        state.accepted |= 1 << index
        self._facts_of(state).settled |= 1 << index
        self._free_group(state, index)

    def _free_group(self, state: _State, index: int) -> None:
        """The next of its group may go."""
        group = state.row.groups[index] if state.row.groups is not None else b""
        line = self._groups.get(group) if group else None
        if not line or line[0] != (state, index):
            return
        line.popleft()
        if not line:
            del self._groups[group]
        elif not self.groups_held:
            self._offer(*line[0])

    def _record_attempt(self, state: _State, index: int, attempt: int, until_us: int) -> None:
        self._facts_of(state).tried[index] = Tried(self.epoch, 0, attempt, until_us)

    def _facts_of(self, state: _State) -> RowFacts:
        pending_facts = self._pending_facts.get(state)
        if pending_facts is None:
            pending_facts = self._pending_facts[state] = RowFacts()
        return pending_facts

    # ---- copies

    def _move(self, state: _State, index: int, attempt: int, why: Why, due_us: int, reason: str) -> None:
        """The next owner, which may come before a place is fixed, has to know everything that is answered now."""
        state.moving[index] = _Moving(attempt, why, due_us, reason)
        self._record_attempt(state, index, attempt, due_us)
        self._moves.append((state, index))

    def take_moves(self) -> list[Move]:
        """The copies to write, each once; `move_failed` returns one that fails."""
        moves, self._moves = self._moves, []
        return [
            Move(state.row, index, it.attempt, it.why, it.due_us, it.reason, it.place)
            for state, index in moves
            for it in (state.moving.get(index),)
            if it is not None
        ]

    def place_fixed(self, row: LaneRow, index: int, place: bytes) -> None:
        """Where the copy goes; this has to be durable before the copy is written (rule R7)."""
        state = self._moving_in(row, index)
        if state is not None:
            moving = state.moving[index]
            moving.place = place
            self._facts_of(state).moved[index] = Moved(self.epoch, 0, moving.attempt, place)

    def move_failed(self, row: LaneRow, index: int) -> None:
        """Try again later; a place that is fixed stays fixed."""
        state = self._moving_in(row, index)
        if state is not None:
            self._moves.append((state, index))

    def move_done(self, row: LaneRow, index: int) -> None:
        """The copy is durable: the original is settled."""
        state = self._moving_in(row, index)
        if state is not None:
            del state.moving[index]
            self._accept(state, index)

    def is_moving(self, row: LaneRow, index: int) -> bool:
        """Whether a copy of that message is still wanted: it may have been purged meanwhile."""
        return self._moving_in(row, index) is not None

    def _moving_in(self, row: LaneRow, index: int) -> _State | None:
        """The state of a row of which that message is on its way; None where it was struck meanwhile."""
        state = self._by_key.get(row.key)
        return state if state is not None and index in state.moving else None

    def strike(self, row: LaneRow, settled: int) -> None:
        """The engine knows now that these need no delivery (a purge): their open deliveries are void, and copies
        under way no longer matter."""
        state = self._by_key[row.key]
        fresh = settled & ~state.durable & state.full
        self._settle_durably(state, fresh)
        for index in [index for index in state.handed_out if fresh >> index & 1]:
            self._end_hand_out(state, index)
        for index in [index for index in state.moving if fresh >> index & 1]:
            del state.moving[index]
        for start, end in ranges_of(fresh):
            for index in range(start, end):
                self._free_group(state, index)

    # ---- making it durable

    def has_pending_facts(self) -> bool:
        """Whether there are facts that are not in a record yet."""
        return bool(self._pending_facts)

    def take_pending_facts(self) -> PendingFacts:
        """The facts to be written next. They count when `durable` is called with them."""
        pending_facts, self._pending_facts = self._pending_facts, {}
        return PendingFacts(pending_facts)

    def give_back(self, pending_facts: PendingFacts) -> None:
        """The write failed: the facts have to be written again, with all later ones."""
        for state, facts in pending_facts.facts.items():
            later = self._pending_facts.get(state)
            if later is not None:
                facts.overrule(later)
            self._pending_facts[state] = facts

    def durable(self, pending_facts: PendingFacts) -> None:
        """These facts are in the store."""
        for state, facts in pending_facts.facts.items():
            fresh = facts.settled & ~state.durable
            state.accepted &= ~fresh
            self._settle_durably(state, fresh)

    # ---- the position

    def advance(self) -> list[LaneRow]:
        """Take off the rows at the lowest end that are settled for good, in order."""
        done = []
        while (
            self._rows
            and self._rows[0].durable == self._rows[0].full
            and not self._is_before_reservation_end(self._rows[0])
        ):
            state = self._rows.popleft()
            del self._by_key[state.row.key]
            self._hold(state.freed_bytes - state.row.size_bytes)
            self.holes -= state.counted
            done.append(state.row)
        return done

    def has_settled_rows(self) -> bool:
        """Whether `advance` would take something off."""
        return (
            bool(self._rows)
            and self._rows[0].durable == self._rows[0].full
            and not self._is_before_reservation_end(self._rows[0])
        )

    @property
    def lowest_unsettled(self) -> LaneRow | None:
        """The bound of the position, and its cause."""
        return self._rows[0].row if self._rows else None

    @property
    def horizon(self) -> Any:
        """How far the engine has read."""
        return self._horizon

    def rows(self) -> Iterator[LaneRow]:
        """The rows in the books, lowest first."""
        return (state.row for state in self._rows)

    def order_after(self, messages: int) -> Any | None:
        """The order of the row that ends the first `count` unsettled messages; None if there are fewer."""
        for state in self._rows:
            messages -= state.row.count - state.durable.bit_count()
            if messages <= 0:
                return state.row.order
        return None

    def hand_over(self) -> None:
        """Report every open delivery to the next owner: it hides them for the promised time."""
        for state in self._rows:
            for index, hand_out in state.handed_out.items():
                self._record_attempt(state, index, hand_out.attempt, hand_out.until_us)

    def has_moves(self) -> bool:
        """Whether copies wait to be written."""
        return bool(self._moves)

    def waits_for_consumers(self) -> bool:
        """Whether a message is left that has to be handed out, is, or was."""
        return any(
            not (state.durable | state.accepted) >> index & 1 and index not in state.moving
            for state in self._rows
            for index in range(state.row.count)
        )

    def has_open_suspects(self) -> bool:
        """Whether one of them is not settled yet, wherever it is."""
        return any(state.suspect and state.durable != state.full for state in self._rows)

    def has_suspects(self) -> bool:
        """Whether messages wait that may have killed their process."""
        return bool(self._suspects or self._suspects_alone)

    # ---- views from outside

    def row_status(self, key: bytes) -> RowStand | None:
        """The states of a row's messages; None if the row is not in the books (any more)."""
        state = self._by_key.get(key)
        if state is None:
            return None
        hidden = dict(state.hidden) | {index: hand_out.until_us for index, hand_out in state.handed_out.items()}
        tried = dict(state.tried) | {index: hand_out.attempt for index, hand_out in state.handed_out.items()}
        return RowStand(state.durable | state.accepted, tried, hidden, frozenset(state.moving))

    def hidden_at(self, now_us: int) -> int:
        """The number of messages that are not in flight, and not ready before a later time or while they move."""
        return sum(
            sum(
                until_us > now_us
                and index not in state.handed_out
                and not (state.durable | state.accepted) >> index & 1
                for index, until_us in state.hidden.items()
            )
            for state in self._rows
            if state.hidden
        )

    # ---- reserving a range for a bulk job

    def lend(self, first: Any, last: Any) -> None:
        """Hand out nothing more from `first` to `last`."""
        self._reserved.append((first, last))

    def open_in_reservation(self) -> list[tuple[LaneRow, int, int]]:
        """Row, index and attempt of the messages that stay with this owner in the latest reserved range: in flight,
        or on their way to another place."""
        return [
            (state.row, index, attempt)
            for state in self._rows
            if self._reserved and _lies_in(state, self._reserved[-1])
            for index, attempt in (
                *((index, hand_out.attempt) for index, hand_out in state.handed_out.items()),
                *((index, moving.attempt) for index, moving in state.moving.items()),
            )
        ]

    def take_back(self, settled: Mapping[bytes, RowFacts]) -> dict[bytes, RowFacts]:
        """The oldest reservation is over: the job's settles are applied, the rest is delivered as before, unless
        another reservation has started in that range. Returns the facts of rows that are not in the books; they count
        when such a row is added."""
        del self._reserved[:1]
        unread: dict[bytes, RowFacts] = {}
        for key, facts in settled.items():
            state = self._by_key.get(key)
            if state is None:
                unread[key] = facts
            else:
                fresh = facts.settled & ~state.durable & ~state.accepted & state.full
                self._settle_durably(state, fresh)
        kept_back, self._kept_back = self._kept_back, []
        for state, index in kept_back:
            if state.durable >> index & 1:
                self._free_group(state, index)
            else:
                self._offer(state, index)
        return unread

    @property
    def is_lending(self) -> bool:
        """Whether a range is reserved."""
        return bool(self._reserved)

    def _is_reserved(self, state: _State) -> bool:
        return bool(self._reserved) and any(_lies_in(state, span) for span in self._reserved)

    def _is_before_reservation_end(self, state: _State) -> bool:
        return any(not state.row.order < first for first, _ in self._reserved)


def _lies_in(state: _State, span: tuple[Any, Any]) -> bool:
    """Also where it represents a row in the range: that one may have landed late, and belong to the job."""
    first, last = span
    stands_at = state.row.stands_at
    return first <= state.row.order <= last or (stands_at is not None and first <= stands_at <= last)


def _turn(waiting: tuple[_State, int]) -> tuple[Any, Any, int]:
    """A message's place in the line of its group, while nothing of that was delivered."""
    state, index = waiting
    stands_at = state.row.order if state.row.stands_at is None else state.row.stands_at
    return stands_at, state.row.order, index


@dataclass(frozen=True, slots=True)
class RowStand:
    """The states of a row's messages at their owner: bits of the settled ones, attempts, the end of each visibility,
    and those on their way to another place."""

    settled: int
    tried: Mapping[int, int]
    hidden_until_us: Mapping[int, int]
    moving: frozenset[int]


@dataclass(slots=True)
class PendingFacts:
    """Facts on their way into the record."""

    facts: dict[_State, RowFacts]

    def by_row(self) -> Iterator[tuple[LaneRow, RowFacts]]:
        """Each row with its facts."""
        return ((state.row, facts) for state, facts in self.facts.items())
