"""One child: whether it exists, is ours, and is as wanted; and the change if not.

- **Missing**: its name is checked by GET first (`ask`). Only if it is free the child is created, and then without
  force, so that an object which another client creates in between stays that client's.
- **Owned by another**: NameTaken, untouched, and checked again after a while.
- **Not as wanted**: applied whole, with its uid, so that a deleted one is not recreated.
- **Fields that the server changes in its answer to our own apply** (a webhook's work) are accepted for this document.
- **Drift** is a difference although this very document was applied before. The same field reverted more than five
  times in ten minutes is a conflict: an event reports it, and it is reverted every five minutes from then on.
- **Refused** (quota, admission, a bad template): ApplyRefused with the server's answer; the same document again after
  a minute, another one at once.

Pure. It does not know the purpose of the child.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from headgate.api.resources.reasons import Reason
from headgate_operator.manifests.document_diff import STAMP_PATH, differences, digest_of, stamp_of, stamped
from headgate_operator.model.kinds import Document
from headgate_operator.model.plan import ApplyObject, DeleteObject, Effect, Emit, PartialPlan
from headgate_operator.model.world import (
    ChildName,
    DecisionMemory,
    FieldRevert,
    LastApply,
    NamespaceWorld,
    ResourceFailure,
    ResourceWorld,
)

MINUTE_US: Final = 60_000_000
FOREIGN_AGAIN_US: Final = MINUTE_US // 2
REFUSED_AGAIN_US: Final = MINUTE_US
FIGHT_WITHIN_US: Final = 10 * MINUTE_US
FIGHT_AFTER: Final = 5
FOUGHT_AGAIN_US: Final = 5 * MINUTE_US
DRIFT_FOUGHT: Final = "DriftFought"


Surroundings = ResourceWorld | NamespaceWorld
"""The known objects of a namespace."""


def child_of(document: Document) -> ChildName:
    return ChildName(str(document["kind"]), str(document["metadata"]["name"]))


def decide_child(
    around: Surroundings,
    document: Document,
    memory: DecisionMemory,
    now_us: int,
    teller: ResourceWorld | None = None,
) -> PartialPlan:
    """Have the child that this document describes; an event about it is the teller's."""
    child = child_of(document)
    wanted = stamped(document)
    digest = stamp_of(wanted)
    if child in around.foreign:
        message = f"{_format_child(child)} exists already and is {around.foreign[child]}"
        failure = ResourceFailure(Reason.NAME_TAKEN, message)
        return PartialPlan(
            memory, trail=(f"{message}: not changed",), blocked_by=failure, again_at_us=now_us + FOREIGN_AGAIN_US
        )
    answer = around.answers.get(child)
    if answer is not None and answer.applied != digest:
        answer = None
    if answer is not None and answer.refused and now_us < answer.at_us + REFUSED_AGAIN_US:
        failure = ResourceFailure(Reason.APPLY_REFUSED, f"{_format_child(child)}: {answer.refused}", answer.at_us)
        again_us = answer.at_us + REFUSED_AGAIN_US
        return PartialPlan(
            memory, trail=(f"{_format_child(child)} was refused",), blocked_by=failure, again_at_us=again_us
        )
    live = around.live.get(child)
    if live is None:
        return _create_child(around, child, wanted, memory)
    return _change_child(child, live, wanted, answer, _Revision(memory, now_us, teller))


def remove(around: Surroundings, child: ChildName, memory: DecisionMemory, why: str) -> PartialPlan:
    live = around.live[child]
    metadata = live["metadata"]
    memory = forget(memory, child)
    if metadata.get("deletionTimestamp"):
        return PartialPlan(memory)
    effect = DeleteObject(child.kind, metadata["namespace"], child.name, metadata["uid"])
    return PartialPlan(memory, effects=(effect,), trail=(f"delete {_format_child(child)}: {why}",))


def forget(memory: DecisionMemory, child: ChildName) -> DecisionMemory:
    if child not in memory.accepted and not any(one.child == child for one in memory.reverts):
        return memory
    accepted = {known: digest for known, digest in memory.accepted.items() if known != child}
    return replace(memory, accepted=accepted, reverts=tuple(one for one in memory.reverts if one.child != child))


def with_uid(document: Document, live: Document) -> dict[str, Any]:
    """The document, for this very object and no other of its name."""
    return {**document, "metadata": {**document["metadata"], "uid": live["metadata"]["uid"]}}


@dataclass(frozen=True)
class _Revision:
    memory: DecisionMemory
    now_us: int
    teller: ResourceWorld | None


def _create_child(around: Surroundings, child: ChildName, wanted: Document, memory: DecisionMemory) -> PartialPlan:
    memory = forget(memory, child)
    if child not in around.checked:
        return PartialPlan(
            memory,
            ask=frozenset((child,)),
            trail=(f"{_format_child(child)} does not exist: check whether its name is free",),
        )
    return PartialPlan(memory, effects=(ApplyObject(wanted, force=False),), trail=(f"make {_format_child(child)}",))


def _change_child(
    child: ChildName, live: Document, wanted: Document, answer: LastApply | None, how: _Revision
) -> PartialPlan:
    memory = how.memory
    if live["metadata"].get("deletionTimestamp"):
        return PartialPlan(memory, trail=(f"{_format_child(child)} is being deleted: waiting for that",))
    differing = differences(wanted, live)
    if not differing:
        return PartialPlan(memory)
    shown = differences(wanted, answer.shows) if answer is not None and answer.shows is not None else {}
    if shown:
        memory = replace(memory, accepted={**memory.accepted, child: _accepted(wanted, shown)})
    drifted = {path: value for path, value in differing.items() if path not in shown or shown[path] != value}
    if not drifted or memory.accepted.get(child) == _accepted(wanted, differing):
        return PartialPlan(memory)
    apply = ApplyObject(with_uid(wanted, live))
    if STAMP_PATH in drifted:
        return PartialPlan(memory, effects=(apply,), trail=(f"change {_format_child(child)}: {_few(drifted)}",))
    return _set_back(child, live, apply, drifted, replace(how, memory=memory))


def _set_back(
    child: ChildName, live: Document, apply: ApplyObject, drifted: Mapping[str, Any], how: _Revision
) -> PartialPlan:
    """Drift of a document that was applied before: at once, but for what is fought over."""
    known = {one.field: one for one in how.memory.reverts if one.child == child}
    histories = {path: _recent(known.get(path), how.now_us) for path in drifted}
    calm = [path for path, history in histories.items() if len(history) <= FIGHT_AFTER]
    again_us = max(history[-1] for history in histories.values() if history) + FOUGHT_AGAIN_US if not calm else 0
    if again_us > how.now_us:
        reason = f"{_format_child(child)}: {_few(drifted)} has a conflict: not changed for now"
        return PartialPlan(how.memory, trail=(reason,), again_at_us=again_us)
    version = str(live["metadata"].get("resourceVersion", ""))
    reverts = {
        path: FieldRevert(child, path, history, version)
        if (one := known.get(path)) and one.version == version and version
        else FieldRevert(child, path, (*history, how.now_us)[-FIGHT_AFTER - 1 :], version)
        for path, history in histories.items()
    }
    rest = tuple(one for one in how.memory.reverts if one.child != child or one.field not in reverts)
    memory = replace(how.memory, reverts=(*rest, *reverts.values()))
    begun = [path for path, one in reverts.items() if len(one.at_us) > FIGHT_AFTER >= len(histories[path])]
    events: tuple[Effect, ...] = ()
    if begun and how.teller is not None:
        note = f"{_format_child(child)}: another client changes {_few(begun)} each time; now reverted every 5 minutes"
        events = (Emit(how.teller.key, how.teller.uid, DRIFT_FOUGHT, note, "Warning"),)
    return PartialPlan(memory, effects=(apply, *events), trail=(f"revert {_format_child(child)}: {_few(drifted)}",))


def _recent(one: FieldRevert | None, now_us: int) -> tuple[int, ...]:
    """When a field was set back, as far as it counts: a fight lasts until ten minutes were quiet."""
    if one is None or one.at_us[-1] <= now_us - FIGHT_WITHIN_US:
        return ()
    if len(one.at_us) > FIGHT_AFTER:
        return one.at_us
    return tuple(at_us for at_us in one.at_us if at_us > now_us - FIGHT_WITHIN_US)


def _accepted(wanted: Document, shown: Mapping[str, Any]) -> str:
    return digest_of([stamp_of(wanted), sorted(shown.items())])


def _format_child(child: ChildName) -> str:
    return f"{child.kind} {child.name}"


def _few(paths: Mapping[str, Any] | list[str]) -> str:
    """Some of the paths, so that a sentence stays one."""
    some = [path for path in paths if path != STAMP_PATH] or ["a field removed"]
    return ", ".join(some[:3]) + (f" and {len(some) - 3} more" if len(some) > 3 else "")
