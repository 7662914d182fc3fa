"""The conditions of a resource and their reasons: the one list of both, for the operator and for docs/reference.md.

The list is closed, and each reason has its sentences. The CRD bounds only a reason's form, since an operator that is
newer than the CRD must be able to report.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

CONDITION_MEANINGS: Final = {
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
COUNTER_CONDITIONS: Final = ("Ready", "Reconciling", "Stalled", "TablesReady", "CollectionHealthy")
QUEUE_CONDITIONS: Final = tuple(name for name in CONDITION_MEANINGS if name != "CollectionHealthy")
IN_READY: Final = ("TablesReady", "ConsumersReady", "DeadLetterResolved", "LanesHealthy")
"""Conditions that Ready requires, in the order in which Ready reports them."""


class Reason(StrEnum):
    """The reasons of conditions: each with its meaning, and with a remedy where one is needed."""

    _value_: str
    meaning: str
    remedy: str

    def __new__(cls, value: str, meaning: str = "", remedy: str = "") -> Reason:
        reason = str.__new__(cls, value)
        reason._value_, reason.meaning, reason.remedy = value, meaning, remedy
        return reason

    # fmt: off
    RECONCILED = "Reconciled", "The resource is as its spec declares."
    RECONCILING = "Reconciling", "The operator is applying a change.", "Wait. The message names the change."
    PROGRESSING = ("Progressing", "A requested object is not ready yet. Nothing is wrong.",
        "Wait. The message names the object.")
    DELETING = ("Deleting", "The resource is being deleted.",
        "Wait. If Cassandra is unavailable, fix it, or set `deletionPolicy: Retain`.")
    PAUSED = ("Paused", "`spec.paused` is true, and the operator changes nothing until it is false.",
        "Set `spec.paused: false` (`kubectl headgate resume`).")
    SPEC_INVALID = ("SpecInvalid", "The spec is not valid. The message names the field and the rule.",
        "Fix the field that the message names.")
    ENGINE_UNAVAILABLE = ("EngineUnavailable",
        "This version of the operator does not support the engine and creates nothing.",
        "Upgrade the operator, or choose another engine.")
    NAME_TAKEN = ("NameTaken", "An older resource has this name or these tables.",
        "Rename this resource, delete the other, or adopt its data by the annotation in the message.")
    CASSANDRA_UNAVAILABLE = ("CassandraUnavailable", "Cassandra does not answer, or too few of its replicas do.",
        "Fix Cassandra. The operator then continues by itself.")
    CONNECTION_MISSING = ("ConnectionMissing",
        "The Secret with the connection to Cassandra is missing or lacks a key.",
        "Create the Secret, or add the key that the message names.")
    WRONG_DATA_CENTER = ("WrongDataCenter", "The connection leads to a data centre that is not the resource's home.",
        "Name a connectionSecret that leads to the home data centre.")
    CLOCK_OUT_OF_BOUNDS = ("ClockOutOfBounds",
        "A clock differs by more than maxClockSkew. Fix the clock, or raise the bound.",
        "Fix the clock of the node that the message names, or raise maxClockSkew.")
    TABLES_PRESENT = "TablesPresent", "The tables exist and have the expected schema."
    TABLES_MISSING = ("TablesMissing", "A table does not exist (yet).",
        "Wait. If it stays, a table was dropped by hand: restore a backup.")
    TABLES_DRIFTED = ("TablesDrifted", "The schema of a table differs in a way that is not safe to fix.",
        "Run the CQL of the message, or restore what it names.")
    TOO_MANY_TABLES = ("TooManyTables",
        "The cluster has too many tables for another dedicated set. Use `tables: shared`.",
        "Recreate the resource with `storage.tables: shared`.")
    LANES_SERVED = "LanesServed", "Every lane with messages has an owner that makes progress."
    LANES_UNPROCESSED = ("LanesUnprocessed", "A lane has due messages and no owner.",
        "Check the workers, if the extra worker that was started does not help.")
    LANE_OWNER_STALLED = ("LaneOwnerStalled", "The owner of a lane makes no progress and was stopped.",
        "Find the handler that blocks the worker's event loop, in the worker's log.")
    LANE_HELD = ("LaneHeld", "A lane is held, since too many of its messages are settled out of order.",
        "Settle or cancel the message that holds the lane.")
    ROWS_UNREADABLE = ("RowsUnreadable", "Stored rows cannot be read. They are kept, and not delivered.",
        "Upgrade the workers, or restore the rows. The runbook HeadgateLanesUnhealthy names the commands.")
    NO_CONSUMERS = "NoConsumers", "The queue has no consumers. The gateway or the SDK drains it."
    CONSUMERS_RUNNING = "ConsumersRunning", "The required number of workers is ready."
    CONSUMERS_STARTING = "ConsumersStarting", "Workers are starting.", "Wait."
    CONSUMERS_FAILING = ("ConsumersFailing", "Workers do not become ready, or crash. The message names the consumer.",
        "Check `kubectl logs`. The message has the worker's last log line.")
    REPAIR_CURRENT = "RepairCurrent", "Repair has made all checks that are due."
    REPAIR_PENDING = "RepairPending", "Repair has not run yet.", "Wait for the next run."
    REPAIR_OVERDUE = ("RepairOverdue",
        "A check is overdue for too long. Repair does not run, or cannot reach all replicas.",
        "Check the repair CronJob of the namespace, and bring replicas of Cassandra back.")
    REPAIR_FAILING = "RepairFailing", "The last runs of repair failed.", "Check the log of the last job."
    NO_BULK = "NoBulk", "The queue has no bulk jobs."
    BULK_IDLE = "BulkIdle", "No bulk job runs, and the last ones succeeded."
    BULK_RUNNING = "BulkRunning", "A bulk job is running."
    BULK_FAILING = ("BulkFailing", "The last run of a bulk job failed. The message names it.",
        "Check the message and the SparkApplication that it names.")
    SPARK_OPERATOR_MISSING = ("SparkOperatorMissing",
        "The Spark operator's SparkApplication resource is not installed.",
        "Install the Spark operator, or remove `bulk`.")
    NO_DEAD_LETTER = "NoDeadLetter", "The queue names no dead-letter queue."
    DEAD_LETTER_RESOLVED = "DeadLetterFound", "The dead-letter queue exists."
    DEAD_LETTER_MISSING = ("DeadLetterMissing",
        "The dead-letter queue does not exist yet. Failed messages stay in this queue.",
        "Apply the queue that the message names. The order does not matter.")
    DEAD_LETTER_CYCLE = ("DeadLetterCycle", "The dead-letter queues lead back to this queue.",
        "Break the cycle that the message shows.")
    COLLECTION_CURRENT = "CollectionCurrent", "The collector has passed over all keys in time."
    COLLECTION_PENDING = "CollectionPending", "The collector has not run yet.", "Wait for the next run."
    COLLECTION_OVERDUE = ("CollectionOverdue", "A full pass of the collector is overdue for too long.",
        "Check the gc CronJob of the namespace, and bring replicas of Cassandra back.")
    COLLECTION_FAILING = ("CollectionFailing", "The last runs of the collector failed.",
        "Check the log of the last job.")
    GC_AFTER_TOO_SHORT = ("GcAfterTooShort", "gc.after is not longer than Cassandra's hint window plus maxClockSkew.",
        "Raise `gc.after`.")
    RIGHTS_MISSING = ("RightsMissing",
        "The connection's role lacks the right to create tables. The message has the CQL.",
        "Let an administrator run the CQL of the message (`headgate apply --dry-run`).")
    APPLY_REFUSED = ("ApplyRefused",
        "The API server refuses a child: a quota, an admission webhook, or a bad template.",
        "Fix the quota, the webhook or the template that the server's answer names.")
    HANDLER_REFUSED = ("HandlerRefused",
        "A worker refuses its handler: an import fails, or headgate is missing or too old.",
        "Fix the image or the handler. The message has the worker's error.")
    # fmt: on


STALLING: Final = frozenset({
    Reason.SPEC_INVALID, Reason.ENGINE_UNAVAILABLE, Reason.NAME_TAKEN, Reason.WRONG_DATA_CENTER,
    Reason.TABLES_DRIFTED, Reason.TOO_MANY_TABLES, Reason.DEAD_LETTER_CYCLE, Reason.RIGHTS_MISSING,
    Reason.HANDLER_REFUSED,
})  # fmt: skip
"""Reasons that last until a person changes something."""
AWAITED: Final = frozenset({
    Reason.RECONCILING, Reason.PROGRESSING, Reason.DELETING, Reason.TABLES_MISSING, Reason.CONSUMERS_STARTING,
    Reason.DEAD_LETTER_MISSING,
})  # fmt: skip
"""Reasons that pass by themselves."""

_STORE: Final = (
    Reason.TABLES_PRESENT, Reason.TABLES_MISSING, Reason.TABLES_DRIFTED, Reason.TOO_MANY_TABLES,
    Reason.RIGHTS_MISSING, Reason.CONNECTION_MISSING, Reason.WRONG_DATA_CENTER, Reason.CASSANDRA_UNAVAILABLE,
    Reason.CLOCK_OUT_OF_BOUNDS, Reason.PROGRESSING,
)  # fmt: skip
_CONSUMERS: Final = (
    Reason.NO_CONSUMERS, Reason.CONSUMERS_RUNNING, Reason.CONSUMERS_STARTING, Reason.CONSUMERS_FAILING,
    Reason.HANDLER_REFUSED, Reason.APPLY_REFUSED, Reason.NAME_TAKEN, Reason.PROGRESSING,
)  # fmt: skip
_LANES: Final = (
    Reason.LANES_SERVED, Reason.LANES_UNPROCESSED, Reason.LANE_OWNER_STALLED, Reason.LANE_HELD,
    Reason.ROWS_UNREADABLE, Reason.PROGRESSING,
)  # fmt: skip
_DEAD_LETTER: Final = (
    Reason.NO_DEAD_LETTER, Reason.DEAD_LETTER_RESOLVED, Reason.DEAD_LETTER_MISSING, Reason.DEAD_LETTER_CYCLE,
    Reason.PROGRESSING,
)  # fmt: skip
_READY: Final = tuple(dict.fromkeys((
    Reason.RECONCILED, Reason.RECONCILING, Reason.PROGRESSING, Reason.DELETING, Reason.PAUSED, Reason.SPEC_INVALID,
    Reason.ENGINE_UNAVAILABLE, Reason.NAME_TAKEN, *_STORE[1:], *_CONSUMERS[2:], *_LANES[1:], *_DEAD_LETTER[2:],
)))  # fmt: skip
REASONS_OF: Final[dict[str, tuple[Reason, ...]]] = {
    "Ready": _READY,
    "Reconciling": tuple(reason for reason in _READY if reason in AWAITED),
    "Stalled": tuple(reason for reason in _READY if reason in STALLING),
    "TablesReady": _STORE,
    "LanesHealthy": _LANES,
    "ConsumersReady": _CONSUMERS,
    "RepairHealthy": (
        Reason.REPAIR_CURRENT, Reason.REPAIR_PENDING, Reason.REPAIR_OVERDUE, Reason.REPAIR_FAILING,
    ),
    "BulkReady": (
        Reason.NO_BULK, Reason.BULK_IDLE, Reason.BULK_RUNNING, Reason.BULK_FAILING,
        Reason.SPARK_OPERATOR_MISSING, Reason.APPLY_REFUSED, Reason.NAME_TAKEN, Reason.PROGRESSING,
    ),
    "DeadLetterResolved": _DEAD_LETTER,
    "CollectionHealthy": (
        Reason.COLLECTION_CURRENT, Reason.COLLECTION_PENDING, Reason.COLLECTION_OVERDUE,
        Reason.COLLECTION_FAILING, Reason.GC_AFTER_TOO_SHORT,
    ),
}  # fmt: skip
"""The reasons that each condition may have."""
