"""What follows from a reason: what a person does about it, which conditions may have it, whether it is waited for.

Beside `status.py`, which has the reasons and what they mean; both make the page docs/conditions.md.
"""

from __future__ import annotations

from typing import Final

from headgate.api.status import Reason

NOTHING_TO_DO: Final = "Nothing."
REMEDIES: Final[dict[Reason, str]] = {
    Reason.RECONCILING: "Wait; the message says what is being done.",
    Reason.PROGRESSING: "Wait; the message says for what.",
    Reason.DELETING: "Wait. Where Cassandra is away: mend it, or set `deletionPolicy: Retain`.",
    Reason.PAUSED: "Set `spec.paused: false` (`kubectl headgate resume`).",
    Reason.SPEC_INVALID: "Mend the field that the message names.",
    Reason.ENGINE_UNAVAILABLE: "Upgrade the operator, or take another engine.",
    Reason.NAME_TAKEN: "Rename this one, delete the other, or adopt with the annotation of the message.",
    Reason.CASSANDRA_UNAVAILABLE: "Mend Cassandra; nothing has to be done here.",
    Reason.CONNECTION_MISSING: "Make the Secret, or add the key that the message names.",
    Reason.WRONG_DATA_CENTER: "Name a connectionSecret that leads to the home data centre.",
    Reason.CLOCK_OUT_OF_BOUNDS: "Mend the clock of the node that the message names, or raise maxClockSkew.",
    Reason.TABLES_MISSING: "Wait. Where it lasts, a table was dropped by hand: restore a backup.",
    Reason.TABLES_DRIFTED: "Run the CQL of the message, or restore what it names.",
    Reason.TOO_MANY_TABLES: "Make it anew with `storage.tables: shared`.",
    Reason.RIGHTS_MISSING: "Hand the CQL of the message (`headgate apply --dry-run`) to an administrator.",
    Reason.LANES_UNPROCESSED: "Look at the workers, if the extra one that was started does not mend it.",
    Reason.LANES_SUSPICIOUS: "Look for a handler that blocks the worker's loop.",
    Reason.LANE_HELD: "Let the message be settled that holds the lane, or cancel it.",
    Reason.CONSUMERS_STARTING: "Wait.",
    Reason.CONSUMERS_FAILING: "Look at `kubectl logs`; the message has the worker's last words.",
    Reason.HANDLER_REFUSED: "Mend the image or the handler; the message has the worker's words.",
    Reason.APPLY_REFUSED: "Mend what the server's words name: the quota, the webhook or the template.",
    Reason.REPAIR_PENDING: "Wait for the next run.",
    Reason.REPAIR_OVERDUE: "Look at the repair CronJob of the namespace; bring replicas of Cassandra back.",
    Reason.REPAIR_FAILING: "Look at the log of the last job.",
    Reason.COLLECTION_PENDING: "Wait for the next run.",
    Reason.COLLECTION_OVERDUE: "Look at the gc CronJob of the namespace; bring replicas of Cassandra back.",
    Reason.COLLECTION_FAILING: "Look at the log of the last job.",
    Reason.GC_AFTER_TOO_SHORT: "Raise `gc.after`.",
    Reason.BULK_FAILING: "Look at the message and at the SparkApplication that it names.",
    Reason.SPARK_OPERATOR_MISSING: "Install the Spark operator, or remove `bulk`.",
    Reason.DEAD_LETTER_MISSING: "Apply the queue that the message names; the order does not matter.",
    Reason.DEAD_LETTER_CYCLE: "Break the cycle that the message shows.",
}
"""What a person does; where nothing stands, nothing."""

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
    Reason.LANES_SUSPICIOUS,
    Reason.LANE_HELD,
    Reason.PROGRESSING,
)
_DEAD_LETTER_REASONS: Final = (
    Reason.NO_DEAD_LETTER,
    Reason.DEAD_LETTER_FOUND,
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
"""Why it will not become Ready until a person changes something."""
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
"""Why it is not Ready yet, and may become so by itself."""
IN_READY: Final = ("TablesReady", "ConsumersReady", "DeadLetterResolved", "LanesHealthy")
"""Conditions without which a resource is not Ready, the one that is told first in front."""
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
"""Which reasons a condition may have."""
