"""The plan on the present cluster, by the leading operator: it observes, decides and imagines, and performs nothing.
The shell around plan_ahead.py.

It reads by a fork of the operator's observer, so it changes no cache, board or session. If a document names a
Cassandra without an open session, the plan states that and ends there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headgate.api.parse import check_resource
from headgate.api.status import Reason
from headgate_operator.names import Key, namespace_key
from headgate_operator.observe import Looked, Observer
from headgate_operator.plan_ahead import Ahead
from headgate_operator.plan_telling import tell, tell_unknown
from headgate_operator.reconciling import Reconciler
from headgate_operator.world import NamespaceWorld, Nothing, Trouble, World

NOT_TOLD_APART: Final = "of a former creation, or too new: retry"


async def plan_live(
    reconciler: Reconciler, observer: Observer, key: Key, document: Mapping[str, Any] | None, now_us: int
) -> dict[str, Any]:
    """The plan of one key, with another document of its resource if one is passed; as JSON, with the trail."""
    observer = observer.fork()
    if document is not None and _is_as_it_is(observer, key, document):
        document = None
    ahead = Ahead({}, {}, now_us)
    for each in (key,) if key.kind == "Namespace" else (key, namespace_key(key.namespace)):
        found, _ = await reconciler.plan(each, document if each == key else None, observer)
        ahead.memories[each] = reconciler.memory_of(each)
        if isinstance(found, World):
            away = found.connection
            if document is not None and isinstance(away, Trouble) and away.reason is Reason.CASSANDRA_UNAVAILABLE:
                return {**tell_unknown(key, away.says), "key": key.path, "trail": [away.says]}
            ahead.add(each, found)
        elif isinstance(found, NamespaceWorld):
            ahead.namespaces[each.namespace] = found if document is None else _without(found, observer, key)
    while ahead.turn():
        await asyncio.sleep(0)  # reconciles and probes have their turn after each decision
        for each, asked in ahead.asks.items():
            looked = Looked()
            await observer.ask(each, asked, looked)
            taken = asked - looked.checked
            ahead.answer(each, {child: looked.foreign.get(child, NOT_TOLD_APART) for child in taken})
    return {**tell(ahead), "key": key.path, "trail": ahead.trails.get(key, [])}


def _without(world: NamespaceWorld, observer: Observer, key: Key) -> NamespaceWorld:
    """Without what only the spec that stands needs there; what the other one needs is added on the way."""
    present = observer.present(key)
    group = None if present is None else observer.group_of(present)
    if group is None or isinstance(world.groups, Nothing) or group in observer.groups_beside(key):
        return world
    return replace(world, groups=world.groups - {group})


def _is_as_it_is(observer: Observer, key: Key, document: Mapping[str, Any]) -> bool:
    """Whether applying it would change nothing of the spec, so that it stays the generation that it is."""
    present, found = observer.present(key), check_resource(document)
    if present is None or isinstance(found, list) or isinstance(present.parsed, tuple):
        return False
    return found.spec == present.parsed.spec
