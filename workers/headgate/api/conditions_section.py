"""The conditions of docs/reference.md: each with the reasons that it may have, and the remedy for each."""

from __future__ import annotations

from collections.abc import Iterator

from headgate.api.resources import status
from headgate.api.resources.reasons import AWAITED, NOTHING_TO_DO, REASONS_OF, REMEDIES, STALLING

_INTRODUCTION = """## Conditions

The operator reports conditions in the status of each resource. `kubectl get hgq` shows Ready, and
`kubectl describe hgq NAME` shows all of them. Each has one of the reasons below and a message that names the cause.
The list of reasons is closed. [The operator's protocol](internals/protocols/operator.md) describes how it decides.

Conditions follow kstatus, so Argo CD, Flux and `kubectl wait` understand them. `Ready` is always present.
`Reconciling` and `Stalled` are present only while they are True. An *awaited* reason may pass by itself. A reason
that *stalls* waits for a change by a person.

RepairHealthy, BulkReady and CollectionHealthy do not affect Ready: a failed nightly job raises an alert but does not
fail a rollout. LanesHealthy affects Ready once it has been False for a minute.
"""


def build_conditions_section() -> str:
    """The whole section."""
    return "\n".join([_INTRODUCTION, *(_condition(name) for name in status.CONDITION_MEANINGS)])


def _condition(name: str) -> str:
    kinds = {"Queue": status.QUEUE_CONDITIONS, "Counter": status.COUNTER_CONDITIONS}
    of = " and ".join(kind for kind, names in kinds.items() if name in names)
    return "\n".join([f"### {name}\n", f"{status.CONDITION_MEANINGS[name]} Of {of}.\n", *_rows(name), ""])


def _rows(name: str) -> Iterator[str]:
    yield "| reason | meaning | remedy |"
    yield "|---|---|---|"
    for reason in REASONS_OF[name]:
        kind = " (stalls)" if reason in STALLING else " (awaited)" if reason in AWAITED else ""
        yield f"| {reason}{kind} | {status.REASON_MEANINGS[reason]} | {REMEDIES.get(reason, NOTHING_TO_DO)} |"
