"""The plan on the present cluster, by the leading operator: it observes, decides and imagines, and performs nothing.
The shell around projection.py.

It reads by a fork of the operator's observer, so it changes no cache, board or session. If a document names a
Cassandra without an open session, the plan states that and ends there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.api.read.parse import check_resource
from headgate.api.resources.reasons import Reason
from headgate_operator.dry_run.format_plan import build_plan_document, build_unknown_document
from headgate_operator.dry_run.projection import PlanProjection
from headgate_operator.model.names import Key, namespace_key
from headgate_operator.model.world import NamespaceWorld, Nothing, ResourceFailure, ResourceWorld
from headgate_operator.observe.world_builder import Observer, ReconcileScratch
from headgate_operator.reconcile.reconciler import Reconciler

UNKNOWN_OWNER: Final = "of a former creation, or too new: retry"


async def plan_live(
    reconciler: Reconciler, observer: Observer, key: Key, document: Mapping[str, Any] | None, now_us: int
) -> dict[str, Any]:
    """The plan of one key, with another document of its resource if one is passed; as JSON, with the trail."""
    observer = observer.fork()
    if document is not None and _is_as_it_is(observer, key, document):
        document = None
    ahead = PlanProjection({}, {}, now_us)
    for each in (key,) if key.kind == "Namespace" else (key, namespace_key(key.namespace)):
        world, _ = await reconciler.plan(each, document if each == key else None, observer)
        ahead.memories[each] = reconciler.memory_of(each)
        if isinstance(world, ResourceWorld):
            connection = world.connection
            if (
                document is not None
                and isinstance(connection, ResourceFailure)
                and connection.reason is Reason.CASSANDRA_UNAVAILABLE
            ):
                return {
                    **build_unknown_document(key, connection.message),
                    "key": key.path,
                    "trail": [connection.message],
                }
            ahead.add(each, world)
        elif isinstance(world, NamespaceWorld):
            ahead.namespaces[each.namespace] = world if document is None else _without(world, observer, key)
    while ahead.turn():
        await asyncio.sleep(0)  # reconciles and probes have their turn after each decision
        for each, asked in ahead.asks.items():
            scratch = ReconcileScratch()
            await observer.ask(each, asked, scratch)
            taken = asked - scratch.checked
            ahead.answer(each, {child: scratch.foreign.get(child, UNKNOWN_OWNER) for child in taken})
    return {**build_plan_document(ahead), "key": key.path, "trail": ahead.trails.get(key, [])}


def _without(world: NamespaceWorld, observer: Observer, key: Key) -> NamespaceWorld:
    """Without what only the spec that stands needs there; what the other one needs is added on the way."""
    present = observer.present(key)
    group = None if present is None else observer.group_of(present)
    if group is None or isinstance(world.groups, Nothing) or group in observer.groups_of_others(key):
        return world
    return replace(world, groups=world.groups - {group})


def _is_as_it_is(observer: Observer, key: Key, document: Mapping[str, Any]) -> bool:
    """Whether applying it would change nothing of the spec, so that it stays the generation that it is."""
    present, parsed = observer.present(key), check_resource(document)
    if present is None or isinstance(parsed, list) or isinstance(present.parsed, tuple):
        return False
    return parsed.spec == present.parsed.spec
