"""Invariants of the owners of lanes, in addition to those of every queue in `tests/kit/invariants.py`.

Owners follow one another, a message is not delivered while its visibility timeout lasts, and each delivery is
charged. Of repair: a row that lands late anywhere is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.receipts import read_receipt
from headgate.engines.timeline.model.settings import TimelineSettings
from tests.kit.client_history.history import DONE, STALE, DeliveryRecord, SettleRecord
from tests.kit.invariants import Ledger
from tests.simulation.store.disks import Disks

TOLERANCE_US = 50_000
"""When something was handed out is reckoned by the clock of its receiver, which may be slewed meanwhile."""


def owners_break(ledger: Ledger, settings: TimelineSettings) -> Iterator[str]:
    """A line for each thing that should not be."""
    yield from _owners_out_of_turn(ledger, settings)
    yield from _while_it_was_hidden(ledger)
    yield from _stale_and_honoured(ledger)
    yield from _not_charged(ledger)


def _owners_out_of_turn(ledger: Ledger, settings: TimelineSettings) -> Iterator[str]:
    """No earlier owner of a lane delivers after a later one."""
    first_of: dict[tuple[int, int, int], int] = {}
    deliveries = [(hand, _lane_of(hand, settings)) for tale in ledger.tales.values() for hand in tale.deliveries]
    for hand, lane in deliveries:
        key = (*lane, hand.epoch)
        first_of[key] = min(hand.given_us, first_of.get(key, hand.given_us))
    for hand, lane in deliveries:
        for (generation, shard, epoch), first_us in first_of.items():
            if (generation, shard) == lane and epoch > hand.epoch and first_us < hand.given_us - TOLERANCE_US:
                yield (
                    f"owners follow one another: lane {lane}, {hand.actor} handed out by epoch {hand.epoch} "
                    f"{(hand.given_us - first_us) / 1e6:.2f} s after epoch {epoch} began\n"
                    f"{ledger.story(hand.id)}"
                )
                return


def _lane_of(hand: DeliveryRecord, settings: TimelineSettings) -> LaneName:
    return read_receipt(hand.receipt, queue=settings.queue, secret=settings.receipt_key).lane


def _while_it_was_hidden(ledger: Ledger) -> Iterator[str]:
    """The same message only after its visibility, or after it was reported as failed: by one owner, and by the next
    one too if that takes it for no suspect, since then the first has handed over what was open."""
    for tale in ledger.tales.values():
        deliveries = sorted(tale.deliveries, key=lambda hand: hand.given_us)
        for hand, later in pairwise(deliveries):
            same_owner = (hand.actor, hand.epoch) == (later.actor, later.epoch)
            tolerance_us = TOLERANCE_US if same_owner else TOLERANCE_US + 2 * ledger.promises.skew_us
            hidden_us = min([hand.until_us, *_reported_us(tale.settles_of(hand))])
            if not (later.suspect and not same_owner) and later.given_us < hidden_us - tolerance_us:
                yield f"hidden while its visibility lasts: {tale.id}\n{ledger.story(tale.id)}"
                return


def _reported_us(settles: list[SettleRecord]) -> Iterator[int]:
    """Until when its receiver had it hidden: an extend may also shorten, and a failure ends it."""
    for each in settles:
        if each.how != "ack":
            yield each.asked_us + (each.hides_us if each.how == "extend" else 0)


def _stale_and_honoured(ledger: Ledger) -> Iterator[str]:
    """A receipt is stale once a later delivery of its message was made."""
    for tale in ledger.tales.values():
        given_us = {hand.receipt: hand.given_us for hand in tale.deliveries}
        for each in tale.settles:
            if each.answer == DONE and each.how != "extend" and each.receipt is not None:
                mine_us = given_us[each.receipt]
                if any(mine_us < other_us < each.asked_us - TOLERANCE_US for other_us in given_us.values()):
                    yield f"a stale receipt is refused: {tale.id}\n{ledger.story(tale.id)}"
                    return


def _not_charged(ledger: Ledger) -> Iterator[str]:
    """Each delivery counts, but for one whose process ended while others were suspect beside it: then the message
    comes as a suspect, and with the same attempt."""
    for tale in ledger.tales.values():
        given_back = {each.receipt for each in tale.settles if not each.charged and each.answer != STALE}
        least = 1
        for hand in sorted(ledger.judge().in_time(tale), key=lambda hand: hand.given_us):
            least -= hand.suspect and least > 1
            if hand.attempt < least:
                yield f"each delivery is charged: {tale.id}\n{ledger.story(tale.id)}"
                return
            least = hand.attempt + (hand.receipt not in given_back)


# ---- what lands late


def unknown_families(disks: Disks, ledger: Ledger) -> Iterator[str]:
    """A line for each settled row whose family is neither above `last` nor in `passed`: if anything of it lands now,
    its messages are delivered again. Holds at any time, as long as the lanes of a queue stay the same."""
    for row in disks.unknown():
        if all(each in ledger.tales and ledger.tales[each].honoured() for each in row.ids):
            yield f"a family is known by a row above the position, or as passed: {row.place} {row.ids}"


def never_met(disks: Disks, ledger: Ledger, settings: TimelineSettings) -> Iterator[str]:
    """A line for each row of messages that nobody was given, though repair has checked all for the last time.

    Of a put without an answer the row may land after the first check of its part, or its index row nowhere, and
    nobody was promised it (docs/internals/protocols/repair.md, "A check"). Both other kinds must come.
    """
    there = {row.place for row in disks.undrained(2**62)}
    announced, promised = disks.announced(), ledger.acknowledged_ids
    for row in disks.rows():
        if row.cancelled or row.moved or row.place in there:
            continue
        ids = [each for each in row.ids if not ledger.need_not_come(each)]
        at = (row.place.generation, row.place.part(settings.part_us), row.place.sub)
        if ids and (at in announced or not promised.isdisjoint(ids)):
            yield f"what is durable anywhere comes in the end: {row.place} {ids}"
