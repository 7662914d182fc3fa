"""The content of a batch of a job, and the outcome of its messages: settled, dead, or left to the lane's owner.

A batch is fixed before anything is done with it: for each reserved range of a lane the rows, and in each row a bit
for each message of the job. So every attempt reads the same messages. Their reported outcomes are judged by this
module, once, after all of them have come.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from headgate.errors import InvalidRequest
from headgate_spark.engines.contract import MessageIds, Pick, RangePlan

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


@dataclass(frozen=True)
class BatchPlan:
    ranges: tuple[RangePlan, ...]
    planned_us: int = 0
    """When it was fixed."""

    @property
    def messages(self) -> int:
        return sum(each.messages for each in self.ranges)

    @property
    def span_us(self) -> int:
        """Of the longest of its ranges."""
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
    """For each pick, bits."""

    done: dict[Spot, int] = field(default_factory=dict)
    dead: dict[Spot, int] = field(default_factory=dict)
    reasons: dict[bytes, str] = field(default_factory=dict)
    """The reason of each dead letter, by its id."""
    returned: int = 0
    """Messages that stay where they are."""

    @property
    def counts(self) -> tuple[int, int, int]:
        done, dead = (sum(mask.bit_count() for mask in each.values()) for each in (self.done, self.dead))
        return done, dead, self.returned


def decide_outcomes(plan: BatchPlan, ids: MessageIds, reported: Iterable[Reported]) -> BatchDecision:
    """The outcome of each message of the batch. A message with two different outcomes stays: the intended one is
    unknown."""
    rows = {ids.row_of(one.lane, pick.key): spot for spot, one, pick in _picks(plan)}
    masks_by_outcome: dict[RowOutcome, dict[Spot, int]] = {outcome: {} for outcome in RowOutcome}
    dead: list[tuple[Spot, int, bytes, str]] = []
    for each in reported:
        outcome = _outcome_of(each.outcome)
        masks = masks_by_outcome[outcome]
        spot_of_row = rows.get(each.row)
        for index in _indexes(each.mask):
            message_id = ids.join(each.row, index)
            spot, at = _spot_of(plan, spot_of_row, index, message_id)
            masks[spot] = masks.get(spot, 0) | 1 << at
            if outcome is RowOutcome.DEAD:
                dead.append((spot, at, message_id, each.reason[:REASON_CHARACTERS_MAX]))
    decided = BatchDecision()
    for spot, _, pick in _picks(plan):
        done, kept, rejected = (masks_by_outcome[outcome].get(spot, 0) for outcome in RowOutcome)
        only_done, only_dead = done & ~kept & ~rejected, rejected & ~kept & ~done
        if only_done:
            decided.done[spot] = only_done
        if only_dead:
            decided.dead[spot] = only_dead
        decided.returned += (pick.mask & ~only_done & ~only_dead).bit_count()
    decided.reasons = {
        message_id: reason for spot, index, message_id, reason in dead if decided.dead.get(spot, 0) >> index & 1
    }
    return decided


def _outcome_of(text: object) -> RowOutcome:
    try:
        return RowOutcome(text)
    except ValueError:
        allowed = ", ".join(each.value for each in RowOutcome)
        raise RowOutcomeUnknown(outcome=repr(text)[:80], remedy=f"a handler must return one of {allowed}") from None


def _picks(plan: BatchPlan) -> Iterator[tuple[Spot, RangePlan, Pick]]:
    for r, one in enumerate(plan.ranges):
        for p, pick in enumerate(one.picks):
            yield (r, p), one, pick


def _spot_of(plan: BatchPlan, spot: Spot | None, index: int, message_id: bytes) -> tuple[Spot, int]:
    """Where a message lies, with its index there: mostly in the row that its id begins with, else by its alias."""
    if spot is not None and plan.ranges[spot[0]].picks[spot[1]].mask >> index & 1:
        return spot, index
    for r, one in enumerate(plan.ranges):
        if message_id in one.aliases:
            p, index = one.aliases[message_id]
            return (r, p), index
    raise IdUnknown(id=message_id.hex(), remedy="return the column `id` unchanged")


def without_dead(decided: BatchDecision) -> BatchDecision:
    """There is no dead-letter queue: rejected messages stay."""
    dead = sum(mask.bit_count() for mask in decided.dead.values())
    return BatchDecision(done=decided.done, returned=decided.returned + dead)


def all_done(plan: BatchPlan) -> BatchDecision:
    """A sink takes a batch whole."""
    return BatchDecision(done={spot: pick.mask for spot, _, pick in _picks(plan)})


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
        ranges.append(replace(one, picks=picks, aliases=aliases))
    return BatchPlan(tuple(ranges), plan.planned_us)


Share = list[tuple[str, tuple[Pick, ...]]]
"""The input of one task: the names of lanes, and picks of each."""


def shares_of(plan: BatchPlan, tasks: int) -> list[Share]:
    """Divides a batch among tasks, each about as many messages. A lane that holds all of it is divided too, and its
    picks stay in order."""
    wanted = max(1, -(-plan.messages // max(1, tasks)))
    shares: list[Share] = [[]]
    messages_left = wanted
    for one in plan.ranges:
        start = 0
        for p, pick in enumerate(one.picks):
            if messages_left <= 0:
                if p > start:
                    shares[-1].append((one.lane, one.picks[start:p]))
                start, messages_left = p, wanted
                shares.append([])
            messages_left -= pick.messages
        if len(one.picks) > start:
            shares[-1].append((one.lane, one.picks[start:]))
    return [share for share in shares if share]


def pause_s(taken: int, rate: float | None, elapsed_s: float) -> float:
    """How long to wait so that no more than `rate` a second are taken."""
    return 0.0 if rate is None else max(0.0, taken / rate - elapsed_s)
