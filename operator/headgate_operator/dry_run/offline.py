"""The world of resources in an empty cluster on an empty Cassandra, without a server: the inputs of `headgate plan`,
and the values that it cannot know.

Values that only a cluster knows are in angle brackets, so that they are visible in the output.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headgate.api.read.parse import Resource
from headgate.api.read.versions import document_of
from headgate.api.resources.queues import QueueResource
from headgate.engines.registry import ENGINE_MODULES
from headgate_operator.decide.dead_letters import named_by
from headgate_operator.dry_run.projection import PlanProjection
from headgate_operator.model.names import CONNECTION_COPY, Key
from headgate_operator.model.world import (
    Meta,
    NamespaceWorld,
    OperatorSettings,
    Passes,
    PresentResource,
    QueueLoad,
    ResourceWorld,
    Sibling,
    StoreConnection,
    StoreView,
)

DATA_CENTER: Final = "<the connection's DATA_CENTER>"
KEYSPACE: Final = "headgate"
NODES: Final = 3
IMAGE: Final = "<the operator's image>"
SPARK_IMAGE: Final = "<the operator's image for Spark>"


def settings_of(version: str) -> OperatorSettings:
    """An operator of this version, of which nothing else is known."""
    return OperatorSettings(
        cluster="<the cluster>",
        version=version,
        image=IMAGE,
        spark_image=SPARK_IMAGE,
        supported=frozenset(ENGINE_MODULES),
    )


def empty_ahead(resources: Sequence[Resource], settings: OperatorSettings, now_us: int) -> PlanProjection:
    """These resources, applied together, where nothing else is."""
    worlds = {_key(resource): _world(resource, resources, settings, now_us) for resource in resources}
    names = dict.fromkeys(resource.metadata.namespace for resource in resources)
    return PlanProjection(worlds, {name: _namespace(name, settings) for name in names}, now_us)


def unknown(resources: Sequence[Resource], settings: OperatorSettings) -> Iterator[str]:
    supported = [resource for resource in resources if settings.supports(resource)]
    if any(resource.spec.storage.connection_secret is None for resource in supported):
        yield (
            f"whether Secret {settings.connection_secret} of the operator's namespace exists, and "
            "whether it leads to a Cassandra"
        )
    for name in sorted({resource.spec.storage.connection_secret or "" for resource in supported} - {""}):
        yield f"whether Secret {name} exists, and whether it leads to a Cassandra"
    if any(resource.spec.storage.data_center is None for resource in supported):
        yield "the home data centre: that of the connection"
    if supported:
        yield f"the keyspace of the catalogue: {KEYSPACE}, unless the connection has a KEYSPACE"
    if any(resource.spec.storage.replication is None for resource in supported):
        yield f"the number of replicas of a new keyspace: {NODES}, or the nodes of the data centre if fewer"
    if any(resource.spec.storage.tables == "dedicated" for resource in supported):
        yield "the ids in the names of dedicated tables: new for each creation"
    yield f"the operator's version (this plan is {settings.version}'s), its image, uids and digests"
    yield "existing objects: names that are taken, tables to adopt, messages that need workers"
    if any(isinstance(resource, QueueResource) and resource.spec.bulk for resource in supported):
        yield "whether the Spark operator is installed; when bulk jobs are due"


def _key(resource: Resource) -> Key:
    return Key("Queue" if isinstance(resource, QueueResource) else "Counter", *_place(resource))


def _place(resource: Resource) -> tuple[str, str]:
    return resource.metadata.namespace, resource.metadata.name


def _world(
    resource: Resource, siblings: Sequence[Resource], settings: OperatorSettings, now_us: int
) -> ResourceWorld:
    meta = Meta(
        uid=f"<uid of {resource.metadata.name}>",
        generation=1,
        created_us=now_us,
        annotations=dict(resource.metadata.annotations),
    )
    storage = resource.spec.storage
    home = storage.data_center or DATA_CENTER
    secret = storage.connection_secret or CONNECTION_COPY
    digest = f"<digest of Secret {secret}>"
    return ResourceWorld(
        key=_key(resource),
        settings=settings,
        resource=PresentResource(document_of(resource), meta, resource),
        siblings={each.metadata.name: _sibling(each) for each in siblings if _is_neighbour(each, resource)},
        connection=StoreConnection(secret, digest, KEYSPACE, home, NODES, is_copy=storage.connection_secret is None),
        store=StoreView(None, catalogue_there=False, keyspace_there=False),
        figures=QueueLoad(now_us),
        passes=Passes(),
        spark_operator=True,
    )


def _is_neighbour(sibling: Resource, resource: Resource) -> bool:
    return isinstance(sibling, QueueResource) and sibling.metadata.namespace == resource.metadata.namespace


def _sibling(resource: Resource) -> Sibling:
    return Sibling(resource.metadata.name, named_by(resource) if isinstance(resource, QueueResource) else ())


def _namespace(name: str, settings: OperatorSettings) -> NamespaceWorld:
    """With a source for the copy of the connection, as one that is there; its content is not known."""
    source = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": settings.connection_secret, "namespace": settings.namespace},
        "data": {"CONTACT_POINTS": ""},
    }
    return NamespaceWorld(
        namespace=name,
        settings=settings,
        present=True,
        terminating=False,
        wants_workers=False,
        wants_copy=False,
        wants_spark=False,
        groups=frozenset(),
        source=source,
    )
