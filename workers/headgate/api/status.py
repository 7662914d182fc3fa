"""What the operator reports: conditions as kstatus reads them, and the figures that `kubectl get` shows.

A condition's reason is one of `Reason`, each with the sentence that the docs give. The CRD bounds only its form: an
operator that is newer than the CRD must be able to report, so the list is closed here and not there.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, StringConstraints
from pydantic.config import JsonDict

from headgate.api.durations import Duration
from headgate.api.model import Count, Model

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
    "Ready": "It does what its spec says. kstatus, Argo CD and Flux look at this one.",
    "Reconciling": "The operator is at work on it; present while it is.",
    "Stalled": "It will not become Ready until a person changes something.",
    "TablesReady": "Its tables are there and are as they should be.",
    "LanesHealthy": "Every lane with work is served by an owner that gets on.",
    "ConsumersReady": "The Deployments of its consumers run as many ready workers as they should.",
    "RepairHealthy": "Repair has kept up; false before anything is lost by its delay.",
    "BulkReady": "Its bulk jobs can run, and their last runs succeeded.",
    "DeadLetterResolved": "Every dead letter queue it names is there, and none leads back to it.",
    "CollectionHealthy": "The collector has passed over all keys in time.",
}


class Reason(StrEnum):
    """Why a condition is as it is. The list is closed: what is not here can not be reported."""

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
    DEAD_LETTER_FOUND = "DeadLetterFound"
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
    Reason.RECONCILED: "All is as the spec says.",
    Reason.RECONCILING: "A change is being carried out.",
    Reason.PROGRESSING: "Something that was asked for is not there yet; nothing is wrong.",
    Reason.DELETING: "It is being deleted.",
    Reason.PAUSED: "spec.paused is true; nothing is changed until it is false.",
    Reason.SPEC_INVALID: "The spec can not be carried out; the message says which field and why.",
    Reason.ENGINE_UNAVAILABLE: "This version of the operator does not carry the engine; nothing is made for it.",
    Reason.NAME_TAKEN: "Another, older resource has this name or these tables; rename this one or delete the other.",
    Reason.CASSANDRA_UNAVAILABLE: "Cassandra does not answer, or not enough replicas of it do.",
    Reason.CONNECTION_MISSING: "The Secret with the connection to Cassandra is missing or lacks a key.",
    Reason.WRONG_DATA_CENTER: "The connection leads to another data centre than the resource's home.",
    Reason.CLOCK_OUT_OF_BOUNDS: "A clock differs by more than maxClockSkew; mend the clock, or raise the bound.",
    Reason.TABLES_PRESENT: "The tables are there and are as they should be.",
    Reason.TABLES_MISSING: "A table is not there (yet).",
    Reason.TABLES_DRIFTED: "A table differs from what it should be, in a way that is not safe to mend.",
    Reason.TOO_MANY_TABLES: "The cluster holds too many tables for another dedicated set; use `tables: shared`.",
    Reason.LANES_SERVED: "Every lane with work has an owner that gets on.",
    Reason.LANES_UNPROCESSED: "A lane has work due and no owner.",
    Reason.LANE_OWNER_STALLED: "A lane has an owner that does not get on; it was told to stop.",
    Reason.LANE_HELD: "A lane hands out nothing new, since too many of its messages are settled out of order.",
    Reason.NO_CONSUMERS: "It has no consumers; it is drained through the gateway or the SDK.",
    Reason.CONSUMERS_RUNNING: "As many workers are ready as there should be.",
    Reason.CONSUMERS_STARTING: "Workers are being started.",
    Reason.CONSUMERS_FAILING: "Workers do not become ready, or crash; the message names the consumer.",
    Reason.REPAIR_CURRENT: "Repair has looked at all that it should have.",
    Reason.REPAIR_PENDING: "Repair has not run yet.",
    Reason.REPAIR_OVERDUE: "A look is owed for too long; repair does not run, or can not reach all replicas.",
    Reason.REPAIR_FAILING: "The last runs of repair failed.",
    Reason.NO_BULK: "It has no bulk jobs.",
    Reason.BULK_IDLE: "No bulk job runs, and the last ones succeeded.",
    Reason.BULK_RUNNING: "A bulk job runs.",
    Reason.BULK_FAILING: "The last run of a bulk job failed; the message names it.",
    Reason.SPARK_OPERATOR_MISSING: "The Spark operator's SparkApplication resource is not installed.",
    Reason.NO_DEAD_LETTER: "It names no dead letter queue.",
    Reason.DEAD_LETTER_FOUND: "The dead letter queue is there.",
    Reason.DEAD_LETTER_MISSING: "The dead letter queue is not there; until it is, its messages stay in this one.",
    Reason.DEAD_LETTER_CYCLE: "The dead letter queues lead back to this queue.",
    Reason.COLLECTION_CURRENT: "The collector has passed over all keys in time.",
    Reason.COLLECTION_PENDING: "The collector has not run yet.",
    Reason.COLLECTION_OVERDUE: "A full pass of the collector is owed for too long.",
    Reason.COLLECTION_FAILING: "The last runs of the collector failed.",
    Reason.GC_AFTER_TOO_SHORT: "gc.after is not longer than Cassandra's hint window plus maxClockSkew.",
    Reason.RIGHTS_MISSING: "The connection's role may not create what is needed; the message has the CQL.",
    Reason.APPLY_REFUSED: "The API server refuses a child: a quota, an admission webhook, or a bad template.",
    Reason.HANDLER_REFUSED: "A worker refuses its handler: an import fails, or headgate is missing or too far away.",
}

Amount = Annotated[Count, Field(ge=0)]
Word = Annotated[str, StringConstraints(max_length=253)]
Sentence = Annotated[str, StringConstraints(max_length=32_768)]
Time = Annotated[str, StringConstraints(max_length=64), Field(json_schema_extra={"format": "date-time"})]

_BY_TYPE: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
_BY_NAME: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class Condition(Model):
    """One thing that is so, or not, and since when (a metav1.Condition)."""

    type: Annotated[str, StringConstraints(max_length=316)] = Field(description="What is spoken of, such as Ready.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False, or Unknown: nobody could look yet.")
    observed_generation: Amount | None = Field(None, description="The generation of the spec this was found for.")
    last_transition_time: Time = Field(description="When `status` last changed.")
    reason: Annotated[
        str, StringConstraints(min_length=1, max_length=1024, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ] = Field(description="Why, in one word of a closed list; the reference explains each.")
    message: Sentence = Field(description="Why, in a sentence for the person who reads it.")


class Lanes(Model):
    """The lanes of the queue."""

    total: Amount | None = Field(None, description="Lanes, those of older generations included.")
    leased: Amount | None = Field(None, description="Lanes that have an owner.")
    stalled: Amount | None = Field(None, description="Lanes with work due that do not get on.")


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
    """Repair, as its last run left it."""

    last_run: Time | None = Field(None, description="When repair last ended.")
    last_result: Word | None = Field(None, description="Succeeded or Failed.")
    oldest_owed: Time | None = Field(None, description="The moment of the oldest look that is still owed.")


class BulkStatus(Model):
    """One bulk job, as its last run left it."""

    state: Word | None = Field(None, description="Idle, Running, Succeeded or Failed.")
    application: Word | None = Field(None, description="The SparkApplication of the last run.")
    started: Time | None = Field(None, description="When the last run started.")
    finished: Time | None = Field(None, description="When the last run ended.")
    done: Amount | None = Field(None, description="Messages that the last run settled or wrote.")
    failed: Amount | None = Field(None, description="Messages that the last run returned or dead-lettered.")
    message: Sentence | None = Field(None, description="What the last run had to say.")


Conditions = Annotated[
    tuple[Condition, ...],
    Field(max_length=16, json_schema_extra=_BY_TYPE, description="What is so, what is not, and why."),
]


class QueueStatus(Model):
    """What the operator has found of a queue."""

    observed_generation: Amount | None = Field(None, description="The generation of the spec that was last acted on.")
    conditions: Conditions | None = None
    replicas: Amount | None = Field(None, description="The shards in force; `spec.shards` may be ahead of it.")
    selector: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        None, description="The label selector of the queue's workers, for the scale subresource."
    )
    backlog: Amount | None = Field(None, description="Messages that are due and not yet received.")
    in_flight: Amount | None = Field(None, description="Messages received and not yet settled.")
    oldest_age: Duration | None = Field(None, description="How long the oldest message that is due has waited.")
    rate: Amount | None = Field(None, description="Messages settled a second.")
    lanes: Lanes | None = Field(None, description="The lanes of the queue.")
    extents: Extents | None = Field(None, description="The extents of the queue (engine extent).")
    consumers: tuple[ConsumerStatus, ...] | None = Field(
        None, max_length=32, description="The Deployments of its consumers.", json_schema_extra=_BY_NAME
    )
    repair: RepairStatus | None = Field(None, description="The repair job, as its last run left it.")
    bulk: dict[Annotated[str, StringConstraints(max_length=40)], BulkStatus] | None = Field(
        None, max_length=32, description="The bulk jobs by name."
    )


class CounterStatus(Model):
    """What the operator has found of a counter."""

    observed_generation: Amount | None = Field(None, description="The generation of the spec that was last acted on.")
    conditions: Conditions | None = None
    keys: Amount | None = Field(None, description="Keys, as the last collection counted them.")
    shards: Amount | None = Field(None, description="Shards of all keys, as the last collection counted them.")
    expired_shards: Amount | None = Field(None, description="Shards whose mutator has ended and that are not folded.")
    last_collection: Time | None = Field(None, description="When the collector last passed over all keys.")
