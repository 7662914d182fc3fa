"""The status of resources: conditions as kstatus reads them, and the figures that `kubectl get` shows.

A condition's reason is one of `Reason`, each with its sentence in the docs. The CRD bounds only its form, since an
operator that is newer than the CRD must be able to report. So this list is closed, and the CRD's is not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic.config import JsonDict

from headgate.api.resources.model import Count, Model
from headgate.api.values.units import Duration

QUEUE_CONDITIONS = (
    "Ready",
    "Reconciling",
    "Stalled",
    "TablesReady",
    "LanesHealthy",
    "ConsumersReady",
    "RepairHealthy",
    "BulkReady",
    "DeadLetterResolved",
)
COUNTER_CONDITIONS = ("Ready", "Reconciling", "Stalled", "TablesReady", "CollectionHealthy")

CONDITION_MEANINGS = {
    "Ready": "The resource is as its spec declares. kstatus, Argo CD and Flux read this condition.",
    "Reconciling": "The operator is applying a change. Present only while it does.",
    "Stalled": "The resource does not become Ready before a person changes something.",
    "TablesReady": "Its tables exist and have the expected schema.",
    "LanesHealthy": "Every lane with messages has an owner that makes progress.",
    "ConsumersReady": "The Deployments of its consumers have the required number of ready workers.",
    "RepairHealthy": "Repair keeps up. False before its delay can lose anything.",
    "BulkReady": "Its bulk jobs can run, and their last runs succeeded.",
    "DeadLetterResolved": "Every dead-letter queue that it names exists, and none leads back to it.",
    "CollectionHealthy": "The collector has passed over all keys in time.",
}


class Reason(StrEnum):
    """The reasons of conditions, as a closed list."""

    RECONCILED = "Reconciled"
    RECONCILING = "Reconciling"
    PROGRESSING = "Progressing"
    DELETING = "Deleting"
    PAUSED = "Paused"
    SPEC_INVALID = "SpecInvalid"
    ENGINE_UNAVAILABLE = "EngineUnavailable"
    NAME_TAKEN = "NameTaken"
    CASSANDRA_UNAVAILABLE = "CassandraUnavailable"
    CONNECTION_MISSING = "ConnectionMissing"
    WRONG_DATA_CENTER = "WrongDataCenter"
    CLOCK_OUT_OF_BOUNDS = "ClockOutOfBounds"
    TABLES_PRESENT = "TablesPresent"
    TABLES_MISSING = "TablesMissing"
    TABLES_DRIFTED = "TablesDrifted"
    TOO_MANY_TABLES = "TooManyTables"
    LANES_SERVED = "LanesServed"
    LANES_UNPROCESSED = "LanesUnprocessed"
    LANE_OWNER_STALLED = "LaneOwnerStalled"
    LANE_HELD = "LaneHeld"
    NO_CONSUMERS = "NoConsumers"
    CONSUMERS_RUNNING = "ConsumersRunning"
    CONSUMERS_STARTING = "ConsumersStarting"
    CONSUMERS_FAILING = "ConsumersFailing"
    REPAIR_CURRENT = "RepairCurrent"
    REPAIR_PENDING = "RepairPending"
    REPAIR_OVERDUE = "RepairOverdue"
    REPAIR_FAILING = "RepairFailing"
    NO_BULK = "NoBulk"
    BULK_IDLE = "BulkIdle"
    BULK_RUNNING = "BulkRunning"
    BULK_FAILING = "BulkFailing"
    SPARK_OPERATOR_MISSING = "SparkOperatorMissing"
    NO_DEAD_LETTER = "NoDeadLetter"
    DEAD_LETTER_RESOLVED = "DeadLetterFound"
    DEAD_LETTER_MISSING = "DeadLetterMissing"
    DEAD_LETTER_CYCLE = "DeadLetterCycle"
    COLLECTION_CURRENT = "CollectionCurrent"
    COLLECTION_PENDING = "CollectionPending"
    COLLECTION_OVERDUE = "CollectionOverdue"
    COLLECTION_FAILING = "CollectionFailing"
    GC_AFTER_TOO_SHORT = "GcAfterTooShort"
    RIGHTS_MISSING = "RightsMissing"
    APPLY_REFUSED = "ApplyRefused"
    HANDLER_REFUSED = "HandlerRefused"


REASON_MEANINGS: dict[Reason, str] = {
    Reason.RECONCILED: "The resource is as its spec declares.",
    Reason.RECONCILING: "The operator is applying a change.",
    Reason.PROGRESSING: "A requested object is not ready yet. Nothing is wrong.",
    Reason.DELETING: "The resource is being deleted.",
    Reason.PAUSED: "`spec.paused` is true, and the operator changes nothing until it is false.",
    Reason.SPEC_INVALID: "The spec is not valid. The message names the field and the rule.",
    Reason.ENGINE_UNAVAILABLE: "This version of the operator does not support the engine and creates nothing.",
    Reason.NAME_TAKEN: "An older resource has this name or these tables.",
    Reason.CASSANDRA_UNAVAILABLE: "Cassandra does not answer, or too few of its replicas do.",
    Reason.CONNECTION_MISSING: "The Secret with the connection to Cassandra is missing or lacks a key.",
    Reason.WRONG_DATA_CENTER: "The connection leads to a data centre that is not the resource's home.",
    Reason.CLOCK_OUT_OF_BOUNDS: "A clock differs by more than maxClockSkew. Fix the clock, or raise the bound.",
    Reason.TABLES_PRESENT: "The tables exist and have the expected schema.",
    Reason.TABLES_MISSING: "A table does not exist (yet).",
    Reason.TABLES_DRIFTED: "The schema of a table differs in a way that is not safe to fix.",
    Reason.TOO_MANY_TABLES: "The cluster has too many tables for another dedicated set. Use `tables: shared`.",
    Reason.LANES_SERVED: "Every lane with messages has an owner that makes progress.",
    Reason.LANES_UNPROCESSED: "A lane has due messages and no owner.",
    Reason.LANE_OWNER_STALLED: "The owner of a lane makes no progress and was stopped.",
    Reason.LANE_HELD: "A lane is held, since too many of its messages are settled out of order.",
    Reason.NO_CONSUMERS: "The queue has no consumers. The gateway or the SDK drains it.",
    Reason.CONSUMERS_RUNNING: "The required number of workers is ready.",
    Reason.CONSUMERS_STARTING: "Workers are starting.",
    Reason.CONSUMERS_FAILING: "Workers do not become ready, or crash. The message names the consumer.",
    Reason.REPAIR_CURRENT: "Repair has made all checks that are due.",
    Reason.REPAIR_PENDING: "Repair has not run yet.",
    Reason.REPAIR_OVERDUE: "A check is overdue for too long. Repair does not run, or cannot reach all replicas.",
    Reason.REPAIR_FAILING: "The last runs of repair failed.",
    Reason.NO_BULK: "The queue has no bulk jobs.",
    Reason.BULK_IDLE: "No bulk job runs, and the last ones succeeded.",
    Reason.BULK_RUNNING: "A bulk job is running.",
    Reason.BULK_FAILING: "The last run of a bulk job failed. The message names it.",
    Reason.SPARK_OPERATOR_MISSING: "The Spark operator's SparkApplication resource is not installed.",
    Reason.NO_DEAD_LETTER: "The queue names no dead-letter queue.",
    Reason.DEAD_LETTER_RESOLVED: "The dead-letter queue exists.",
    Reason.DEAD_LETTER_MISSING: "The dead-letter queue does not exist yet. Failed messages stay in this queue.",
    Reason.DEAD_LETTER_CYCLE: "The dead-letter queues lead back to this queue.",
    Reason.COLLECTION_CURRENT: "The collector has passed over all keys in time.",
    Reason.COLLECTION_PENDING: "The collector has not run yet.",
    Reason.COLLECTION_OVERDUE: "A full pass of the collector is overdue for too long.",
    Reason.COLLECTION_FAILING: "The last runs of the collector failed.",
    Reason.GC_AFTER_TOO_SHORT: "gc.after is not longer than Cassandra's hint window plus maxClockSkew.",
    Reason.RIGHTS_MISSING: "The connection's role lacks the right to create tables. The message has the CQL.",
    Reason.APPLY_REFUSED: "The API server refuses a child: a quota, an admission webhook, or a bad template.",
    Reason.HANDLER_REFUSED: "A worker refuses its handler: an import fails, or headgate is missing or too old.",
}

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
