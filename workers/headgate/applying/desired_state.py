"""The requirements of a resource on Cassandra: a place, an entry, a keyspace. Pure: from the resource and the
environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.api.read.parse import Resource, ResourceInvalid, check_resource
from headgate.api.read.versions import Document, carry_unknown, document_of, known_part
from headgate.engines.contract import Capability
from headgate.engines.registry import engine_of, shards_of, stored_record
from headgate.store.catalogue.entry import Name, StoragePlace
from headgate.store.model.table import Keyspace
from headgate.store.schema import default_replication


@dataclass(frozen=True)
class PlacementDefaults:
    """The defaults for a resource that sets no storage."""

    keyspace: str
    """The connection's: it holds the catalogue, and the tables of all resources that name no keyspace."""
    data_center: str
    nodes: int
    """Of the data centre."""


@dataclass(frozen=True)
class Wanted:
    """A resource, and the values derived from it."""

    resource: Resource
    name: Name
    document: dict[str, Any]
    place: StoragePlace
    shards: int
    skew_us: int
    replication: int

    @property
    def makes_generations(self) -> bool:
        """Whether another number of shards is a matter of rule R6."""
        record = stored_record(engine_of(self.resource))
        return record is not None and Capability.GENERATIONS in record.capabilities


def wanted_of(resource: Resource, surroundings: PlacementDefaults) -> Wanted:
    """Its storage if it sets one, else the connection's."""
    storage = resource.spec.storage
    name = Name(resource.kind, resource.metadata.namespace, resource.metadata.name)
    place = StoragePlace(
        storage.data_center or surroundings.data_center, storage.keyspace or surroundings.keyspace, storage.tables
    )
    return Wanted(
        resource=resource,
        name=name,
        document=document_of(resource),
        place=place,
        shards=shards_of(resource),
        skew_us=resource.spec.max_clock_skew.us,
        replication=storage.replication or default_replication(surroundings.nodes),
    )


def catalogue_keyspace(surroundings: PlacementDefaults) -> Keyspace:
    """The keyspace of the catalogue, if it has to be made."""
    replication = default_replication(surroundings.nodes)
    return Keyspace(surroundings.keyspace, ((surroundings.data_center, replication),))


def keyspace_of(wanted: Wanted, place: StoragePlace) -> Keyspace:
    """The keyspace of a resource's tables, if it has to be made."""
    return Keyspace(place.keyspace, ((place.data_center, wanted.replication),))


def allowed_change(standing: Document, wanted: Document) -> Document:
    """The document to write over the existing one: the same rules as the API server's, one line for each fault."""
    faults = check_resource(known_part(wanted), known_part(standing))
    if isinstance(faults, list):
        raise ResourceInvalid(faults)
    return carry_unknown(standing, wanted)
