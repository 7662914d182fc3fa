"""The world of one key, from what was seen and read: `ObjectCache`, Secrets, the store, figures, lanes. No decisions.

State that could not be read is UNKNOWN or a Trouble, never empty. It asks the API server for nothing but Secrets,
pods of consumers that are short of workers, and places that a plan wants to know free.

Reading changes nothing but the caches. Consequences for others are recorded by the reconcile
(reconcile/reconciler.py). A plan reads by a `fork`, whose memory is its own, and by sessions that are open already.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from uuid import UUID

from headgate.api.read.parse import Resource, check_resource
from headgate.api.resources.queues import QueueResource
from headgate.api.rules.rules import Fault
from headgate.engines.registry import EngineRecord, engine_of_entry, stored_record
from headgate.store.catalogue.entry import Entry
from headgate_operator.cluster.port import Denial, Denied
from headgate_operator.cluster.requests import ClusterPort, read_time_us
from headgate_operator.informers.object_cache import ObjectCache, terminates
from headgate_operator.informers.watched_kinds import SPARK_CRD
from headgate_operator.model.kinds import (
    CRD,
    CRON_JOB,
    DEPLOYMENT,
    KINDS,
    NAMESPACE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    Document,
    ObjectAddress,
)
from headgate_operator.model.names import ADOPT_FROM, CONNECTION_COPY, MANAGED_BY, Key, namespace_key
from headgate_operator.model.world import (
    UNKNOWN,
    ChildName,
    JobGroup,
    LastApply,
    Meta,
    NamespaceState,
    NamespaceWorld,
    OperatorSettings,
    PresentResource,
    QueueLoad,
    ResourceFailure,
    ResourceWorld,
    Sibling,
    StoreConnection,
    StoreView,
    Unread,
)
from headgate_operator.observe.bulk_runs import BulkRows, JobReport, job_ids_of, runs_of
from headgate_operator.observe.lane_health import Health
from headgate_operator.observe.maintenance_results import PassBoard
from headgate_operator.observe.pods import PodInspector
from headgate_operator.observe.queue_stats import FigureBoard
from headgate_operator.store.catalogue import StoreSide
from headgate_operator.store.connections import Connections
from headgate_operator.store.secret_cache import Secrets
from headgate_operator.store.sessions import Sessions

PARSED_MAX: Final = 20_000
SIBLINGS_MAX: Final = 100
ADOPT_FROM_MAX: Final = 4_096
"""Characters that are read of the annotation."""
NOT_MADE_YET: Final = str(UUID(int=0))
OF_NAMESPACE: Final = (SERVICE_ACCOUNT.kind, ROLE_BINDING.kind, CRON_JOB.kind)


@dataclass
class ReconcileScratch:
    """The reads of one reconcile so far, in addition to the caches."""

    checked: set[ChildName] = field(default_factory=set)
    foreign: dict[ChildName, str] = field(default_factory=dict)
    children: list[Document] = field(default_factory=list)
    """Children of the resource that no watch has reported yet."""


@dataclass(frozen=True)
class _Needs:
    group: JobGroup
    copy: bool
    """Of the chart's Secret."""
    spark: bool
    deleting: bool
    is_active: bool
    """Its tables exist, so a CronJob serves it."""


@dataclass(frozen=True)
class Sources:
    port: ClusterPort
    cache: ObjectCache
    sessions: Sessions
    secrets: Secrets
    connections: Connections
    store: StoreSide
    board: FigureBoard
    health: Health
    passes: PassBoard
    bulk_rows: BulkRows
    pods: PodInspector

    def fork(self) -> Sources:
        """The same, where nothing that is read by it is remembered."""
        sessions, secrets = self.sessions.reader(), self.secrets.fork()
        store = self.store.fork(sessions)
        return replace(
            self,
            secrets=secrets,
            connections=self.connections.fork(secrets, sessions),
            store=store,
            bulk_rows=BulkRows(store),
            pods=self.pods.fork(),
        )


class Observer:
    def __init__(self, sources: Sources, settings: OperatorSettings, *, now_us: Callable[[], int]) -> None:
        self.settings = settings
        self.stands: dict[str, NamespaceState] = {}
        """How namespaces stand, as their own keys found it."""
        self._from = sources
        self._now_us = now_us
        self._needs: OrderedDict[str, tuple[str, _Needs | None]] = OrderedDict()
        self._parsed: OrderedDict[tuple[str, int], Resource | tuple[Fault, ...]] = OrderedDict()

    def fork(self) -> Observer:
        """One that knows what this one knows, and remembers what it reads apart from it."""
        made = Observer(self._from.fork(), self.settings, now_us=self._now_us)
        made.stands, made._needs, made._parsed = dict(self.stands), self._needs.copy(), self._parsed.copy()
        return made

    # ---- a resource

    async def resource(
        self,
        key: Key,
        scratch: ReconcileScratch,
        answers: Mapping[ChildName, LastApply],
        instead: Document | None = None,
    ) -> ResourceWorld:
        """Everything about a Queue or a Counter; with another document of it, if one is passed."""
        present = self.present(key) if instead is None else self._imagined(key, instead)
        resource, uid = (present.valid, present.meta.uid) if present is not None else (None, None)
        connection = await self._from.connections.of(key, resource)
        store: StoreView | ResourceFailure | Unread = UNKNOWN
        if isinstance(connection, StoreConnection):
            store = await self._from.store.view(key, connection, uid=uid, resource=resource)
        children = [] if present is None else self._from.cache.children_of(present.meta.uid)
        entry = store.entry if isinstance(store, StoreView) else None
        if entry is not None:
            await self._from.passes.until_read()
        reports: Mapping[UUID, JobReport] = {}
        if isinstance(store, StoreView) and isinstance(connection, StoreConnection):
            reports = await self._from.bulk_rows.of(key, connection, job_ids_of(children))
        now_us = self._now_us()
        return ResourceWorld(
            key=key,
            settings=self.settings,
            resource=present,
            namespace=self._stand(key.namespace),
            live={child_name(each): each for each in children},
            foreign=dict(scratch.foreign),
            checked=frozenset(scratch.checked),
            answers=answers,
            siblings=self._siblings(key),
            connection=connection,
            store=store,
            figures=self._figures(key, present, connection, store, now_us),
            lanes=self._from.health.of(key, now_us),
            passes=UNKNOWN if entry is None else self._from.passes.of(entry.id, self._failed_runs(key)),
            runs=runs_of(children, reports),
            pods=await self._from.pods.of(key, [each for each in children if each["kind"] == DEPLOYMENT.kind]),
            spark_operator=self._from.cache.get(CRD.kind, "", SPARK_CRD) is not None,
        )

    def present(self, key: Key) -> PresentResource | None:
        document = self._from.cache.get(key.kind, key.namespace, key.name)
        if document is None:
            return None
        metadata = document["metadata"]
        meta = Meta(
            uid=metadata["uid"],
            generation=int(metadata.get("generation") or 1),
            created_us=read_time_us(metadata.get("creationTimestamp")),
            deleting_since_us=read_time_us(metadata.get("deletionTimestamp")) or None,
            finalizers=tuple(metadata.get("finalizers") or ()),
            annotations=metadata.get("annotations") or {},
        )
        return PresentResource(document, meta, self._parse(document, meta))

    def _imagined(self, key: Key, document: Document) -> PresentResource:
        """As it would be, if this document were applied."""
        parsed, known = _parse(document), self.present(key)
        if known is None:
            meta = Meta(uid=NOT_MADE_YET, generation=1, created_us=self._now_us())
            return PresentResource({**document, "metadata": {**document["metadata"], "uid": meta.uid}}, meta, parsed)
        meta = replace(known.meta, generation=known.meta.generation + 1)
        return PresentResource({**document, "metadata": known.document["metadata"]}, meta, parsed)

    def _parse(self, document: Document, meta: Meta) -> Resource | tuple[Fault, ...]:
        """Once for each generation: it takes a millisecond."""
        known = self._parsed.get((meta.uid, meta.generation))
        if known is None:
            known = self._parsed[(meta.uid, meta.generation)] = _parse(document)
            while len(self._parsed) > PARSED_MAX:
                self._parsed.popitem(last=False)
        return known

    def _figures(
        self, key: Key, present: PresentResource | None, connection: object, store: object, now_us: int
    ) -> QueueLoad | Unread:
        """As they were read last; of a queue that cannot be followed there are none."""
        if not isinstance(connection, StoreConnection):
            return UNKNOWN
        if isinstance(store, StoreView) and followed_entry(present, store, self._from.store) is None:
            return UNKNOWN
        return self._from.board.of(key, now_us)

    def _stand(self, namespace: str) -> NamespaceState:
        document = self._from.cache.get(NAMESPACE.kind, "", namespace)
        stand = self.stands.get(namespace, NamespaceState())
        ends = document is not None and terminates(document)
        uid, adopts_from = ("", frozenset[str]()) if document is None else _identity(document)
        return replace(stand, terminating=ends, uid=uid, adopts_from=adopts_from)

    def _siblings(self, key: Key) -> Mapping[str, Sibling]:
        """The dead-letter queues that it names, those that they name in turn, and the queues that name it."""
        if key.kind != "Queue":
            return {}
        cache, siblings = self._from.cache, dict[str, Sibling]()
        ahead = [*cache.dead_letters_of(key.namespace, key.name)]
        while ahead and len(siblings) < SIBLINGS_MAX:
            name = ahead.pop()
            sibling = None if name in siblings else self._sibling(key.namespace, name)
            if sibling is not None:
                siblings[name] = sibling
                ahead += sibling.dead_letters
        for name in sorted(cache.named_by(key.namespace, key.name))[:SIBLINGS_MAX]:
            sibling = self._sibling(key.namespace, name)
            if sibling is not None:
                siblings.setdefault(name, sibling)
        return siblings

    def _sibling(self, namespace: str, name: str) -> Sibling | None:
        document = self._from.cache.get("Queue", namespace, name)
        if document is None:
            return None
        leads_to = tuple(sorted(self._from.cache.dead_letters_of(namespace, name)))
        return Sibling(name, leads_to, deleting=bool(document["metadata"].get("deletionTimestamp")))

    def _failed_runs(self, key: Key) -> int:
        """Jobs of the namespace's passes that failed since the last that succeeded."""
        present = self.present(key)
        group = None if present is None else self.group_of(present)
        return 0 if group is None else self._from.passes.failed_runs(key.namespace, group.task)

    # ---- places that a plan wants to know free

    async def ask(self, key: Key, children: Iterable[ChildName], scratch: ReconcileScratch) -> None:
        """Ask the server for what stands there, if anything."""
        for child in sorted(children):
            answer = await self._from.port.get(ObjectAddress(KINDS[child.kind], key.namespace, child.name))
            if isinstance(answer, Denied):
                if answer.denial is Denial.NOT_FOUND:
                    scratch.checked.add(child)
                    if child.kind == SECRET.kind:
                        self._from.secrets.note_gone(key.namespace, child.name)
                continue
            self._place(key, child, answer.document, scratch)

    def _place(self, key: Key, child: ChildName, document: Document, scratch: ReconcileScratch) -> None:
        owners = document["metadata"].get("ownerReferences") or ()
        if child.kind == SECRET.kind:
            self._from.secrets.note(document)
        if self._is_ours(key, document):
            if child.kind != SECRET.kind:
                scratch.children.append(document)
        elif not any(owner.get("kind") == key.kind and owner.get("name") == key.name for owner in owners):
            scratch.foreign[child] = _format_owners(owners)  # a child of a former creation is about to be collected

    def _is_ours(self, key: Key, document: Document) -> bool:
        metadata = document["metadata"]
        if key.kind == "Namespace":
            return (metadata.get("labels") or {}).get(MANAGED_BY) == "headgate"
        present = self.present(key)
        owners = metadata.get("ownerReferences") or ()
        return present is not None and any(owner.get("uid") == present.meta.uid for owner in owners)

    # ---- a namespace

    async def namespace(
        self, key: Key, scratch: ReconcileScratch, answers: Mapping[ChildName, LastApply]
    ) -> NamespaceWorld:
        name = key.namespace
        needs = [each async for each in self._needs_in(name)]
        groups = frozenset(each.group for each in needs if each.is_active)
        source = await self._from.connections.source()
        document = self._from.cache.get(NAMESPACE.kind, "", name)
        uid, adopts_from = ("", frozenset[str]()) if document is None else _identity(document)
        return NamespaceWorld(
            namespace=name,
            settings=self.settings,
            present=document is not None,
            terminating=document is not None and terminates(document),
            wants_workers=bool(needs),  # each has repair or the collector; and the account, made first, is watched
            wants_copy=any(each.copy for each in needs) and await self._from.connections.has_own(name) is False,
            wants_spark=any(each.spark for each in needs),
            groups=groups,
            source=source,
            is_admitted=self._from.connections.admits(name),
            uid=uid,
            adopts_from=adopts_from,
            live=await self._of_namespace(name),
            foreign=dict(scratch.foreign),
            checked=frozenset(scratch.checked),
            answers=answers,
        )

    def group_of(self, present: PresentResource) -> JobGroup | None:
        return None if present.valid is None else JobGroup.of(present.valid, self.settings)

    def groups_of_others(self, key: Key) -> frozenset[JobGroup]:
        others = (self.present(each) for each in self.keys_in(key.namespace) if each != key)
        return frozenset(group for other in others if other is not None and (group := self.group_of(other)))

    def keys_in(self, namespace: str) -> list[Key]:
        return self._from.cache.keys_in(namespace)

    async def _needs_in(self, namespace: str) -> AsyncIterator[_Needs]:
        """Of all supported resources. Each is parsed once per generation: with a thousand queues applied at once each
        of them needs this, and other tasks of the event loop have a turn after each parsed one.
        """
        for key in self.keys_in(namespace):
            uid, generation = self._from.cache.which(key.kind, namespace, key.name)
            known = self._needs.get(uid)
            if known is None or known[0] != generation:
                known = self._needs[uid] = (generation, self._needs_of(key))
                self._needs.move_to_end(uid)
                while len(self._needs) > PARSED_MAX:
                    self._needs.popitem(last=False)
                await asyncio.sleep(0)
            needs = known[1]
            if needs is not None:
                is_active = None if needs.deleting else self._from.store.is_active(key, uid)
                yield needs if is_active is None else replace(needs, is_active=is_active)

    def _needs_of(self, key: Key) -> _Needs | None:
        """None: nothing is made for it. Whether it is active: by what was written of it before we started."""
        present = self.present(key)
        resource = None if present is None else present.valid
        if present is None or resource is None or not self.settings.supports(resource):
            return None
        deleting = present.meta.deleting_since_us is not None
        conditions = (present.document.get("status") or {}).get("conditions") or ()
        had_tables = any(each["type"] == "TablesReady" and each["status"] == "True" for each in conditions)
        return _Needs(
            group=JobGroup.of(resource, self.settings),
            copy=resource.spec.storage.connection_secret is None,
            spark=isinstance(resource, QueueResource) and bool(resource.spec.bulk),
            deleting=deleting,
            is_active=had_tables and not deleting,
        )

    async def _of_namespace(self, name: str) -> dict[ChildName, Document]:
        """Ours there that no resource owns."""
        live: dict[ChildName, Document] = {
            child_name(document): document
            for kind in OF_NAMESPACE
            for document in self._from.cache.in_namespace(kind, name)
            if not document["metadata"].get("ownerReferences")
        }
        copy = self._from.secrets.known(name, CONNECTION_COPY)
        if copy is None:
            read = await self._from.secrets.read(name, CONNECTION_COPY)
            copy = None if isinstance(read, Denied) else read
        if copy is not None and copy.document is not None:
            key = namespace_key(name)
            if self._is_ours(key, copy.document):
                live[ChildName(SECRET.kind, CONNECTION_COPY)] = copy.document
        return live


def followed_entry(present: PresentResource | None, view: StoreView, store: StoreSide) -> Entry | None:
    """The entry by which a queue's figures are read; None: they are nobody's, or not this resource's."""
    entry = view.entry
    if present is None or entry is None or entry.owner != store.owner(present.meta.uid):
        return None
    record = stored_record(engine_of_entry(entry)) if present.valid is not None else None
    return entry if isinstance(record, EngineRecord) and record.inspect is not None else None


def child_name(document: Document) -> ChildName:
    return ChildName(str(document["kind"]), str(document["metadata"]["name"]))


def _identity(namespace: Document) -> tuple[str, frozenset[str]]:
    """Its uid, and those of the namespaces whose data an administrator left to it."""
    metadata = namespace["metadata"]
    named = str((metadata.get("annotations") or {}).get(ADOPT_FROM, ""))[:ADOPT_FROM_MAX]
    return str(metadata["uid"]), frozenset(uid for uid in named.replace(",", " ").split())


def _parse(document: Document) -> Resource | tuple[Fault, ...]:
    parsed = check_resource({name: part for name, part in document.items() if name != "status"})
    return tuple(parsed) if isinstance(parsed, list) else parsed


def _format_owners(owners: Iterable[Mapping[str, Any]]) -> str:
    first = next(iter(owners), None)
    return "not Headgate's" if first is None else f"{str(first.get('kind')).lower()} {first.get('name')}'s"
