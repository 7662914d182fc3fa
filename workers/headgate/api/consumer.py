"""What drains a queue: one Deployment a consumer, run by the worker runtime."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic.config import JsonDict

from headgate.api.durations import Duration
from headgate.api.model import Count, Model
from headgate.api.names import EntryPoint, Image, PartName, QueueName, Rate, StartFrom, UrlPath
from headgate.api.passed_on import POD_SPEC
from headgate.api.shapes import between

_PASSED_ON: JsonDict = {"x-kubernetes-preserve-unknown-fields": True}


class HttpHandler(Model):
    """A handler in any language: the worker posts each message to it, on 127.0.0.1 of the same pod."""

    port: Count = Field(
        ge=1,
        le=65535,
        description="The port on which the image listens, at all addresses of the pod: before workers start, "
        "Kubernetes looks whether it does.",
    )
    path: UrlPath = Field(
        "/",
        description="Where messages are posted. 2xx settles the message; 429 and 503 give it back for as long as "
        "Retry-After says; anything else gives it back with a backoff.",
    )


class Scaling(Model):
    """How many workers run. Without this block: as many as there are shards in force."""

    mode: Literal["auto", "external"] = Field(
        "auto",
        description="auto: the operator sets the replicas between min and max by the load. external: it leaves them "
        "alone, for an HPA or KEDA of your own.",
    )
    min: Count = Field(0, ge=0, le=1000, description="The fewest workers, kept also when nothing waits.")
    max: Count = Field(
        10, ge=1, le=1000, description="The most workers. More than there are lanes are never started."
    )
    backlog_per_worker: Count = Field(
        1000, ge=1, le=100_000_000, description="Waiting messages for which one worker is reckoned."
    )
    lag: Annotated[Duration, between("1s", "1d")] = Field(
        Duration("30s"), description="Workers are added while the oldest message waits longer than this."
    )


class PodTemplate(Model):
    """A strategic-merge patch of the pod template."""

    metadata: dict[str, Any] | None = Field(
        None,
        max_length=8,
        description="Labels and annotations to add to the pods.",
        json_schema_extra=_PASSED_ON,
    )
    spec: dict[str, Any] | None = Field(
        None,
        max_length=64,
        description="A strategic-merge patch of the pod's spec: resources, env, volumes, nodeSelector, tolerations, "
        "further containers. The container that handles messages is named `worker` (with http: `handler`). At most "
        "16 KiB of JSON, and 200 items per list.",
        json_schema_extra=POD_SPEC,
    )


class Consumer(Model):
    """One Deployment of workers; with engine extent, one consumer group."""

    name: PartName = Field(
        description="Its name within the queue. It names the Deployment, and with engine extent the consumer group."
    )
    image: Image | None = Field(
        None,
        description="The image that carries the handler; a Python handler needs the package headgate in it. Unset, "
        "for a Python handler only: the operator's own image, which carries nothing but headgate.",
    )
    handler: EntryPoint | None = Field(
        None,
        description="The Python function that is called with each message, as module:function. Either this or "
        "`http`.",
    )
    http: HttpHandler | None = Field(
        None, description="An HTTP handler in any language, in the image unchanged. Either this or `handler`."
    )
    concurrency: Count = Field(16, ge=1, le=10_000, description="Messages that one worker handles at the same time.")
    scaling: Scaling | None = Field(
        None, description="How many workers run. Unset: as many as there are shards in force."
    )
    start_from: StartFrom | None = Field(
        None,
        description="Where a new consumer group begins: earliest (what is still kept), latest, or a moment such as "
        "2026-11-18T09:00:00Z. Unset: earliest. Only with engine extent; a group that exists keeps its place.",
    )
    max_receives: Count | None = Field(
        None, ge=1, le=1000, description="This consumer's own maxReceives. Unset: the queue's."
    )
    visibility_timeout: Annotated[Duration, between("1s", "7d")] | None = Field(
        None, description="This consumer's own visibilityTimeout. Unset: the queue's."
    )
    dead_letter: QueueName | None = Field(
        None,
        description="This consumer's own dead letter queue: another Queue of this namespace. Unset: the queue's.",
    )
    rate: Rate | None = Field(
        None,
        description="The most messages that all workers of this consumer take together, such as 50/s or 600/m. "
        "Unset: no limit.",
    )
    template: PodTemplate | None = Field(
        None, description="A strategic-merge patch of the pod template: resources, env, volumes, node selection."
    )
