"""The state of one lane during one lease term: the states of its messages, and the queues, timers and facts of each.

Rows, deliveries and settles go in with their times; deliveries, facts to make durable and copies to write come out.
It does no I/O and knows no engine and no table; `lanes/dispatcher.py` is the loop around it. The states, and the
events that change them, are in `delivery/message_life.py`; docs/internals/protocols/dispatcher.md explains the rest.

Invariants:
- each message of a row that was added is in exactly one state of `LifeState`;
- a ready message is in one queue, a held one has one timer, an open delivery has one entry in `handed_out`;
- of a group at most one message is not blocked, and those before it in the lane are settled;
- the position is below the lowest message that is not settled.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count as counter
from typing import Any
from uuid import UUID

from headgate.engines.crash_suspects import LEVEL_ALONE, DeliveredGroup, ProcessLife, is_charged, level_after_death
from headgate.engines.lanes.delivery import message_life as life
from headgate.engines.lanes.delivery.message_life import LifeState, Step, advance, advance_each, advance_run
from headgate.engines.lanes.delivery.read_budget import ReadBudget
from headgate.engines.lanes.delivery.rows import DeliveryTerms, HandOut, LaneRow, Move, Why
from headgate.engines.lanes.log.settle_log_format import Moved, RowFacts, Tried, ranges_of
from headgate.errors import Bug
from headgate.process.live import Live

NEVER_US = 2**63 - 1
REASON_CHARACTERS_MAX = 4_000
JUDGE_AGAIN_US = 1_000_000
"""How long a message whose previous owner may still run waits until that is asked again."""

NOTHING_KNOWN = RowFacts()

_READY, _, _HELD, _RESERVED, _IN_FLIGHT, _MOVING, _ACCEPTED, _, _ = map(int, LifeState)


class _State:
    """A row, and the states of its messages. Not a dataclass, since one is created for each row."""

    __slots__ = (
        "counted",
        "freed_bytes",
        "full",
        "handed_out",
        "hidden",
        "moving",
        "row",
        "settled",
        "states",
        "suspects",
        "tried",
        "was_open",
    )

    def __init__(self, row: LaneRow) -> None:
        self.row = row
        self.states = bytearray(row.count)
        """A `LifeState` for each message; only `advance` and its like change it."""
        self.settled = 0
        """Bits of the settled ones."""
        self.full = (1 << row.count) - 1
        self.hidden: dict[int, int] = {}
        self.handed_out: dict[int, _HandedOut] = {}
        self.tried: dict[int, int] = {}
        self.moving: dict[int, _Moving] = {}
        self.was_open: dict[int, Tried] = {}
        """Deliveries of earlier owners that were open, until it is known whether their processes ended."""
        self.suspects: dict[int, int] = {}
        """The levels of crash suspects."""
        self.counted = False
        self.freed_bytes = 0
        """Of the row's bytes, those that its settled messages held."""

    def attempts_before(self, index: int) -> int:
        base = self.row.attempts[index] if self.row.attempts is not None else 0
        return self.tried.get(index, base)


@dataclass(frozen=True, slots=True)
class _HandedOut:
    """One hand-out; several messages that were handed out together share it."""

    attempt: int
    until_us: int
    level: int = 0


@dataclass(slots=True)
class _Moving:
    attempt: int
    why: Why
    due_us: int
    reason: str
    place: bytes | None = None


class DeliveryState:
    """The state of one lease term of a lane."""

    def __init__(
        self,
        terms: Live[DeliveryTerms],
        epoch: int,
        *,
        groups_held: bool = False,
        budget: ReadBudget | None = None,
        life_of: Callable[[UUID], ProcessLife] = lambda _: ProcessLife.ENDED,
    ) -> None:
        """`life_of`: whether the process of an earlier owner still runs."""
        self._terms = terms
        self._life_of = life_of
        self._budget = budget or ReadBudget()
        self.epoch = epoch
        self.groups_held = groups_held
        """Whether messages of groups are read and lined up, but not offered (attack C2)."""
        self._groups_open_at: Any = None
        self._rows: deque[_State] = deque()
        self._by_key: dict[bytes, _State] = {}
        self._unread: deque[tuple[_State, int]] = deque()
        self._again: deque[tuple[_State, int]] = deque()
        self._suspects: dict[int, deque[tuple[_State, int]]] = {}
        """By their level."""
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
        self._is_recording = False
        self._horizon: Any = None
        self.in_flight = 0
        self.suspects_in_flight: Counter[int] = Counter()
        """By their level."""
        self.unsettled = 0
        self.holes = 0
        self.bytes_held = 0

    # ---- rows

    def add(self, row: LaneRow, known: RowFacts | None = None, *, now_us: int) -> None:
        """Add the next row of the lane, with the facts of earlier lease terms' records."""
        facts = known or NOTHING_KNOWN
        state = _State(row)
        self._rows.append(state)
        self._by_key[row.key] = state
        self._horizon = row.order
        self._hold(row.size_bytes)
        self.unsettled += row.count
        if settled := facts.settled | row.settled:
            self._strike(state, settled)
        for index, moved in facts.moved.items():
            if not state.settled >> index & 1 and index not in row.moved:
                self._begin_move(state, index, _Moving(moved.attempt, Why.RETRY, now_us, moved.reason, moved.place))
        for index, place in row.moved.items():
            if not state.settled >> index & 1:
                self._begin_move(state, index, _Moving(state.attempts_before(index), Why.MOVED, now_us, "", place))
        for index, tried in facts.tried.items():
            state.tried[index] = max(tried.attempt, state.attempts_before(index))
            state.hidden[index] = tried.hidden_until_us
            if tried.is_open:
                state.was_open[index] = tried
            elif tried.level:
                state.suspects[index] = tried.level
        if not facts.tried and row.groups is None and not state.moving:
            if state.settled != state.full:
                self._unread.append((state, 0))
            return
        for index, standing in enumerate(state.states):
            if standing == _READY:
                self._line_up(state, index)

    def reached(self, order: Any) -> None:
        """The engine has read everything up to this order, with or without rows."""
        self._horizon = order
        if self._groups_open_at is not None and order >= self._groups_open_at:
            self._open_groups()

    def _strike(self, state: _State, settled: int) -> int:
        """These need no delivery any more; which of them are new."""
        fresh = settled & ~state.settled & state.full
        if fresh:
            for start, end in ranges_of(fresh):
                advance_run(state.states, start, end, life.STRIKE)
            self._settle(state, fresh)
        return fresh

    def _settle(self, state: _State, fresh: int) -> None:
        """These are settled for good. Their content is dropped and does not count towards the read-ahead any more, or
        one slow message would stop its lane. The row itself is a fact that the record carries until the position has
        passed it."""
        state.settled |= fresh
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
        """The lease term is over: other lanes may use the memory of these books."""
        self._hold(-self.bytes_held)
        self._budget = ReadBudget()

    def _begin_move(self, state: _State, index: int, moving: _Moving) -> None:
        """A copy that is finished before anything else: an earlier owner fixed its place, or its row shows where it
        was moved to, and then it is never delivered from this lane, whatever the records state."""
        advance(state.states, index, life.MOVE)
        state.moving[index] = moving
        self._moves.append((state, index))

    def _line_up(self, state: _State, index: int) -> None:
        """Put a message behind its group, or where it can be given out."""
        group = state.row.groups[index] if state.row.groups is not None else b""
        if group:
            line = self._groups.setdefault(group, deque())
            line.append((state, index))
            if len(line) > 1 or self.groups_held:
                advance(state.states, index, life.BLOCK)
                return
        self._offer(state, index)

    def _offer(self, state: _State, index: int) -> None:
        level = state.suspects.get(index, 0)
        waiting = self._suspects.setdefault(level, deque()) if level else self._again
        waiting.append((state, index))

    def _judge(self, state: _State, index: int, now_us: int) -> bool:
        """Whether a message that was in flight with an earlier owner is delivered as any other, since that process
        still runs. If it ended, the message is a crash suspect. Until that is known it waits."""
        tried = state.was_open[index]
        alive = self._life_of(tried.owner)
        if alive is ProcessLife.UNKNOWN:
            advance(state.states, index, life.HOLD)
            self._time_all(now_us + JUDGE_AGAIN_US, state, (index,), 0)
            return False
        del state.was_open[index]
        level = tried.level
        if alive is ProcessLife.ENDED:
            level = level_after_death(level)
            if not is_charged(tried.level):
                state.tried[index] -= 1
        if level:
            state.suspects[index] = level
            self._offer(state, index)
        return not level

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
        for group, line in list(self._groups.items()):
            self._unblock(group, line)

    def _time_all(self, at_us: int, state: _State, indexes: Sequence[int], attempt: int) -> None:
        heapq.heappush(self._timers, (at_us, next(self._ticket), state.row.key, indexes, attempt))

    # ---- handing out

    def hand_out(self, limit: int, *, now_us: int, visibility_us: int) -> list[HandOut]:
        """Up to `limit` messages that are no crash suspects."""
        given = self._hand_out(self._again, limit, now_us, visibility_us)
        self._give_unread(self._most(limit, given), now_us + visibility_us, now_us, given)
        return given

    def hand_out_suspects(
        self, group: DeliveredGroup, limit: int, *, now_us: int, visibility_us: int
    ) -> list[HandOut]:
        """Up to `limit` crash suspects of a group."""
        waiting = self._suspects.get(group.level, deque())
        return self._hand_out(waiting, limit, now_us, visibility_us, level=group.delivered_as)

    def _hand_out(
        self, waiting: deque[tuple[_State, int]], limit: int, now_us: int, visibility_us: int, *, level: int = 0
    ) -> list[HandOut]:
        self.tick(now_us)
        given: list[HandOut] = []
        limit = self._most(limit, given)
        for _ in range(len(waiting)):
            if len(given) >= limit:
                break
            state, index = waiting.popleft()
            if self._may_give(state, index, now_us):
                if level:
                    state.suspects[index] = level
                self._give(state, index, now_us + visibility_us, now_us, given)
        return given

    def _most(self, limit: int, given: Sequence[HandOut]) -> int:
        """How many may be given in all."""
        return min(limit, self._terms.now.in_flight_max - self.in_flight + len(given))

    def is_held(self) -> bool:
        """Whether too many messages are settled above one message, so that nothing new may be delivered
        (LaneHeld)."""
        return self.holes > self._terms.now.holes_max

    def _may_give(self, state: _State, index: int, now_us: int) -> bool:
        """Whether this one can be delivered now. A hidden one goes to the timers, a reserved one is kept back."""
        if state.states[index] != _READY:
            return False  # struck while it waited
        if self._reserved and self._is_reserved(state):
            self._keep_back(state, index)
            return False
        if state.hidden and (hidden_us := state.hidden.get(index, 0)) > now_us:
            advance(state.states, index, life.HOLD)
            self._time_all(hidden_us, state, (index,), 0)
            return False
        return index not in state.was_open or self._judge(state, index, now_us)

    def _keep_back(self, state: _State, index: int) -> None:
        advance(state.states, index, life.RESERVE)
        self._kept_back.append((state, index))

    def _give_unread(self, limit: int, until_us: int, now_us: int, given: list[HandOut]) -> None:
        most = self._rows[0].row.order if self.is_held() else None
        while self._unread and len(given) < limit:
            state, index = self._unread[0]
            if most is not None and state.row.order > most:
                return  # only what holds the lane is delivered, or it would stay held
            if self._reserved and self._is_reserved(state):
                self._unread.popleft()
                for each in range(index, state.row.count):
                    if state.states[each] == _READY:
                        self._keep_back(state, each)
                continue
            self._unread.popleft()
            count = state.row.count
            if state.row.attempts is None and not state.settled >> index and self._terms.now.max_receives >= 1:
                end = min(count, index + limit - len(given))
                self._give_run(state, range(index, end), until_us, given)
                index = end
            while index < count and len(given) < limit:
                if state.states[index] == _READY:
                    self._give(state, index, until_us, now_us, given)
                index += 1
            if index < count:
                self._unread.appendleft((state, index))

    def _give_run(self, state: _State, indexes: Sequence[int], until_us: int, given: list[HandOut]) -> None:
        """Messages of a row without earlier deliveries: the usual case, with one timer and one fact for all."""
        advance_run(state.states, indexes[0], indexes[-1] + 1, life.HAND_OUT)
        state.handed_out.update(dict.fromkeys(indexes, _HandedOut(1, until_us)))
        self.in_flight += len(indexes)
        self._time_all(until_us, state, indexes, 1)
        self._facts_of(state).runs[indexes[0], indexes[-1]] = Tried(self.epoch, 0, 1, until_us, is_open=True)
        row = state.row
        given += [HandOut(row, index, 1, until_us) for index in indexes]

    def _give(self, state: _State, index: int, until_us: int, now_us: int, given: list[HandOut]) -> None:
        attempt = state.attempts_before(index) + 1
        if attempt > self._terms.now.max_receives:
            self._move(state, index, attempt - 1, Why.DEAD, now_us, "received too often")
            return
        level = state.suspects.get(index, 0)
        advance(state.states, index, life.HAND_OUT)
        state.handed_out[index] = _HandedOut(attempt, until_us, level)
        self.in_flight += 1
        if level:
            self.suspects_in_flight[level] += 1
        self._time_all(until_us, state, (index,), attempt)
        self._record_attempt(state, index, attempt, until_us, is_open=True)
        given.append(HandOut(state.row, index, attempt, until_us, bool(level)))

    def tick(self, now_us: int) -> None:
        """Process everything that is due by now: visibilities end, held messages become ready."""
        while self._timers and self._timers[0][0] <= now_us:
            at_us, _, key, indexes, attempt = heapq.heappop(self._timers)
            state = self._by_key.get(key)
            if state is not None:
                for index in indexes:
                    self._time_is_up(state, index, attempt, at_us, now_us)

    def _time_is_up(self, state: _State, index: int, attempt: int, at_us: int, now_us: int) -> None:
        hand_out = state.handed_out.get(index)
        if not attempt:
            if state.states[index] == _HELD:
                advance(state.states, index, life.TIME)
                self._offer(state, index)
        elif hand_out is not None and hand_out.attempt == attempt and hand_out.until_us == at_us:
            self._end_hand_out(state, index)
            state.suspects.pop(index, None)
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
        self._accept(state, index, life.ACK)
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
        killed: bool = False,
    ) -> bool:
        """It failed, or was not tried and is returned without charge. False if the receipt is stale."""
        state = self._holder(key, index, attempt)
        if state is None:
            return False
        self._end_hand_out(state, index)
        if killed:  # it stays in its lane, where its level is known
            state.suspects[index] = LEVEL_ALONE
            delay_us = min(delay_us, self._terms.now.hold_us_max)
        elif charged:
            state.suspects.pop(index, None)
        if charged:
            self._fail(state, index, attempt, delay_us, reason, now_us)
        else:
            self._again_later(state, index, attempt - 1, delay_us, now_us)
        return True

    def reject(self, key: bytes, index: int, attempt: int, *, delay_us: int, reason: str, now_us: int) -> bool:
        """It can never succeed: a dead letter at once, or a failure without a dead-letter queue."""
        state = self._holder(key, index, attempt)
        if state is None:
            return False
        self._end_hand_out(state, index)
        if self._terms.now.dead_letters:
            state.tried[index] = attempt
            self._move(state, index, attempt, Why.DEAD, now_us, reason)
        else:
            self._fail(state, index, attempt, delay_us, reason, now_us)
        return True

    def extend(self, key: bytes, index: int, attempt: int, *, until_us: int, now_us: int) -> bool:
        """It takes longer. False if the receipt is stale."""
        state = self._holder(key, index, attempt)
        if state is None:
            return False
        advance(state.states, index, life.EXTEND)
        state.handed_out[index] = _HandedOut(attempt, until_us, state.handed_out[index].level)
        self._time_all(until_us, state, (index,), attempt)
        if until_us - now_us > self._terms.now.remembered_us:
            self._record_attempt(state, index, attempt, until_us, is_open=True)
        return True

    def _end_hand_out(self, state: _State, index: int) -> None:
        hand_out = state.handed_out.pop(index)
        self.in_flight -= 1
        if hand_out.level:
            self.suspects_in_flight[hand_out.level] -= 1

    def _fail(self, state: _State, index: int, attempt: int, delay_us: int, reason: str, now_us: int) -> None:
        if attempt >= self._terms.now.max_receives:
            state.tried[index] = attempt
            self._move(state, index, attempt, Why.DEAD, now_us, reason)
        else:
            self._again_later(state, index, attempt, delay_us, now_us)

    def _again_later(self, state: _State, index: int, attempt: int, delay_us: int, now_us: int) -> None:
        """Once more after a delay, with this many attempts charged to it."""
        state.tried[index] = attempt
        group = state.row.groups[index] if state.row.groups is not None else b""
        if not group and delay_us > self._terms.now.hold_us_max:
            self._move(state, index, attempt, Why.RETRY, now_us + delay_us, "")
        else:
            advance(state.states, index, life.RETURN)
            state.hidden[index] = now_us + delay_us
            self._record_attempt(state, index, attempt, now_us + delay_us)
            self._offer(state, index)

    def _accept(self, state: _State, index: int, step: Step) -> None:
        advance(state.states, index, step)
        facts = self._pending_facts.get(state) or self._facts_of(state)
        facts.settled |= 1 << index
        if state.row.groups is not None:
            self._free_group(state, index)

    def _free_group(self, state: _State, index: int) -> None:
        """The next of its group may go."""
        group = state.row.groups[index] if state.row.groups is not None else b""
        line = self._groups.get(group) if group else None
        if line and line[0] == (state, index):
            line.popleft()
            if not self.groups_held:
                self._unblock(group, line)
            elif not line:
                del self._groups[group]

    def _unblock(self, group: bytes, line: deque[tuple[_State, int]]) -> None:
        """The first of a group that is not settled may go."""
        while line:
            state, index = line[0]
            if state.states[index] < _ACCEPTED:
                advance(state.states, index, life.UNBLOCK)
                self._offer(state, index)
                return
            line.popleft()
        del self._groups[group]

    def _record_attempt(
        self, state: _State, index: int, attempt: int, until_us: int, *, is_open: bool = False
    ) -> None:
        level = state.suspects.get(index, 0)
        self._facts_of(state).tried[index] = Tried(self.epoch, 0, attempt, until_us, level, is_open)

    def _facts_of(self, state: _State) -> RowFacts:
        pending_facts = self._pending_facts.get(state)
        if pending_facts is None:
            pending_facts = self._pending_facts[state] = RowFacts()
        return pending_facts

    # ---- copies

    def _move(self, state: _State, index: int, attempt: int, why: Why, due_us: int, reason: str) -> None:
        """The next owner, which may come before a place is fixed, has to know everything that is answered now."""
        self._record_attempt(state, index, attempt, due_us)
        self._begin_move(state, index, _Moving(attempt, why, due_us, reason[:REASON_CHARACTERS_MAX]))

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
            self._facts_of(state).moved[index] = Moved(self.epoch, 0, moving.attempt, place, moving.reason)

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
            self._accept(state, index, life.COPY)

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
        self._void(state, self._strike(state, settled))

    def _void(self, state: _State, fresh: int) -> None:
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
        if self._is_recording:
            raise Bug("The facts of a lane are taken while a write of earlier ones is open")
        pending_facts, self._pending_facts = self._pending_facts, {}
        for state, facts in pending_facts.items():
            if facts.settled:
                self._is_recording = True
                advance_each(state.states, life.WRITE)
        return PendingFacts(pending_facts)

    def give_back(self, pending_facts: PendingFacts) -> None:
        """The write failed: the facts have to be written again, with all later ones."""
        self._is_recording = False
        for state, facts in pending_facts.facts.items():
            if facts.settled:
                advance_each(state.states, life.FAIL_WRITE)
            later = self._pending_facts.get(state)
            if later is not None:
                facts.overrule(later)
            self._pending_facts[state] = facts

    def durable(self, pending_facts: PendingFacts) -> None:
        """These facts are in the store."""
        self._is_recording = False
        for state, facts in pending_facts.facts.items():
            fresh = facts.settled & ~state.settled
            if fresh:
                advance_each(state.states, life.RECORD)
                self._settle(state, fresh)

    # ---- the position

    def advance(self) -> list[LaneRow]:
        """Take off the rows at the lowest end that are settled for good, in order."""
        done = []
        while self.has_settled_rows():
            state = self._rows.popleft()
            del self._by_key[state.row.key]
            self._hold(state.freed_bytes - state.row.size_bytes)
            self.holes -= state.counted
            done.append(state.row)
        return done

    def has_settled_rows(self) -> bool:
        """Whether `advance` would take something off."""
        first = self._rows[0] if self._rows else None
        if first is None or first.settled != first.full:
            return False
        return not (self._reserved and self._is_before_reservation_end(first))

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

    def hand_over(self) -> None:
        """Report every open delivery to the next owner: it hides them for the promised time. This process lives, so
        they are no crash suspects."""
        for state in self._rows:
            for index, hand_out in state.handed_out.items():
                self._record_attempt(state, index, hand_out.attempt, hand_out.until_us)

    def has_moves(self) -> bool:
        """Whether copies wait to be written."""
        return bool(self._moves)

    def waits_for_consumers(self) -> bool:
        """Whether a message is left that has to be handed out, is, or was."""
        return any(each < _MOVING for state in self._rows for each in state.states)

    @property
    def has_suspects(self) -> bool:
        """Whether crash suspects wait."""
        return any(self._suspects.values())

    @property
    def suspects_waiting(self) -> Counter[int]:
        """How many crash suspects wait, by their level."""
        return Counter({level: len(waiting) for level, waiting in self._suspects.items() if waiting})

    # ---- views from outside

    def row_status(self, key: bytes) -> RowStand | None:
        """The states of a row's messages; None if the row is not in the books (any more)."""
        state = self._by_key.get(key)
        if state is None:
            return None
        hidden = dict(state.hidden) | {index: hand_out.until_us for index, hand_out in state.handed_out.items()}
        tried = dict(state.tried) | {index: hand_out.attempt for index, hand_out in state.handed_out.items()}
        over = sum(1 << index for index, each in enumerate(state.states) if each >= _ACCEPTED)
        return RowStand(over, tried, hidden, frozenset(state.moving))

    def hidden_at(self, now_us: int) -> int:
        """The number of messages that are not in flight, and not ready before a later time or while they move."""
        return sum(
            sum(
                until_us > now_us and state.states[index] < _ACCEPTED and state.states[index] != _IN_FLIGHT
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
                self._void(state, self._strike(state, facts.settled))
        kept_back, self._kept_back = self._kept_back, []
        for state, index in kept_back:
            if state.states[index] == _RESERVED:
                advance(state.states, index, life.TAKE_BACK)
                self._offer(state, index)
        return unread

    @property
    def is_lending(self) -> bool:
        """Whether a range is reserved."""
        return bool(self._reserved)

    def _is_reserved(self, state: _State) -> bool:
        return any(_lies_in(state, span) for span in self._reserved)

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
