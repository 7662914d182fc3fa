"""Invariants of the owners of lanes, in addition to those of every queue in `tests/kit/invariants.py`.

Owners follow one another, a message is not delivered while its visibility timeout lasts, and a runner of a suspect
runs nothing else. Of repair: a row that lands late anywhere is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from headgate.engines.lanes.lane_name import LaneName
from headgate.engines.receipts import read_receipt
from headgate.engines.timeline.model.settings import TimelineSettings
from tests.kit.client_history.history import DONE, STALE, DeliveryRecord, MessageRecord, PurgeRecord, SettleRecord
from tests.kit.invariants import Ledger
from tests.simulation.store.disks import Disks

TOLERANCE_US = 50_000
"""When something was handed out is reckoned by the clock of its receiver, which may be slewed meanwhile."""
PURGE_HEARD_US = 10_000_000
"""An owner has heard of a purge by then, or is none any more, also where the purge itself came to no end."""


Tenures = Mapping[tuple[int, int], int]
"""The lanes that a process holds, and by which epoch."""


def owners_break(ledger: Ledger, settings: TimelineSettings, held: Mapping[str, Tenures]) -> Iterator[str]:
    """A line for each thing that should not be. `held`: by a suspect's receipt, what its process held then."""
    yield from _owners_out_of_turn(ledger, settings)
    yield from _suspects_in_company(ledger, settings, held)
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


def _suspects_in_company(ledger: Ledger, settings: TimelineSettings, held: Mapping[str, Tenures]) -> Iterator[str]:
    """The runner of a suspect runs nothing else: it may end the process, and with it innocent messages (D2). What
    the process still runs of a lease term that it lost before, or of a delivery that is over, no owner knows of."""
    of_process: dict[str, list[tuple[DeliveryRecord, int]]] = {}
    for tale in ledger.tales.values():
        for hand in tale.deliveries:
            of_process.setdefault(hand.actor, []).append((hand, _open_until_us(ledger, tale, hand)))
    for actor, deliveries in of_process.items():
        for suspect, ends_us in deliveries:
            if not suspect.suspect:
                continue
            for other, other_ends_us in deliveries:
                overlap_us = min(ends_us, other_ends_us) - max(suspect.given_us, other.given_us)
                earlier, later = sorted((suspect, other), key=lambda hand: hand.given_us)
                lost = held[later.receipt].get(_lane_of(earlier, settings)) != earlier.epoch
                if other is not suspect and not lost and overlap_us > TOLERANCE_US:
                    yield (
                        f"a process that runs a suspect ran something else: {actor}, for {overlap_us / 1e6:.2f} s\n"
                        f"{ledger.story(suspect.id)}\n{ledger.story(other.id)}"
                    )
                    return


def _open_until_us(ledger: Ledger, tale: MessageRecord, hand: DeliveryRecord) -> int:
    """Until its visibility is over, which an extend may shorten, it was settled, or a purge made it void: what its
    process still runs of it then, no owner knows of."""
    settles = [each for each in tale.settles if each.receipt == hand.receipt]
    over = [each.asked_us for each in settles if each.how != "extend"]
    over += [purge.asked_us for purge in ledger.history.purges if purge.asked_us > hand.given_us]
    over += [hand.given_us for purge in ledger.history.purges if _may_void(purge, hand)]
    until_us = hand.until_us
    for each in settles:
        if each.how == "extend" and each.answer == DONE:
            until_us = each.asked_us + each.hides_us
    return min([until_us, *over])


def _may_void(purge: PurgeRecord, hand: DeliveryRecord) -> bool:
    """Whether that purge may have voided it; an owner learns of one at its next touch, even after its answer."""
    if purge.before_us is not None and hand.put_us >= purge.before_us:
        return False
    return 0 <= hand.given_us - purge.asked_us <= PURGE_HEARD_US


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
    """Each delivery counts: only the first may be unknown to a later owner, whose own then is a suspect's."""
    for tale in ledger.tales.values():
        given_back = {each.receipt for each in tale.settles if not each.charged and each.answer != STALE}
        deliveries = sorted(ledger.judge().in_time(tale), key=lambda hand: hand.given_us)
        attempts = [hand.attempt for hand in deliveries if hand.receipt not in given_back]
        if attempts[:2] == [1, 1]:
            attempts = attempts[1:]
        if any(later <= earlier for earlier, later in pairwise(attempts)):
            yield f"each delivery is charged: {tale.id}\n{ledger.story(tale.id)}"
            return


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
