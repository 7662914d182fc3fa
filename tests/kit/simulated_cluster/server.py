"""An API server in memory: objects, versions, and the answers of a real one to each request. Synchronous and exact.

It holds objects as documents that are never changed in place. One version number grows with every write, as etcd's.
Each write is one step: read, change by its verb (`managing.py`, `admission.py`), check, keep, note in the log.
Watches read the log; controllers (`collecting.py`, `controllers.py`) get each entry. It knows neither the network nor
time: remote clients use `client.py`, and the time is passed in.

It leaves out: authentication, quotas, webhooks, pods' graceful end (`controllers.py` has that), versions of one kind,
generateName collisions, strategic merge patches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate_operator.cluster.requests import ApiRequest, ApiResponse
from headgate_operator.model.kinds import KINDS, NAMESPACE, POD, SPARK_APPLICATION, ResourceKind
from tests.kit.simulated_cluster import refusals, writing
from tests.kit.simulated_cluster.log import Log, WriteEntry
from tests.kit.simulated_cluster.plain import copied
from tests.kit.simulated_cluster.selecting import Selector
from tests.kit.simulated_cluster.writing import Object, Write

Key = tuple[str, str]
"""Namespace (empty for kinds without) and name."""

FIRST_VERSION: Final = 1_000
"""Earlier versions are compacted, as on a server that has run for a while."""
PAGES_KEPT: Final = 100


@dataclass
class _Pages:
    """The rest of lists that were cut, by their continuation."""

    left: dict[str, tuple[list[Object], str]] = field(default_factory=dict)
    given: int = 0

    def keep(self, items: list[Object], version: str) -> str:
        self.given += 1
        token = f"page-{self.given}"
        self.left[token] = (items, version)
        while len(self.left) > PAGES_KEPT:
            self.left.pop(next(iter(self.left)))
        return token


class ApiServer:
    """One cluster's objects."""

    def __init__(self, *, now_us: Callable[[], int], new_uid: Callable[[], str]) -> None:
        self.now_us = now_us
        self.new_uid = new_uid
        self.log = Log(FIRST_VERSION)
        self.kinds: set[ResourceKind] = set(KINDS.values()) - {SPARK_APPLICATION}
        self._objects: dict[ResourceKind, dict[Key, Object]] = {}
        self._pages = _Pages()
        self._listeners: list[Callable[[WriteEntry], None]] = []
        for name in ("default", "kube-system"):
            self.must(
                ApiRequest("create", NAMESPACE, body=_namespace(name), query={"fieldManager": "kube-apiserver"})
            )

    # ---- for those inside the cluster

    def install(self, kind: ResourceKind) -> None:
        """A CRD is there from now on."""
        self.kinds.add(kind)

    def uninstall(self, kind: ResourceKind) -> None:
        """Remove a CRD, and its objects with it."""
        self.kinds.discard(kind)
        self._objects.pop(kind, None)

    def when_written(self, listener: Callable[[WriteEntry], None]) -> None:
        """Have a function called after each write."""
        self._listeners.append(listener)

    def find(self, kind: ResourceKind, namespace: str | None, name: str) -> Object | None:
        """An object, as it is kept; not to be changed."""
        return self._objects.get(kind, {}).get((namespace or "", name))

    def all(
        self, kind: ResourceKind | None = None, namespace: str | None = None
    ) -> Iterator[tuple[ResourceKind, Object]]:
        """All objects, of a kind or a namespace if one is named, in the order of their names."""
        for one in sorted(self._objects) if kind is None else (kind,):
            for (place, _), document in sorted(self._objects.get(one, {}).items(), key=lambda entry: entry[0]):
                if namespace is None or (one.namespaced and place == namespace):
                    yield one, document

    def must(self, request: ApiRequest) -> Object:
        """Perform it; a refusal is a mistake of the caller."""
        answer = self.answer(request)
        if answer.status >= 300:
            raise AssertionError(f"{request}: {answer.body.get('message')}")
        return answer.body

    def compact(self, keep: int = 0) -> None:
        """Forget the history but for its last entries, and the lists that were cut."""
        self.log.compact(keep)
        self._pages = _Pages()

    def finish_namespace(self, name: str) -> None:
        """A deleted namespace is empty: it goes too, unless a finalizer holds it."""
        namespace = self.find(NAMESPACE, None, name)
        if namespace is None or not namespace["metadata"].get("deletionTimestamp"):
            return
        finished = {**namespace, "spec": {**namespace["spec"], "finalizers": []}}
        if writing.is_over(finished):
            for kind, left in list(self.all(namespace=name)):
                self._drop(kind, left)
            self._drop(NAMESPACE, finished)
        elif finished["spec"] != namespace["spec"]:
            self._keep("MODIFIED", NAMESPACE, finished)

    # ---- requests

    def answer(self, request: ApiRequest, *, was_unheld: bool = False) -> ApiResponse:
        """The answer of a real server. `was_unheld`: for a delete, the value of `is_unheld` when it arrived."""
        try:
            answer = self._answer(request, was_unheld=was_unheld)
            return ApiResponse(answer.status, copied(answer.body))
        except refusals.Refusal as refused:
            return refused.answer

    def is_unheld(self, request: ApiRequest) -> bool:
        """Whether a delete finds no finalizer: a real server checks for one before it deletes, and not again."""
        body = request.body or {}
        if request.verb != "delete" or body.get("propagationPolicy", "Background") != "Background":
            return False
        document = self.find(request.kind, request.namespace, request.name or "")
        return (
            document is not None
            and not document["metadata"].get("finalizers")
            and request.kind not in (NAMESPACE, POD)
        )

    def _answer(self, request: ApiRequest, *, was_unheld: bool = False) -> ApiResponse:
        if request.kind not in self.kinds:
            raise refusals.unknown_kind()
        match request.verb:
            case "get":
                return refusals.success(self._selected(request, self._held(request)))
            case "list":
                return refusals.success(self._list(request))
            case "delete":
                return self._delete(request, was_unheld=was_unheld)
            case "create" | "apply" | "replace" | "patch":
                return self._write(request)

    def _held(self, request: ApiRequest) -> Object:
        items = self.find(request.kind, request.namespace, request.name or "")
        if items is None:
            raise refusals.not_found(request.kind, request.name)
        return items

    def _selected(self, request: ApiRequest, document: Object) -> Object:
        if request.metadata_only:
            return {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": document["metadata"],
            }
        return document

    def _list(self, request: ApiRequest) -> Object:
        token, limit = request.query.get("continue"), int(request.query.get("limit", "0"))
        if token:
            if token not in self._pages.left:
                message = "The provided continue parameter is too old to display a consistent list result."
                raise refusals.refusal(410, "Expired", message)
            items, version = self._pages.left[token]
        else:
            selector = Selector(request.query.get("labelSelector", ""), request.query.get("fieldSelector", ""))
            items = [one for _, one in self.all(request.kind, request.namespace) if selector.selects(one)]
            version = str(self.log.version)
        page, rest = (items[:limit], items[limit:]) if limit else (items, [])
        metadata: dict[str, Any] = {"resourceVersion": version}
        if rest:
            metadata |= {"continue": self._pages.keep(rest, version), "remainingItemCount": len(rest)}
        return {"metadata": metadata, "items": [self._selected(request, one) for one in page]}

    def _write(self, request: ApiRequest) -> ApiResponse:
        body = copied(request.body or {})
        kind = request.kind
        name = request.name or body.get("metadata", {}).get("name")
        if not name:
            raise refusals.invalid(kind, "", [writing.name_is_missing()])
        live = self.find(kind, request.namespace, name)
        write = Write(request, kind, request.namespace, name, body, self.timestamp())
        if live is None:
            self._check_namespace(kind, request.namespace, name)
            made = writing.make(write, self.new_uid())
            return refusals.success(self._keep("ADDED", kind, made), 201)
        changed = writing.change(write, live)
        if changed is live:
            return refusals.success(writing.shown(write, live))
        if writing.is_over(changed):
            self._drop(kind, changed)
            return refusals.success(writing.shown(write, changed))
        return refusals.success(writing.shown(write, self._keep("MODIFIED", kind, changed)))

    def _check_namespace(self, kind: ResourceKind, namespace: str | None, name: str) -> None:
        if not kind.namespaced:
            return
        home = self.find(NAMESPACE, None, namespace or "")
        if home is None:
            raise refusals.not_found(NAMESPACE, namespace)
        if home["metadata"].get("deletionTimestamp"):
            raise refusals.terminating(kind, name, namespace or "")

    def _delete(self, request: ApiRequest, *, was_unheld: bool = False) -> ApiResponse:
        live, kind = self._held(request), request.kind
        body = request.body or {}
        writing.check_preconditions(kind, live, body.get("preconditions") or {})
        marked = writing.mark_deleted(
            kind,
            live,
            propagation=body.get("propagationPolicy", "Background"),
            now=self.timestamp(),
            grace_s=writing.grace_s(kind, live, body),
        )
        if was_unheld or writing.is_over(marked):
            self._drop(kind, live)
            return refusals.success({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
        if marked == live:
            return refusals.success(live)
        return refusals.success(self._keep("MODIFIED", kind, marked))

    # ---- keeping

    def timestamp(self) -> str:
        """Now, as documents write it."""
        return writing.format_time(self.now_us())

    def _keep(self, type_: str, kind: ResourceKind, document: Object) -> Object:
        version = self.log.next_version()
        kept = {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}
        key = (kept["metadata"].get("namespace") or "", kept["metadata"]["name"])
        old = self._objects.setdefault(kind, {}).get(key)
        self._objects[kind][key] = kept
        self._note(WriteEntry(version, type_, kind, kept, old))
        return kept

    def _drop(self, kind: ResourceKind, document: Object) -> None:
        metadata = document["metadata"]
        version = self.log.next_version()
        old = self._objects[kind].pop((metadata.get("namespace") or "", metadata["name"]))
        last = {**document, "metadata": {**metadata, "resourceVersion": str(version)}}
        self._note(WriteEntry(version, "DELETED", kind, last, old))

    def _note(self, entry: WriteEntry) -> None:
        self.log.add(entry)
        for listener in self._listeners:
            listener(entry)


def _namespace(name: str) -> Mapping[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
