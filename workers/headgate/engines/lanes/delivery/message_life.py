"""A message's life on a lane: its states, the events that change them, and the table of both.

Theory. The owner of a lane reads rows ahead and keeps one state for each of their messages. The next hand-out may
take a *ready* message. When it comes to one before its time, or in a range that a job has reserved, it sets the
message apart as *held* or *reserved*. A *blocked* message waits behind another of its group. A message *in flight*
comes again, or is *moving* to another place (a late retry, a dead letter), or is *accepted*. Accepting writes
nothing. The fact is *recording* while its write is under way, and after that the message is *settled*, for good.

    (read) --> ready --> in flight --> accepted --> recording --> settled
                 ^  \\      |    |          ^
                 |   \\     |    +--> moving
       blocked, held, reserved

Rules.
- Every change of a state goes through `advance`, `advance_run` or `advance_each`; an event that the table does not
  have for a state is a `Bug`.
- At most one delivery of a message is open: only a ready message is handed out.
- Only what is settled lets the position pass. A failed write takes its messages back from recording to accepted.
- A strike (a purge, a settle by the job of a reserved range) ends every state at once: its fact is durable elsewhere.

In sync. `delivery/delivery_state.py` keeps the queues, timers and facts that belong to the states;
tests/unit/engines/test_message_life.py checks them against the states after any events. The table in
docs/internals/protocols/dispatcher.md is generated from `TRANSITIONS` (`tests/kit/generated_tables.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from headgate.errors import Bug


class LifeState(IntEnum):
    """A state of a message that was read."""

    READY = 0
    """The next hand-out may take it."""
    BLOCKED = 1
    """It waits behind another message of its group, or groups are not delivered yet."""
    HELD = 2
    """It waits for its time."""
    RESERVED = 3
    """A bulk job has its range."""
    IN_FLIGHT = 4
    """One delivery of it is open."""
    MOVING = 5
    """Its copy is being written to another place."""
    ACCEPTED = 6
    """Its settle is accepted; no write has it yet."""
    RECORDING = 7
    """Its settle is being written."""
    SETTLED = 8
    """Its settle is durable."""


class LifeEvent(IntEnum):
    """What happens to a message."""

    BLOCK = 0
    """It was read behind another message of its group."""
    UNBLOCK = 1
    """Those of its group before it are settled."""
    HOLD = 2
    """A hand-out comes to it before its time."""
    TIME = 3
    """Its time has come."""
    RESERVE = 4
    """A hand-out comes to it in a reserved range."""
    TAKE_BACK = 5
    """Its reservation has ended."""
    HAND_OUT = 6
    """It is delivered."""
    EXTEND = 7
    """Its consumer needs more time."""
    RETURN = 8
    """It failed, was given back, or its visibility has ended."""
    MOVE = 9
    """It goes to another place: after a failure, or because an earlier owner began that."""
    ACK = 10
    """Its consumer reports it done."""
    COPY = 11
    """Its copy is durable."""
    WRITE = 12
    """A write of its settle begins."""
    FAIL_WRITE = 13
    """That write failed, or its outcome is unknown."""
    RECORD = 14
    """That write is durable."""
    STRIKE = 15
    """It needs no delivery any more: settled by an earlier owner or by a job, purged, or cancelled."""


READY, BLOCKED, HELD, RESERVED, IN_FLIGHT, MOVING, ACCEPTED, RECORDING, SETTLED = LifeState

TRANSITIONS: Mapping[LifeEvent, Mapping[LifeState, LifeState]] = {
    LifeEvent.BLOCK: {READY: BLOCKED},
    LifeEvent.UNBLOCK: {BLOCKED: READY},
    LifeEvent.HOLD: {READY: HELD},
    LifeEvent.TIME: {HELD: READY},
    LifeEvent.RESERVE: {READY: RESERVED},
    LifeEvent.TAKE_BACK: {RESERVED: READY},
    LifeEvent.HAND_OUT: {READY: IN_FLIGHT},
    LifeEvent.EXTEND: {IN_FLIGHT: IN_FLIGHT},
    LifeEvent.RETURN: {IN_FLIGHT: READY},
    LifeEvent.MOVE: {READY: MOVING, IN_FLIGHT: MOVING},
    LifeEvent.ACK: {IN_FLIGHT: ACCEPTED},
    LifeEvent.COPY: {MOVING: ACCEPTED},
    LifeEvent.WRITE: {ACCEPTED: RECORDING},
    LifeEvent.FAIL_WRITE: {RECORDING: ACCEPTED},
    LifeEvent.RECORD: {RECORDING: SETTLED},
    LifeEvent.STRIKE: {state: SETTLED for state in LifeState if state is not SETTLED},
}

_IMPOSSIBLE = 255
Step = bytes
"""An event as a table: the state after each state."""


def _step(event: LifeEvent) -> Step:
    """Of 256 bytes, so that one `translate` changes a whole run."""
    after = bytearray([_IMPOSSIBLE]) * 256
    for state, then in TRANSITIONS[event].items():
        after[state] = then
    return bytes(after)


STEPS: Mapping[LifeEvent, Step] = {event: _step(event) for event in LifeEvent}
BLOCK, UNBLOCK, HOLD, TIME, RESERVE, TAKE_BACK, HAND_OUT, EXTEND = tuple(STEPS.values())[:8]
RETURN, MOVE, ACK, COPY, WRITE, FAIL_WRITE, RECORD, STRIKE = tuple(STEPS.values())[8:]
_EACH: Mapping[Step, bytes] = {
    step: bytes(before if after == _IMPOSSIBLE else after for before, after in enumerate(step))
    for step in STEPS.values()
}
"""The same, where other states stay as they are."""


def advance(states: bytearray, index: int, step: Step) -> None:
    """One message."""
    after = step[states[index]]
    if after == _IMPOSSIBLE:
        raise _impossible(states[index], step)
    states[index] = after


def advance_run(states: bytearray, start: int, end: int, step: Step) -> None:
    """Neighbours."""
    if end - start == 1:
        advance(states, start, step)
        return
    after = states[start:end].translate(step)
    if _IMPOSSIBLE in after:
        raise _impossible(states[start + after.index(_IMPOSSIBLE)], step)
    states[start:end] = after


def advance_each(states: bytearray, step: Step) -> None:
    """All of a row that are in a state with that event; the others stay as they are."""
    states[:] = states.translate(_EACH[step])


def _impossible(state: int, step: Step) -> Bug:
    event = next(event for event, each in STEPS.items() if each == step)
    return Bug(
        "A message's state does not have that event", state=LifeState(state).name.lower(), event=event.name.lower()
    )
