"""A message on a lane: the table of its states and events, and deliveries that agree with it after any events."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from headgate.engines.crash_suspects import LEVEL_ALONE, DeliveredGroup, ProcessLife
from headgate.engines.lanes.delivery import delivery_state as module
from headgate.engines.lanes.delivery import message_life
from headgate.engines.lanes.delivery.delivery_state import DeliveryState, PendingFacts
from headgate.engines.lanes.delivery.message_life import STEPS, TRANSITIONS, LifeEvent, LifeState
from headgate.engines.lanes.delivery.rows import DeliveryTerms, HandOut, LaneRow, Move
from headgate.engines.lanes.log.settle_log_format import Moved, RowFacts, Tried
from headgate.errors import Bug
from headgate.process.live import Live

SECOND = 1_000_000
TERMS = Live(DeliveryTerms(max_receives=3, hold_us_max=10 * SECOND, remembered_us=5 * SECOND))
LANES = Path(message_life.__file__).parent
PAIRS = {(event, before) for event, moves in TRANSITIONS.items() for before in moves}


@pytest.mark.parametrize("event", LifeEvent)
@pytest.mark.parametrize("state", LifeState)
def test_an_event_that_the_table_does_not_have_for_a_state_is_a_bug(event: LifeEvent, state: LifeState) -> None:
    one, run = bytearray([state]), bytearray([state, state])
    after = TRANSITIONS[event].get(state)
    if after is None:
        with pytest.raises(Bug, match=rf"state={state.name.lower()}, event={event.name.lower()}"):
            message_life.advance(one, 0, STEPS[event])
        with pytest.raises(Bug):
            message_life.advance_run(run, 0, 2, STEPS[event])
    else:
        message_life.advance(one, 0, STEPS[event])
        message_life.advance_run(run, 0, 2, STEPS[event])
    message_life.advance_each(run, STEPS[event])
    wanted = state if after is None else after
    assert ([wanted], [TRANSITIONS[event].get(wanted, wanted)] * 2) == (list(one), list(run))


def test_every_message_that_is_read_can_be_settled_and_nothing_ends_that() -> None:
    reached = {LifeState.READY}
    while more := {moves[state] for moves in TRANSITIONS.values() for state in reached if state in moves} - reached:
        reached |= more
    assert set(LifeState) == reached
    assert not any(LifeState.SETTLED in moves for moves in TRANSITIONS.values())


def test_a_state_changes_through_the_table_alone() -> None:
    """Nothing but `advance` and its like assigns to `states[...]`, anywhere in the product."""
    assignments = [
        f"{path.name}:{node.lineno}"
        for path in LANES.parents[1].rglob("*.py")
        if path.name != "message_life.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Delete)
        for target in (node.targets if isinstance(node, ast.Assign | ast.Delete) else [node.target])
        if isinstance(target, ast.Subscript)
        and isinstance(target.value, ast.Attribute)
        and target.value.attr == "states"
    ]
    assert [] == assignments


class Scene:
    """Any order of what can happen to the deliveries of a lane."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.deliveries = DeliveryState(
            TERMS, epoch=7, groups_held=rng.random() < 0.5, life_of=lambda _: rng.choice(list(ProcessLife))
        )
        self.now_us = 0
        self.next_order = 0
        self.given: list[HandOut] = []
        self.moves: list[Move] = []
        self.writing: PendingFacts | None = None

    def step(self) -> None:
        """One event; then everything agrees."""
        self.rng.choice(EVENTS)(self)
        self.check()

    def read(self) -> None:
        count = self.rng.randint(1, 4)
        more: dict[str, Any] = {}
        if self.rng.random() < 0.5:
            more["groups"] = [self.rng.choice([b"", b"a", b"b"]) for _ in range(count)]
        if self.rng.random() < 0.2:
            more["moved"] = {0: b"place"}
        if self.rng.random() < 0.2:
            more["attempts"] = [self.rng.randint(0, 3) for _ in range(count)]
        row = LaneRow(b"%d" % self.next_order, self.next_order, count, 100, settled=self._bits(count), **more)
        known = RowFacts(settled=self._bits(count))
        if self.rng.random() < 0.2:
            until_us = self.now_us + self.rng.choice([0, 5 * SECOND])
            level, is_open = self.rng.randint(0, 2), self.rng.random() < 0.7
            known.tried[0] = Tried(6, 0, self.rng.randint(is_open, 3), until_us, level, is_open)
        if self.rng.random() < 0.2:
            known.moved[count - 1] = Moved(6, 0, 1, b"place")
        self.deliveries.add(row, known, now_us=self.now_us)
        self.deliveries.reached(self.next_order)
        self.next_order += 1

    def _bits(self, count: int) -> int:
        return self.rng.getrandbits(count) if self.rng.random() < 0.1 else 0

    def hand_out(self) -> None:
        when = {"now_us": self.now_us, "visibility_us": self.rng.choice([SECOND, 20 * SECOND])}
        if self.rng.random() < 0.7:
            self.given += self.deliveries.hand_out(self.rng.randint(1, 6), **when)
        else:
            level = self.rng.choice([1, 2, 3, LEVEL_ALONE])
            group = DeliveredGroup(level, 64, self.rng.randint(level, LEVEL_ALONE))
            self.given += self.deliveries.hand_out_suspects(group, self.rng.randint(1, 6), **when)

    def let_time_pass(self) -> None:
        self.now_us += self.rng.choice([0, SECOND // 2, 3 * SECOND, 30 * SECOND])
        self.deliveries.tick(self.now_us)

    def settle(self) -> None:
        """Also by receipts that are stale."""
        if not self.given:
            return
        each = self.rng.choice(self.given)
        delivery = (each.row.key, each.index, each.attempt)
        is_open = self.deliveries.holds(*delivery)
        delay_us = self.rng.choice([0, SECOND, 3600 * SECOND])
        how = self.rng.choice(["ack", "ack", "nack", "kill", "give back", "reject", "extend"])
        if how == "ack":
            done = self.deliveries.ack(*delivery)
        elif how == "reject":
            done = self.deliveries.reject(*delivery, delay_us=delay_us, reason="", now_us=self.now_us)
        elif how == "extend":
            done = self.deliveries.extend(*delivery, until_us=self.now_us + 7 * SECOND, now_us=self.now_us)
        else:
            charged, killed = how != "give back", how == "kill"
            done = self.deliveries.nack(
                *delivery, delay_us=delay_us, reason="", now_us=self.now_us, charged=charged, killed=killed
            )
        assert done == is_open

    def move(self) -> None:
        self.moves += self.deliveries.take_moves()
        if not self.moves:
            return
        move = self.moves.pop(self.rng.randrange(len(self.moves)))
        if self.rng.random() < 0.5:
            self.deliveries.place_fixed(move.row, move.index, b"place")
        finish = self.deliveries.move_done if self.rng.random() < 0.5 else self.deliveries.move_failed
        finish(move.row, move.index)

    def write(self) -> None:
        if self.writing is None:
            self.writing = self.deliveries.take_pending_facts()
        else:
            writing, self.writing = self.writing, None
            (self.deliveries.durable if self.rng.random() < 0.7 else self.deliveries.give_back)(writing)

    def strike(self) -> None:
        rows = list(self.deliveries.rows())
        if rows:
            row = self.rng.choice(rows)
            self.deliveries.strike(row, self.rng.getrandbits(row.count))

    def lend(self) -> None:
        if not self.deliveries.is_lending:
            first = self.rng.randint(0, self.next_order)
            self.deliveries.lend(first, first + self.rng.randint(0, 3))
        elif self.rng.random() < 0.3:
            done = [row for row in self.deliveries.rows() if self.rng.random() < 0.3]
            self.deliveries.take_back({row.key: RowFacts(settled=self.rng.getrandbits(row.count)) for row in done})

    def open_groups(self) -> None:
        if self.rng.random() < 0.1:
            self.deliveries.open_groups_at(self.next_order)

    def advance(self) -> None:
        self.deliveries.advance()

    def check(self) -> None:
        """Each state has its place in the queues, timers and facts, and each place its state."""
        deliveries = self.deliveries
        queues = (deliveries._again, *deliveries._suspects.values())
        queued = Counter(
            (id(state), index) for queue in queues for state, index in queue if state.states[index] == LifeState.READY
        )
        queued.update(
            (id(state), index)
            for state, first in deliveries._unread
            for index in range(first, state.row.count)
            if state.states[index] == LifeState.READY
        )
        kept_back = Counter((id(state), index) for state, index in deliveries._kept_back)
        timers = Counter(
            (key, index) for _, _, key, indexes, attempt in deliveries._timers if not attempt for index in indexes
        )
        behind = {
            (id(state), index)
            for line in deliveries._groups.values()
            for place, (state, index) in enumerate(line)
            if place or deliveries.groups_held
        }
        total: Counter[int] = Counter()
        for state in deliveries._rows:
            pending = deliveries._pending_facts.get(state, RowFacts()).settled
            total.update(state.states)
            for index, standing in enumerate(state.states):
                place = (id(state), index)
                assert (standing == LifeState.READY) == (queued[place] == 1) and queued[place] <= 1
                assert (standing == LifeState.IN_FLIGHT) == (index in state.handed_out)
                assert (standing == LifeState.MOVING) == (index in state.moving)
                assert (standing == LifeState.SETTLED) == bool(state.settled >> index & 1)
                if standing == LifeState.RESERVED:
                    assert 1 == kept_back[place]
                if standing == LifeState.HELD:
                    assert 1 == timers[state.row.key, index]
                if standing == LifeState.BLOCKED:
                    assert place in behind
                if standing == LifeState.ACCEPTED:
                    assert pending >> index & 1
                if standing == LifeState.RECORDING:
                    assert self.writing is not None and self.writing.facts[state].settled >> index & 1
        assert total[LifeState.IN_FLIGHT] == deliveries.in_flight
        handed_out = [each for state in deliveries._rows for each in state.handed_out.values()]
        assert Counter(each.level for each in handed_out if each.level) == +deliveries.suspects_in_flight
        assert sum(total.values()) - total[LifeState.SETTLED] == deliveries.unsettled


EVENTS: list[Callable[[Scene], None]] = [
    *[Scene.read] * 2,
    *[Scene.hand_out] * 3,
    *[Scene.settle] * 4,
    Scene.let_time_pass,
    Scene.move,
    *[Scene.write] * 2,
    Scene.strike,
    Scene.lend,
    Scene.open_groups,
    Scene.advance,
]


def test_after_any_events_the_books_agree_with_the_states_and_every_transition_of_the_table_occurs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {step: event for event, step in STEPS.items()}
    met: set[tuple[LifeEvent, LifeState]] = set()

    def advance(states: bytearray, index: int, step: bytes) -> None:
        met.add((names[step], LifeState(states[index])))
        message_life.advance(states, index, step)

    def advance_run(states: bytearray, start: int, end: int, step: bytes) -> None:
        met.update((names[step], LifeState(state)) for state in states[start:end])
        message_life.advance_run(states, start, end, step)

    def advance_each(states: bytearray, step: bytes) -> None:
        met.update((names[step], LifeState(state)) for state in states if state in TRANSITIONS[names[step]])
        message_life.advance_each(states, step)

    for each in (advance, advance_run, advance_each):
        monkeypatch.setattr(module, each.__name__, each)
    for seed in range(60):
        scene = Scene(Random(seed))
        for turn in range(250):
            try:
                scene.step()
            except (AssertionError, Bug, LookupError) as error:
                raise AssertionError(f"seed {seed}, turn {turn}: {error}") from error
    assert PAIRS == met


def test_facts_are_not_taken_while_a_write_of_earlier_ones_is_open() -> None:
    deliveries = DeliveryState(TERMS, epoch=7)
    deliveries.add(LaneRow(b"1", 1, 2, 100), now_us=0)
    first, second = deliveries.hand_out(2, now_us=0, visibility_us=SECOND)
    assert deliveries.ack(first.row.key, first.index, 1)
    deliveries.take_pending_facts()
    assert deliveries.ack(second.row.key, second.index, 1)
    with pytest.raises(Bug):
        deliveries.take_pending_facts()
