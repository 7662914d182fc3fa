"""Performs effects on the ports, in order; it stops at the first that fails. It does not know the reasons of effects.

The API server's answer to an apply of ours is kept by child: a difference between it and our document is no drift,
and a refused document is not retried at once. No effect starts once the Lease is not trusted any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headgate_operator.differing import stamp_of
from headgate_operator.effects import (
    ApplyObject,
    DeleteObject,
    Effect,
    Emit,
    PatchStatus,
    StopLane,
    StoreStep,
)
from headgate_operator.figures import FigureBoard
from headgate_operator.intake import Intake
from headgate_operator.kinds import KINDS, SECRET, Address, address_of
from headgate_operator.names import MANAGER, Key
from headgate_operator.pacing import Pace
from headgate_operator.port import Applied, ClusterPort, Denial, Denied, Note
from headgate_operator.secrets_read import Secrets
from headgate_operator.seen import Seen, place_of
from headgate_operator.store_side import StoreSide
from headgate_operator.timeline_looks import lane_named
from headgate_operator.world import Answer, ChildName, Trouble

log = logging.getLogger("headgate.operator")

STATUSES_A_SECOND: Final = 50.0
STATUSES_AT_ONCE: Final = 50
THROTTLED_TRIES: Final = 3
THROTTLED_S_MAX: Final = 5.0


class NotLeading(Exception):
    """The Lease is not trusted any more: nothing is begun."""


@dataclass
class Kept:
    """The memory of one key between its reconciles, in addition to that of its decisions."""

    answers: dict[ChildName, Answer] = field(default_factory=dict)
    step_trouble: Trouble | None = None


@dataclass(frozen=True)
class Failed:
    """The effect at which it ended, and why."""

    effect: Effect
    says: str
    retry_after_s: float | None = None
    is_conflict: bool = False
    """Another writer was first: the world is observed again, and nothing is wrong."""


@dataclass(frozen=True)
class Hands:
    """The tools of effects."""

    port: ClusterPort
    intake: Intake
    seen: Seen
    secrets: Secrets
    store: StoreSide
    board: FigureBoard
    may_act: Callable[[], bool]
    now_us: Callable[[], int]
    instance: str = "headgate-operator"


class Performer:
    """Does what was decided."""

    def __init__(self, hands: Hands) -> None:
        self._hands = hands
        self._statuses = Pace(STATUSES_A_SECOND, STATUSES_AT_ONCE)
        self._emitting: set[asyncio.Task[Any]] = set()
        self.writes = 0

    async def perform(self, key: Key, effects: Sequence[Effect], kept: Kept) -> Failed | None:
        """All of them, or up to the first that fails."""
        for effect in effects:
            if not self._hands.may_act():
                raise NotLeading
            failed = await self._one(key, effect, kept)
            if failed is not None:
                return failed
        return None

    async def _one(self, key: Key, effect: Effect, kept: Kept) -> Failed | None:
        match effect:
            case StoreStep():
                return await self._step(key, effect, kept)
            case ApplyObject():
                return await self._apply(effect, kept)
            case DeleteObject():
                return await self._delete(effect, kept)
            case PatchStatus():
                return await self._status(effect)
            case StopLane():
                return await self._stop(effect)
            case Emit():
                self._emit(effect)
        return None

    async def _step(self, key: Key, effect: StoreStep, kept: Kept) -> Failed | None:
        trouble = await self._hands.store.step(key, effect.step, effect.connection)
        kept.step_trouble = trouble
        return None if trouble is None else Failed(effect, f"{trouble.reason.value}: {trouble.says}")

    async def _apply(self, effect: ApplyObject, kept: Kept) -> Failed | None:
        hands, document = self._hands, effect.document
        at = address_of(document)
        child = ChildName(at.kind.kind, at.name)
        with hands.intake.writing(place_of(document)):
            answer = await self._asked(lambda: self._applied(at, effect))
            if isinstance(answer, Applied):
                self._wrote(at, answer)
        digest = stamp_of(document) if effect.manager == MANAGER else None
        if isinstance(answer, Applied):
            if digest is not None:
                kept.answers[child] = Answer(digest, answer.document, at_us=hands.now_us())
            return None
        if answer.is_of_another:
            await self._look_again(at)
            return _failed(effect, answer)
        if digest is not None and answer.is_permanent:
            kept.answers[child] = Answer(digest, None, refused=str(answer), at_us=hands.now_us())
        if answer.denial is Denial.CONFLICT:
            await self._look_again(at)
        return _failed(effect, answer)

    async def _applied(self, at: Address, effect: ApplyObject) -> Applied | Denied:
        if effect.merges:
            return await self._hands.port.patch(at, effect.document, manager=effect.manager)
        return await self._hands.port.apply(effect.document, manager=effect.manager, force=effect.force)

    async def _look_again(self, at: Address) -> None:
        """The object is another than we knew, or is gone: `Seen` is behind."""
        found = await self._hands.port.get(at)
        if isinstance(found, Applied):
            self._wrote(at, found)
        elif found.denial is Denial.NOT_FOUND:
            if at.kind is SECRET:
                self._hands.secrets.note_gone(at.namespace or "", at.name)
            known = self._hands.seen.get(at.kind.kind, at.namespace or "", at.name)
            if known is not None:
                self._hands.intake.gone(known["metadata"]["uid"])

    async def _delete(self, effect: DeleteObject, kept: Kept) -> Failed | None:
        at = Address(KINDS[effect.kind], effect.namespace, effect.name)
        answer = await self._asked(
            lambda: self._hands.port.delete(at, uid=effect.uid, propagation=effect.propagation)
        )
        kept.answers.pop(ChildName(effect.kind, effect.name), None)
        if isinstance(answer, Denied):
            if answer.denial is Denial.CONFLICT:  # there is another of its name, or the server reports one
                await self._look_again(at)
            if answer.denial is not Denial.NOT_FOUND:
                return _failed(effect, answer)
        elif not answer.gone:
            found = await self._hands.port.get(at)
            if isinstance(found, Applied):
                self._wrote(at, found)
                return None
            if found.denial is not Denial.NOT_FOUND:
                return _failed(effect, found)
        if at.kind is SECRET:
            self._hands.secrets.note_gone(effect.namespace, effect.name)
        self._hands.intake.gone(effect.uid)
        return None

    async def _status(self, effect: PatchStatus) -> Failed | None:
        kind = KINDS[effect.key.kind]
        document: dict[str, Any] = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": effect.key.name, "namespace": effect.key.namespace},
            "status": effect.status,
        }
        # A status heeds no uid: only a version distinguishes this resource from a newer one of its name.
        known = self._hands.seen.of_uid(effect.uid)
        if known is None:
            return Failed(effect, "the resource is gone", is_conflict=True)
        document["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
        await self._statuses.turn()
        if not self._hands.may_act():
            raise NotLeading
        at = address_of(document)
        with self._hands.intake.writing(place_of(document)):
            answer = await self._asked(
                lambda: self._hands.port.apply(document, manager=MANAGER, force=True, subresource="status")
            )
            if isinstance(answer, Applied):
                self._wrote(at, answer)
                return None
        if answer.denial in (Denial.NOT_FOUND, Denial.CONFLICT):
            await self._look_again(at)
        return _failed(effect, answer)

    async def _stop(self, effect: StopLane) -> Failed | None:
        followed = next((each for each in self._hands.board.all() if each.key == effect.key), None)
        if followed is None:
            return None
        name = lane_named(effect.lane)
        try:
            await followed.looks.stop(name, effect.epoch)
        except Exception as error:
            return Failed(effect, str(error))
        fields = {"key": effect.key.path, "lane": effect.lane, "epoch": effect.epoch}
        log.warning("lane owner stopped, it made no progress", extra=fields)
        return None

    def _emit(self, effect: Emit) -> None:
        """Nobody waits for it, and one that is lost is lost."""
        note = Note(
            regarding=Address(KINDS[effect.key.kind], effect.key.namespace, effect.key.name),
            uid=effect.uid,
            reason=effect.reason,
            says=effect.note,
            at_us=self._hands.now_us(),
            type=effect.type,
            instance=self._hands.instance,
        )
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(self._told(note))
        self._emitting.add(task)
        task.add_done_callback(self._emitting.discard)

    async def _told(self, note: Note) -> None:
        denied = await self._hands.port.emit(note)
        if denied is not None:
            log.info("writing an event failed", extra={"reason": note.reason, "error": str(denied)})

    async def _asked(self, ask: Callable[[], Any]) -> Any:
        """Retries after the pause that the server requests, if it has not fulfilled the request."""
        self.writes += 1
        for _ in range(THROTTLED_TRIES):
            answer = await ask()
            if not isinstance(answer, Denied) or answer.denial is not Denial.THROTTLED:
                return answer
            await asyncio.sleep(min(answer.retry_after_s or 1.0, THROTTLED_S_MAX))
            if not self._hands.may_act():
                raise NotLeading
        return answer

    def _wrote(self, at: Address, answer: Applied) -> None:
        if at.kind is SECRET:
            self._hands.secrets.note(answer.document)
        else:
            self._hands.intake.wrote(answer.document)


def _failed(effect: Effect, denied: Denied) -> Failed:
    return Failed(effect, str(denied), denied.retry_after_s, is_conflict=denied.denial is Denial.CONFLICT)
