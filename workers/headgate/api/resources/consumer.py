"""Consumers of a queue: one Deployment each, run by the worker runtime."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.config import JsonDict

from headgate.api.resources.model import Count, Model
from headgate.api.resources.passed_on import POD_SPEC
from headgate.api.values.names import EntryPoint, Image, PartName, QueueName, Rate, StartFrom, UrlPath
from headgate.api.values.shapes import between
from headgate.api.values.units import Duration

_PASSED_ON: JsonDict = {"x-kubernetes-preserve-unknown-fields": True}


class HttpHandler(Model):
    """A handler in any language: the worker posts each message to it, on 127.0.0.1 of the same pod."""

    port: Count = Field(ge=1, le=65535)
    """The handler's port, on all addresses of the pod. Kubernetes probes it before workers start."""
    path: UrlPath = "/"
    """The path that messages are posted to. 2xx settles the message. 429 and 503 return it for the time in
    Retry-After. Any other answer returns it with a backoff."""


class Scaling(Model):
    """The number of workers. Without this block: the number of shards in force."""

    mode: Literal["auto", "external"] = "auto"
    """`auto`: the operator sets the replicas between min and max by the load. `external`: an HPA or KEDA of your own
    sets them."""
    min: Count = Field(0, ge=0, le=1000)
    """The minimum number of workers, also when no message waits."""
    max: Count = Field(10, ge=1, le=1000)
    """The maximum number of workers. The operator never starts more workers than there are lanes."""
    backlog_per_worker: Count = Field(1000, ge=1, le=100_000_000)
    """The number of waiting messages per worker."""
    lag: Annotated[Duration, between("1s", "1d")] = Duration("30s")
    """The operator adds workers while the oldest message waits longer than this."""


class PodTemplate(Model):
    """A strategic-merge patch of the pod template."""

    metadata: dict[str, Any] | None = Field(None, max_length=8, json_schema_extra=_PASSED_ON)
    """Labels and annotations to add to the pods."""
    spec: dict[str, Any] | None = Field(None, max_length=64, json_schema_extra=POD_SPEC)
    """A strategic-merge patch of the pod's spec: resources, env, volumes, nodeSelector, tolerations, further
    containers. The container that handles messages is named `worker` (with http: `handler`). At most 16 KiB of JSON,
    and 200 items per list."""


class Consumer(Model):
    """One Deployment of workers; with engine extent, one consumer group."""

    name: PartName
    """The consumer's name within the queue. It names the Deployment, and with engine extent the consumer group."""
    image: Image | None = None
    """The image with the handler. For a Python handler it needs the package headgate. Default for a Python handler:
    the operator's own image, which contains nothing but headgate."""
    handler: EntryPoint | None = None
    """The Python function that handles each message, as module:function. Set either this or `http`."""
    http: HttpHandler | None = None
    """An HTTP handler in any language, in an unchanged image. Set either this or `handler`."""
    concurrency: Count = Field(16, ge=1, le=10_000)
    """The number of messages that one worker handles at the same time."""
    scaling: Scaling | None = None
    """The number of workers. Default: the number of shards in force."""
    start_from: StartFrom | None = None
    """The start of a new consumer group: earliest (the oldest kept message), latest, or a time such as
    2026-11-18T09:00:00Z. Default: earliest. Only with engine extent. An existing group keeps its position."""
    max_receives: Count | None = Field(None, ge=1, le=1000)
    """This consumer's own maxReceives. Default: the queue's."""
    visibility_timeout: Annotated[Duration, between("1s", "7d")] | None = None
    """This consumer's own visibilityTimeout. Default: the queue's."""
    dead_letter: QueueName | None = None
    """This consumer's own dead-letter queue: another Queue of this namespace. Default: the queue's."""
    rate: Rate | None = None
    """The maximum rate of all workers of this consumer together, such as 50/s or 600/m. Default: no limit."""
    template: PodTemplate | None = None
    """A strategic-merge patch of the pod template: resources, env, volumes, node selection."""
