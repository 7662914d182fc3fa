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

from headgate.process.background_tasks import BackgroundTasks
from headgate.process.pacing import RateLimit
from headgate_operator.cluster.port import ApiObject, Denial, Denied, Note
from headgate_operator.cluster.requests import ClusterPort
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.object_cache import ObjectCache, place_of
from headgate_operator.manifests.document_diff import stamp_of
from headgate_operator.model.kinds import KINDS, SECRET, ObjectAddress, address_of
from headgate_operator.model.names import MANAGER, Key
from headgate_operator.model.plan import (
    ApplyObject,
    DeleteObject,
    Effect,
    Emit,
    PatchStatus,
    StopLane,
    StoreStep,
)
from headgate_operator.model.world import ChildName, LastApply, ResourceFailure
from headgate_operator.observe.queue_stats import FigureBoard
from headgate_operator.store.catalogue import StoreSide
from headgate_operator.store.secret_cache import Secrets

log = logging.getLogger("headgate.operator")

STATUSES_A_SECOND: Final = 50.0
STATUSES_AT_ONCE: Final = 50
THROTTLED_TRIES: Final = 3
THROTTLED_S_MAX: Final = 5.0


class NotLeading(Exception):
    """The Lease is not trusted any more: nothing is begun."""


@dataclass
class ReconcileState:
    """The memory of one key between its reconciles, in addition to that of its decisions."""

    answers: dict[ChildName, LastApply] = field(default_factory=dict)
    step_failure: ResourceFailure | None = None


@dataclass(frozen=True)
class EffectFailure:
    effect: Effect
    message: str
    retry_after_s: float | None = None
    is_conflict: bool = False
    """Another writer was first: the world is observed again, and nothing is wrong."""


@dataclass(frozen=True)
class EffectTargets:
    port: ClusterPort
    intake: EventIngest
    cache: ObjectCache
    secrets: Secrets
    store: StoreSide
    board: FigureBoard
    may_act: Callable[[], bool]
    now_us: Callable[[], int]
    instance: str = "headgate-operator"


class PlanApplier:
    def __init__(self, targets: EffectTargets) -> None:
        self._targets = targets
        self._statuses = RateLimit(STATUSES_A_SECOND, STATUSES_AT_ONCE)
        self._emitting = BackgroundTasks("event for people")
        self.writes = 0

    async def perform(self, key: Key, effects: Sequence[Effect], kept: ReconcileState) -> EffectFailure | None:
        for effect in effects:
            if not self._targets.may_act():
                raise NotLeading
            failed = await self._one(key, effect, kept)
            if failed is not None:
                return failed
        return None

    async def _one(self, key: Key, effect: Effect, kept: ReconcileState) -> EffectFailure | None:
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

    async def _step(self, key: Key, effect: StoreStep, kept: ReconcileState) -> EffectFailure | None:
        failure = await self._targets.store.step(key, effect.step, effect.connection)
        kept.step_failure = failure
        return None if failure is None else EffectFailure(effect, f"{failure.reason.value}: {failure.message}")

    async def _apply(self, effect: ApplyObject, kept: ReconcileState) -> EffectFailure | None:
        targets, document = self._targets, effect.document
        at = address_of(document)
        child = ChildName(at.kind.kind, at.name)
        with targets.intake.writing(place_of(document)):
            answer = await self._asked(lambda: self._applied(at, effect))
            if isinstance(answer, ApiObject):
                self._wrote(at, answer)
        digest = stamp_of(document) if effect.manager == MANAGER else None
        if isinstance(answer, ApiObject):
            if digest is not None:
                kept.answers[child] = LastApply(digest, answer.document, at_us=targets.now_us())
            return None
        if answer.is_of_another:
            await self._reread(at)
            return _failed(effect, answer)
        if digest is not None and answer.is_permanent:
            kept.answers[child] = LastApply(digest, None, refused=str(answer), at_us=targets.now_us())
        if answer.denial is Denial.CONFLICT:
            await self._reread(at)
        return _failed(effect, answer)

    async def _applied(self, at: ObjectAddress, effect: ApplyObject) -> ApiObject | Denied:
        if effect.merges:
            return await self._targets.port.patch(at, effect.document, manager=effect.manager)
        return await self._targets.port.apply(effect.document, manager=effect.manager, force=effect.force)

    async def _reread(self, at: ObjectAddress) -> None:
        """The object is another than we knew, or is gone: `ObjectCache` is behind."""
        answer = await self._targets.port.get(at)
        if isinstance(answer, ApiObject):
            self._wrote(at, answer)
        elif answer.denial is Denial.NOT_FOUND:
            if at.kind is SECRET:
                self._targets.secrets.note_gone(at.namespace or "", at.name)
            known = self._targets.cache.get(at.kind.kind, at.namespace or "", at.name)
            if known is not None:
                self._targets.intake.gone(known["metadata"]["uid"])

    async def _delete(self, effect: DeleteObject, kept: ReconcileState) -> EffectFailure | None:
        at = ObjectAddress(KINDS[effect.kind], effect.namespace, effect.name)
        answer = await self._asked(
            lambda: self._targets.port.delete(at, uid=effect.uid, propagation=effect.propagation)
        )
        kept.answers.pop(ChildName(effect.kind, effect.name), None)
        if isinstance(answer, Denied):
            if answer.denial is Denial.CONFLICT:  # there is another of its name, or the server reports one
                await self._reread(at)
            if answer.denial is not Denial.NOT_FOUND:
                return _failed(effect, answer)
        elif not answer.gone:
            remaining = await self._targets.port.get(at)
            if isinstance(remaining, ApiObject):
                self._wrote(at, remaining)
                return None
            if remaining.denial is not Denial.NOT_FOUND:
                return _failed(effect, remaining)
        if at.kind is SECRET:
            self._targets.secrets.note_gone(effect.namespace, effect.name)
        self._targets.intake.gone(effect.uid)
        return None

    async def _status(self, effect: PatchStatus) -> EffectFailure | None:
        kind = KINDS[effect.key.kind]
        document: dict[str, Any] = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": effect.key.name, "namespace": effect.key.namespace},
            "status": effect.status,
        }
        # A status heeds no uid: only a version distinguishes this resource from a newer one of its name.
        known = self._targets.cache.of_uid(effect.uid)
        if known is None:
            return EffectFailure(effect, "the resource is gone", is_conflict=True)
        document["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"]
        await self._statuses.turn()
        if not self._targets.may_act():
            raise NotLeading
        at = address_of(document)
        with self._targets.intake.writing(place_of(document)):
            answer = await self._asked(
                lambda: self._targets.port.apply(document, manager=MANAGER, force=True, subresource="status")
            )
            if isinstance(answer, ApiObject):
                self._wrote(at, answer)
                return None
        if answer.denial in (Denial.NOT_FOUND, Denial.CONFLICT):
            await self._reread(at)
        return _failed(effect, answer)

    async def _stop(self, effect: StopLane) -> EffectFailure | None:
        followed = next((each for each in self._targets.board.all() if each.key == effect.key), None)
        if followed is None:
            return None
        try:
            await followed.inspector.stop(effect.lane, effect.epoch)
        except Exception as error:
            return EffectFailure(effect, str(error))
        fields = {"key": effect.key.path, "lane": effect.lane, "epoch": effect.epoch}
        log.warning("lane owner stopped, it made no progress", extra=fields)
        return None

    def _emit(self, effect: Emit) -> None:
        """Nobody waits for it, and one that is lost is lost."""
        note = Note(
            regarding=ObjectAddress(KINDS[effect.key.kind], effect.key.namespace, effect.key.name),
            uid=effect.uid,
            reason=effect.reason,
            message=effect.note,
            at_us=self._targets.now_us(),
            type=effect.type,
            instance=self._targets.instance,
        )
        self._emitting.start(self._send_event(note))

    async def _send_event(self, note: Note) -> None:
        denied = await self._targets.port.emit(note)
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
            if not self._targets.may_act():
                raise NotLeading
        return answer

    def _wrote(self, at: ObjectAddress, answer: ApiObject) -> None:
        if at.kind is SECRET:
            self._targets.secrets.note(answer.document)
        else:
            self._targets.intake.wrote(answer.document)


def _failed(effect: Effect, denied: Denied) -> EffectFailure:
    return EffectFailure(effect, str(denied), denied.retry_after_s, is_conflict=denied.denial is Denial.CONFLICT)
