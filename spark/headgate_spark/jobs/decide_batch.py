"""The content of a batch of a job, and the outcome of its messages: settled, dead, or left to the lane's owner.

A batch is fixed before anything is done with it: for each reserved range of a lane the rows, and in each row a bit
for each message of the job. So every attempt reads the same messages. Their reported outcomes are judged by this
module, once, after all of them have come.

Pure. Only the engine knows the meaning of a row's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from headgate.errors import InvalidRequest

REASON_CHARACTERS_MAX = 300


class RowOutcomeUnknown(InvalidRequest):
    """A handler gave an outcome that is none."""


class IdUnknown(InvalidRequest):
    """A handler returned the outcome of a message that is not in its batch."""


class RowOutcome(Enum):
    """The outcomes that a handler may return for a message. For a message without one, it is RETURN."""

    DONE = "done"
    RETURN = "return"
    """It stays in the queue: the owner of its lane delivers it."""
    DEAD = "dead"
    """It goes to the dead-letter queue, with the reason."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A row, and which of its messages belong to the batch."""

    where: int
    key: bytes
    mask: int

    @property
    def messages(self) -> int:
        """How many."""
        return self.mask.bit_count()


@dataclass(frozen=True)
class RangePlan:
    """The messages of one reserved range of a lane."""

    lane: str
    """As its engine names it."""
    reservation: bytes
    """As the lane's row shows it."""
    epoch: int
    deadline_us: int
    picks: tuple[Pick, ...]
    aliases: Mapping[bytes, tuple[int, int]] = field(default_factory=dict)
    """For messages whose id does not determine their current place: by their id, the pick and the index in its
    row."""
    span_us: int = 0
    """From the first due time to the last."""


@dataclass(frozen=True)
class BatchPlan:
    """All of a batch."""

    ranges: tuple[RangePlan, ...]
    planned_us: int = 0
    """When it was fixed."""

    @property
    def messages(self) -> int:
        """How many it holds."""
        return sum(pick.messages for each in self.ranges for pick in each.picks)

    @property
    def span_us(self) -> int:
        """The longest of its ranges."""
        return max((each.span_us for each in self.ranges), default=0)

    @property
    def deadline_us(self) -> int:
        """Until when all of it may be settled."""
        return min((each.deadline_us for each in self.ranges), default=0)


Spot = tuple[int, int]
"""Which range of a plan, and which pick of that."""


@dataclass(frozen=True)
class Reported:
    """The outcome of some messages of one row: the row as ids name it, and a bit for each message."""

    row: bytes
    outcome: str
    mask: int
    reason: str = ""


@dataclass
class BatchDecision:
    """The outcome of a batch: for each pick, bits."""

    done: dict[Spot, int] = field(default_factory=dict)
    dead: dict[Spot, int] = field(default_factory=dict)
    reasons: dict[bytes, str] = field(default_factory=dict)
    """The reason of each dead letter, by its id."""
    returned: int = 0
    """Messages that stay where they are."""

    @property
    def counts(self) -> tuple[int, int, int]:
        """Done, dead, returned."""
        done, dead = (sum(mask.bit_count() for mask in each.values()) for each in (self.done, self.dead))
        return done, dead, self.returned


def outcome_of(text: object) -> RowOutcome:
    """The outcome that a handler named."""
    try:
        return RowOutcome(text)
    except ValueError:
        allowed = ", ".join(each.value for each in RowOutcome)
        raise RowOutcomeUnknown(outcome=repr(text)[:80], remedy=f"a handler must return one of {allowed}") from None


def decide_outcomes(plan: BatchPlan, rows: Mapping[bytes, Spot], reported: Iterable[Reported]) -> BatchDecision:
    """The outcome of each message of the batch. `rows` maps the beginning of an id to the place of its row.

    A message with two different outcomes stays: the intended one is unknown.
    """
    masks_by_outcome: dict[RowOutcome, dict[Spot, int]] = {outcome: {} for outcome in RowOutcome}
    dead: list[tuple[Spot, int, bytes, str]] = []
    for each in reported:
        outcome = outcome_of(each.outcome)
        masks = masks_by_outcome[outcome]
        for spot, index, message_id in _spots(plan, rows, each):
            masks[spot] = masks.get(spot, 0) | 1 << index
            if outcome is RowOutcome.DEAD:
                dead.append((spot, index, message_id, each.reason[:REASON_CHARACTERS_MAX]))
    decided = BatchDecision()
    for r, one in enumerate(plan.ranges):
        for p, pick in enumerate(one.picks):
            _decide_row(
                decided, (r, p), pick.mask, [masks_by_outcome[outcome].get((r, p), 0) for outcome in RowOutcome]
            )
    decided.reasons = {
        message_id: reason for spot, index, message_id, reason in dead if decided.dead.get(spot, 0) >> index & 1
    }
    return decided


def _decide_row(decided: BatchDecision, spot: Spot, mask: int, masks: Sequence[int]) -> None:
    done, kept, dead = masks
    only_done, only_dead = done & ~kept & ~dead, dead & ~kept & ~done
    if only_done:
        decided.done[spot] = only_done
    if only_dead:
        decided.dead[spot] = only_dead
    decided.returned += (mask & ~only_done & ~only_dead).bit_count()


def without_dead(decided: BatchDecision) -> BatchDecision:
    """There is no dead-letter queue: rejected messages stay."""
    dead = sum(mask.bit_count() for mask in decided.dead.values())
    return BatchDecision(done=decided.done, returned=decided.returned + dead)


def all_done(plan: BatchPlan) -> BatchDecision:
    """A sink takes a batch whole."""
    return BatchDecision(
        done={(r, p): pick.mask for r, one in enumerate(plan.ranges) for p, pick in enumerate(one.picks)}
    )


def _spots(plan: BatchPlan, rows: Mapping[bytes, Spot], each: Reported) -> Iterable[tuple[Spot, int, bytes]]:
    """Where the messages of a report lie, each with its index and id: mostly in the row that their ids begin with."""
    spot = rows.get(each.row)
    mask = 0 if spot is None else plan.ranges[spot[0]].picks[spot[1]].mask
    for index in _indexes(each.mask):
        message_id = each.row + index.to_bytes(2, "little")
        if spot is not None and mask >> index & 1:
            yield spot, index, message_id
        else:
            yield (*_alias(plan, message_id), message_id)


def _alias(plan: BatchPlan, message_id: bytes) -> tuple[Spot, int]:
    for r, one in enumerate(plan.ranges):
        spot = one.aliases.get(message_id)
        if spot is not None:
            return (r, spot[0]), spot[1]
    raise IdUnknown(id=message_id.hex(), remedy="return the column `id` unchanged")


def _indexes(mask: int) -> Iterable[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def masked(plan: BatchPlan, masks: Mapping[Spot, int]) -> BatchPlan:
    """The part of a plan that these bits name."""
    ranges = []
    for r, one in enumerate(plan.ranges):
        kept = [
            (p, Pick(pick.where, pick.key, masks[r, p])) for p, pick in enumerate(one.picks) if masks.get((r, p), 0)
        ]
        place = {old: new for new, (old, _) in enumerate(kept)}
        aliases = {
            id_: (place[p], index)
            for id_, (p, index) in one.aliases.items()
            if p in place and kept[place[p]][1].mask >> index & 1
        }
        picks = tuple(pick for _, pick in kept)
        ranges.append(RangePlan(one.lane, one.reservation, one.epoch, one.deadline_us, picks, aliases, one.span_us))
    return BatchPlan(tuple(ranges), plan.planned_us)


def shares_of(plan: BatchPlan, tasks: int) -> list[list[tuple[int, int, int]]]:
    """Divides a batch among tasks: slices (range, first pick, end), each task about as many messages. A lane that
    holds all of it is divided too; a slice never crosses ranges, and its picks stay in order."""
    wanted = max(1, -(-plan.messages // max(1, tasks)))
    shares: list[list[tuple[int, int, int]]] = [[]]
    messages_left = wanted
    for r, one in enumerate(plan.ranges):
        start = 0
        for p, pick in enumerate(one.picks):
            if messages_left <= 0:
                if p > start:
                    shares[-1].append((r, start, p))
                start, messages_left = p, wanted
                shares.append([])
            messages_left -= pick.messages
        if len(one.picks) > start:
            shares[-1].append((r, start, len(one.picks)))
    return [share for share in shares if share]


def pause_s(taken: int, rate: float | None, elapsed_s: float) -> float:
    """How long to wait so that no more than `rate` a second are taken."""
    return 0.0 if rate is None else max(0.0, taken / rate - elapsed_s)
