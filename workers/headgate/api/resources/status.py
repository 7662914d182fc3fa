"""The status of resources: conditions as kstatus reads them, and the figures that `kubectl get` shows."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic.config import JsonDict

from headgate.api.resources.model import Count, Model
from headgate.api.values.units import Duration

Amount = Annotated[Count, Field(ge=0)]
Word = Annotated[str, StringConstraints(max_length=253)]
Sentence = Annotated[str, StringConstraints(max_length=32_768)]
Time = Annotated[str, StringConstraints(max_length=64), Field(json_schema_extra={"format": "date-time"})]

_BY_TYPE: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
_BY_NAME: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class Condition(Model):
    """One condition of a resource (a metav1.Condition)."""

    type: Annotated[str, StringConstraints(max_length=316)] = Field(
        description="The type of the condition, such as Ready."
    )
    status: Literal["True", "False", "Unknown"] = Field(description="True, False, or Unknown if not yet observed.")
    observed_generation: Amount | None = Field(
        None, description="The generation of the spec that this was observed for."
    )
    last_transition_time: Time = Field(description="When `status` last changed.")
    reason: Annotated[
        str, StringConstraints(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ] = Field(description="The cause, as one word of a closed list that the reference explains.")
    message: Sentence = Field(description="The cause, in a sentence for people.")


class Lanes(Model):
    """The lanes of the queue."""

    total: Amount | None = Field(None, description="Lanes, those of older generations included.")
    leased: Amount | None = Field(None, description="Lanes that have an owner.")
    stalled: Amount | None = Field(None, description="Lanes with due messages that make no progress.")


class Extents(Model):
    """The extents of the queue."""

    open: Amount | None = Field(None, description="Extents that take messages.")
    sealed: Amount | None = Field(None, description="Extents that are closed and still kept.")


class ConsumerStatus(Model):
    """One consumer's Deployment."""

    name: Word = Field(description="The consumer's name within the queue.")
    replicas: Amount | None = Field(None, description="Workers that should run.")
    ready: Amount | None = Field(None, description="Workers that are ready.")


class RepairStatus(Model):
    """Repair, after its last run."""

    last_run: Time | None = Field(None, description="When repair last ended.")
    last_result: Word | None = Field(None, description="Succeeded or Failed.")
    oldest_owed: Time | None = Field(None, description="The due time of the oldest overdue check.")


class BulkStatus(Model):
    """One bulk job, after its last run."""

    state: Word | None = Field(None, description="Idle, Running, Succeeded or Failed.")
    application: Word | None = Field(None, description="The SparkApplication of the last run.")
    started: Time | None = Field(None, description="When the last run started.")
    finished: Time | None = Field(None, description="When the last run ended.")
    done: Amount | None = Field(None, description="Messages that the last run settled or wrote.")
    failed: Amount | None = Field(None, description="Messages that the last run returned or dead-lettered.")
    message: Sentence | None = Field(None, description="The last message of the last run.")


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=16, json_schema_extra=_BY_TYPE, description="The conditions of the resource."),
]


class QueueStatus(Model):
    """The observed state of a queue."""

    observed_generation: Amount | None = Field(None, description="The generation of the spec that was last acted on.")
    conditions: Conditions | None = None
    replicas: Amount | None = Field(
        None, description="The number of shards in force. `spec.shards` may be ahead of it."
    )
    selector: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        None, description="The label selector of the queue's workers, for the scale subresource."
    )
    backlog: Amount | None = Field(None, description="Messages that are due and not yet received.")
    in_flight: Amount | None = Field(None, description="Messages received and not yet settled.")
    oldest_age: Duration | None = Field(None, description="Age of the oldest due message that is not yet received.")
    rate: Amount | None = Field(None, description="Messages settled per second.")
    lanes: Lanes | None = Field(None, description="The lanes of the queue.")
    extents: Extents | None = Field(None, description="The extents of the queue (engine extent).")
    consumers: tuple[ConsumerStatus, ...] | None = Field(
        None, max_length=32, description="The Deployments of its consumers.", json_schema_extra=_BY_NAME
    )
    repair: RepairStatus | None = Field(None, description="The repair job, after its last run.")
    bulk: dict[Annotated[str, StringConstraints(max_length=40)], BulkStatus] | None = Field(
        None, max_length=32, description="The bulk jobs by name."
    )


class CounterStatus(Model):
    """The observed state of a counter."""

    observed_generation: Amount | None = Field(None, description="The generation of the spec that was last acted on.")
    conditions: Conditions | None = None
    keys: Amount | None = Field(None, description="Keys, as the last collection counted them.")
    shards: Amount | None = Field(None, description="Shards of all keys, as the last collection counted them.")
    expired_shards: Amount | None = Field(None, description="Shards whose mutator has ended and that are not folded.")
    last_collection: Time | None = Field(None, description="When the collector last passed over all keys.")
