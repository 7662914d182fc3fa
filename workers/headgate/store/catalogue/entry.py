"""An entry of the catalogue as a value, and its form in a row.

Pure. It knows no pydantic model. `document` is the resource as JSON, of any version that wrote it, with fields
unknown to this version left as they are. The entry of a deleted resource stays in its row as `gone`, so that its name
can be taken again by one LWT and with a fresh id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from uuid import UUID

from headgate.errors import Bug, Conflict, OperationRefused
from headgate.expiry import Promise
from headgate.store.catalogue.decide_generation import Generation, Generations, Window, knowledge
from headgate.store.model.rows import Row
from headgate.store.model.types import Value

Document = Mapping[str, Any]
"""A resource as JSON: apiVersion, kind, metadata (name, namespace), spec."""


class EntryState(Enum):
    MAKING = "making"
    """Its tables may not exist yet."""
    ACTIVE = "active"
    RETAINED = "retained"
    """Its resource was deleted, and its data stays: nothing is put or received until it is adopted."""
    DELETING = "deleting"
    """Nothing is put any more; tables are being dropped."""
    GONE = "gone"
    """The name is free; the id is never used again."""


class EntryUnreadable(Bug):
    """A row of the catalogue that no version of Headgate has written."""


class OwnedByAnother(OperationRefused):
    """Another owner manages it, and only the owner changes an entry."""


class BeingDeleted(Conflict):
    """It is being deleted; its name is free once that is done."""


class WrongDataCenter(OperationRefused):
    """Its home data centre is another than this process's coordinators are in (rule R5)."""


@dataclass(frozen=True)
class Name:
    """The user-facing name of a kind of resource."""

    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> dict[str, Value]:
        return {"namespace": self.namespace, "kind": self.kind, "name": self.name}

    def __str__(self) -> str:
        return f"{self.kind.lower()}/{self.namespace}/{self.name}"


@dataclass(frozen=True)
class StoragePlace:
    data_center: str
    keyspace: str
    tables: str
    """`dedicated` or `shared`."""


@dataclass(frozen=True)
class Entry:
    name: Name
    id: UUID
    owner: str
    """Its manager: `operator/<cluster>/<uid>` or `cli/<name>`. Nobody else changes it."""
    state: EntryState
    revision: int
    """Counts the changes of the document."""
    document: Document = field(hash=False)
    place: StoragePlace
    generations: Generations
    changed_us: int
    receipt_key: bytes = field(repr=False, default=b"")
    """The key that signs receipts; of this creation alone."""

    @property
    def spec(self) -> Mapping[str, Any]:
        spec = self.document.get("spec", {})
        return spec if isinstance(spec, Mapping) else {}

    def require_home(self, data_center: str) -> None:
        """Reject a process whose LOCAL_QUORUM would mean other replicas than that of the others."""
        if data_center != self.place.data_center:
            raise WrongDataCenter(
                resource=self.name,
                home=self.place.data_center,
                connected_to=data_center,
                remedy=f"set DATA_CENTER={self.place.data_center} and name contact points in that data center",
            )


def owned_by_another(entry: Entry, you: str) -> OwnedByAnother:
    """Why this owner does not change it, and the remedy for a person."""
    if entry.state is EntryState.RETAINED:
        remedy = "it was kept when its resource was deleted: adopt it with `headgate apply --adopt`, or with the"
        remedy += " annotation headgate.io/adopt: by-name on the new resource"
    elif entry.owner.startswith("operator/"):
        remedy = "change its resource in Kubernetes, or delete that with deletionPolicy Retain, then adopt it"
    else:
        remedy = "change it where it is managed, or adopt it: `headgate apply --adopt`, or in Kubernetes the"
        remedy += " annotation headgate.io/adopt: by-name"
    return OwnedByAnother(
        resource=entry.name, owner=entry.owner, you=you or "nobody", state=entry.state.value, remedy=remedy
    )


@dataclass(frozen=True)
class KnownEntry:
    """An entry, and the start of its read, which determines its age (rule R6)."""

    entry: Entry
    read_started_us: int

    @property
    def promise(self) -> Promise:
        """To use it no longer than it may be used: checked before something is sent, and at its answer."""
        return knowledge(self.read_started_us)


def encode_document(document: Document) -> str:
    """One text for one document: so that equal ones compare equal."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _decode_document(text: str) -> Document:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise EntryUnreadable(cause=error) from None
    if not isinstance(document, dict):
        raise EntryUnreadable(document=type(document).__name__)
    return document


def generation_cells(generations: Generations) -> dict[str, Value]:
    """The cells of an entry's row that hold its generations."""
    announced = generations.next
    return {
        "generation": generations.current.number,
        "shards": generations.current.shards,
        "from_us": generations.current.from_us,
        "next_generation": announced.number if announced else None,
        "next_shards": announced.shards if announced else None,
        "next_from_us": announced.from_us if announced else None,
        "sure_us": generations.sure_us,
        "earlier": json.dumps(
            [[each.number, each.shards, each.from_us, each.until_us, each.sure_us] for each in generations.earlier]
        ),
    }


def entry_cells(entry: Entry) -> dict[str, Value]:
    """All cells of its row except the key, which has its home, and the attempt."""
    return {
        "id": entry.id,
        "owner": entry.owner,
        "state": entry.state.value,
        "revision": entry.revision,
        "document": encode_document(entry.document),
        "tables_keyspace": entry.place.keyspace,
        "tables_mode": entry.place.tables,
        "receipt_key": entry.receipt_key,
        **generation_cells(entry.generations),
        "changed_us": entry.changed_us,
    }


def entry_of(row: Row) -> Entry:
    announced = None
    if row.next_generation is not None:
        announced = Generation(row.next_generation, row.next_shards, row.next_from_us)
    return Entry(
        name=Name(row.kind, row.namespace, row.name),
        id=row.id,
        owner=row.owner,
        state=EntryState(row.state),
        revision=row.revision,
        document=_decode_document(row.document),
        place=StoragePlace(row.home_data_center, row.tables_keyspace, row.tables_mode),
        generations=Generations(
            Generation(row.generation, row.shards, row.from_us),
            announced,
            row.sure_us,
            tuple(Window(*each) for each in json.loads(row.earlier or "[]")),
        ),
        changed_us=row.changed_us,
        receipt_key=row.receipt_key or b"",
    )
