"""docs/conditions.md: every condition with its reasons and their remedies."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.api import status
from headgate.api.reasons import AWAITED, NOTHING_TO_DO, REASONS_OF, REMEDIES, STALLING

_INTRODUCTION = """# Conditions: reasons and remedies

For everyone with a queue or a counter that is not Ready: find its reason, and the remedy.
`python -m headgate.api.generate` writes this page from `status.py` and `reasons.py` in `workers/headgate/api/`.

`kubectl get hgq` shows Ready. `kubectl describe hgq NAME` shows all conditions, each with a reason of this page and a
message with the details. The list of reasons is closed. [The operator](protocols/operator.md) describes how it
decides.

Conditions follow kstatus (Argo CD, Flux, `kubectl wait`). `Ready` is always present, `Reconciling` and `Stalled` only
while they are True. A reason marked *awaited* may pass by itself, and one that *stalls* needs a change by a person.
RepairHealthy, BulkReady and CollectionHealthy do not affect Ready: a nightly job that failed is an alert, not a
failed rollout. LanesHealthy affects Ready after it has been False for a minute.
"""


def build_conditions_page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *(_condition(name) for name in status.CONDITION_MEANINGS)])


def _condition(name: str) -> str:
    kinds = {"Queue": status.QUEUE_CONDITIONS, "Counter": status.COUNTER_CONDITIONS}
    of = " and ".join(kind for kind, names in kinds.items() if name in names)
    return "\n".join([f"## {name}\n", f"{status.CONDITION_MEANINGS[name]} Of {of}.\n", *_rows(name), ""])


def _rows(name: str) -> Iterator[str]:
    yield "| reason | meaning | remedy |"
    yield "|---|---|---|"
    for reason in REASONS_OF[name]:
        kind = " (stalls)" if reason in STALLING else " (awaited)" if reason in AWAITED else ""
        yield f"| {reason}{kind} | {status.REASON_MEANINGS[reason]} | {REMEDIES.get(reason, NOTHING_TO_DO)} |"
