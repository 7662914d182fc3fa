"""Remedies of reasons, the conditions that may have them, and whether the operator waits for them.

`resources/status.py` has the reasons and their meanings. Both modules make the page docs/reference.md.
"""

from __future__ import annotations

from typing import Final

from headgate.api.resources.status import Reason

NOTHING_TO_DO: Final = "Nothing."
REMEDIES: Final[dict[Reason, str]] = {
    Reason.RECONCILING: "Wait. The message names the change.",
    Reason.PROGRESSING: "Wait. The message names the object.",
    Reason.DELETING: "Wait. If Cassandra is unavailable, fix it, or set `deletionPolicy: Retain`.",
    Reason.PAUSED: "Set `spec.paused: false` (`kubectl headgate resume`).",
    Reason.SPEC_INVALID: "Fix the field that the message names.",
    Reason.ENGINE_UNAVAILABLE: "Upgrade the operator, or choose another engine.",
    Reason.NAME_TAKEN: "Rename this resource, delete the other, or adopt its data by the annotation in the message.",
    Reason.CASSANDRA_UNAVAILABLE: "Fix Cassandra. The operator then continues by itself.",
    Reason.CONNECTION_MISSING: "Create the Secret, or add the key that the message names.",
    Reason.WRONG_DATA_CENTER: "Name a connectionSecret that leads to the home data centre.",
    Reason.CLOCK_OUT_OF_BOUNDS: "Fix the clock of the node that the message names, or raise maxClockSkew.",
    Reason.TABLES_MISSING: "Wait. If it stays, a table was dropped by hand: restore a backup.",
    Reason.TABLES_DRIFTED: "Run the CQL of the message, or restore what it names.",
    Reason.TOO_MANY_TABLES: "Recreate the resource with `storage.tables: shared`.",
    Reason.RIGHTS_MISSING: "Let an administrator run the CQL of the message (`headgate apply --dry-run`).",
    Reason.LANES_UNPROCESSED: "Check the workers, if the extra worker that was started does not help.",
    Reason.LANE_OWNER_STALLED: "Find the handler that blocks the worker's event loop, in the worker's log.",
    Reason.LANE_HELD: "Settle or cancel the message that holds the lane.",
    Reason.CONSUMERS_STARTING: "Wait.",
    Reason.CONSUMERS_FAILING: "Check `kubectl logs`. The message has the worker's last log line.",
    Reason.HANDLER_REFUSED: "Fix the image or the handler. The message has the worker's error.",
    Reason.APPLY_REFUSED: "Fix the quota, the webhook or the template that the server's answer names.",
    Reason.REPAIR_PENDING: "Wait for the next run.",
    Reason.REPAIR_OVERDUE: "Check the repair CronJob of the namespace, and bring replicas of Cassandra back.",
    Reason.REPAIR_FAILING: "Check the log of the last job.",
    Reason.COLLECTION_PENDING: "Wait for the next run.",
    Reason.COLLECTION_OVERDUE: "Check the gc CronJob of the namespace, and bring replicas of Cassandra back.",
    Reason.COLLECTION_FAILING: "Check the log of the last job.",
    Reason.GC_AFTER_TOO_SHORT: "Raise `gc.after`.",
    Reason.BULK_FAILING: "Check the message and the SparkApplication that it names.",
    Reason.SPARK_OPERATOR_MISSING: "Install the Spark operator, or remove `bulk`.",
    Reason.DEAD_LETTER_MISSING: "Apply the queue that the message names. The order does not matter.",
    Reason.DEAD_LETTER_CYCLE: "Break the cycle that the message shows.",
}
"""The remedy of each reason; a reason without one needs none."""

_STORE_REASONS: Final = (
    Reason.TABLES_PRESENT,
    Reason.TABLES_MISSING,
    Reason.TABLES_DRIFTED,
    Reason.TOO_MANY_TABLES,
    Reason.RIGHTS_MISSING,
    Reason.CONNECTION_MISSING,
    Reason.WRONG_DATA_CENTER,
    Reason.CASSANDRA_UNAVAILABLE,
    Reason.CLOCK_OUT_OF_BOUNDS,
    Reason.PROGRESSING,
)
_CONSUMERS_REASONS: Final = (
    Reason.NO_CONSUMERS,
    Reason.CONSUMERS_RUNNING,
    Reason.CONSUMERS_STARTING,
    Reason.CONSUMERS_FAILING,
    Reason.HANDLER_REFUSED,
    Reason.APPLY_REFUSED,
    Reason.NAME_TAKEN,
    Reason.PROGRESSING,
)
_LANES_REASONS: Final = (
    Reason.LANES_SERVED,
    Reason.LANES_UNPROCESSED,
    Reason.LANE_OWNER_STALLED,
    Reason.LANE_HELD,
    Reason.PROGRESSING,
)
_DEAD_LETTER_REASONS: Final = (
    Reason.NO_DEAD_LETTER,
    Reason.DEAD_LETTER_RESOLVED,
    Reason.DEAD_LETTER_MISSING,
    Reason.DEAD_LETTER_CYCLE,
    Reason.PROGRESSING,
)
STALLING: Final = frozenset(
    {
        Reason.SPEC_INVALID,
        Reason.ENGINE_UNAVAILABLE,
        Reason.NAME_TAKEN,
        Reason.WRONG_DATA_CENTER,
        Reason.TABLES_DRIFTED,
        Reason.RIGHTS_MISSING,
        Reason.TOO_MANY_TABLES,
        Reason.HANDLER_REFUSED,
        Reason.DEAD_LETTER_CYCLE,
    }
)
"""Reasons that last until a person changes something."""
AWAITED: Final = frozenset(
    {
        Reason.RECONCILING,
        Reason.PROGRESSING,
        Reason.DELETING,
        Reason.TABLES_MISSING,
        Reason.CONSUMERS_STARTING,
        Reason.DEAD_LETTER_MISSING,
    }
)
"""Reasons that pass by themselves."""
IN_READY: Final = ("TablesReady", "ConsumersReady", "DeadLetterResolved", "LanesHealthy")
"""Conditions that Ready requires, in the order in which Ready reports them."""
_READY_REASONS: Final = tuple(
    dict.fromkeys(
        (
            Reason.RECONCILED,
            Reason.RECONCILING,
            Reason.PROGRESSING,
            Reason.DELETING,
            Reason.PAUSED,
            Reason.SPEC_INVALID,
            Reason.ENGINE_UNAVAILABLE,
            Reason.NAME_TAKEN,
            *_STORE_REASONS[1:],
            *_CONSUMERS_REASONS[2:],
            *_LANES_REASONS[1:],
            *_DEAD_LETTER_REASONS[2:],
        )
    )
)
REASONS_OF: Final[dict[str, tuple[Reason, ...]]] = {
    "Ready": _READY_REASONS,
    "Reconciling": tuple(reason for reason in _READY_REASONS if reason in AWAITED),
    "Stalled": tuple(reason for reason in _READY_REASONS if reason in STALLING),
    "TablesReady": _STORE_REASONS,
    "LanesHealthy": _LANES_REASONS,
    "ConsumersReady": _CONSUMERS_REASONS,
    "RepairHealthy": (
        Reason.REPAIR_CURRENT,
        Reason.REPAIR_PENDING,
        Reason.REPAIR_OVERDUE,
        Reason.REPAIR_FAILING,
    ),
    "BulkReady": (
        Reason.NO_BULK,
        Reason.BULK_IDLE,
        Reason.BULK_RUNNING,
        Reason.BULK_FAILING,
        Reason.SPARK_OPERATOR_MISSING,
        Reason.APPLY_REFUSED,
        Reason.NAME_TAKEN,
        Reason.PROGRESSING,
    ),
    "DeadLetterResolved": _DEAD_LETTER_REASONS,
    "CollectionHealthy": (
        Reason.COLLECTION_CURRENT,
        Reason.COLLECTION_PENDING,
        Reason.COLLECTION_OVERDUE,
        Reason.COLLECTION_FAILING,
        Reason.GC_AFTER_TOO_SHORT,
    ),
}
"""The reasons that each condition may have."""
