"""The CronJob that serves a resource, and whether its engine is supported: of one resource alone. Pure."""

from __future__ import annotations

from headgate.api.read.parse import Resource
from headgate.api.resources.queues import QueueResource
from headgate.engines.registry import engine_of
from headgate_operator.model.names import CONNECTION_COPY
from headgate_operator.model.world import JobGroup, OperatorSettings


def group_of(resource: Resource, settings: OperatorSettings) -> JobGroup:
    """The values that resources with one CronJob share."""
    spec = resource.spec
    secret = spec.storage.connection_secret or CONNECTION_COPY
    if isinstance(resource, QueueResource):
        return JobGroup("repair", resource.spec.repair.schedule, secret, settings.image)
    return JobGroup("gc", resource.spec.gc.schedule, secret, resource.spec.gc.image or settings.image)


def is_supported(resource: Resource, settings: OperatorSettings) -> bool:
    """Whether this version makes anything for it."""
    return engine_of(resource) in settings.supported
