"""What `kubectl headgate why` says: what is wrong with a resource and what a person does about it, then the leader's
last decisions, with what they rested on. Pure: from the resource and the leader's answer to lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from headgate.api.reasons import REMEDIES
from headgate.api.status import Reason
from headgate.cli.showing import moment

SHOWN: Final = 5
TRANSIENT: Final = ("Reconciling", "Stalled")
QUIET: Final = "nothing was to be done"
WIDTH: Final = 118

Document = Mapping[str, Any]


def condition_lines(document: Document) -> Iterator[str]:
    """What the status says, and what to do about what is not as it should be."""
    conditions: Sequence[Document] = (document.get("status") or {}).get("conditions") or ()
    if not conditions:
        yield "the operator has said nothing of it yet"
    for one in conditions:
        if one["type"] in TRANSIENT or (one["status"] == "True" and one["type"] != "Ready"):
            continue
        yield f"{one['type']} is {one['status']}, {one['reason']}, since {one.get('lastTransitionTime', 'never')}"
        if one.get("message"):
            yield f"  {one['message']}"
        remedy = _remedy(str(one["reason"])) if one["status"] != "True" else ""
        if remedy:
            yield f"  what to do: {remedy}"


def decision_lines(decisions: Sequence[Document], shown: int, *, with_inputs: bool) -> Iterator[str]:
    """The last of them, the latest last."""
    for one in decisions[-shown:] if shown else ():
        yield ""
        yield moment(one.get("at_us"))
        told = [*(one.get("trail") or ()), *(f"asked whether it is there: {each}" for each in one.get("asks") or ())]
        yield from (f"  {sentence}" for sentence in told or (QUIET,))
        yield from (f"  did: {effect}" for effect in one.get("effects") or ())
        if one.get("outcome"):
            yield f"  it failed: {one['outcome']}"
        if one.get("again_at_us"):
            yield f"  decides again at {moment(one['again_at_us'])}"
        if with_inputs:
            yield "  rested on:"
            text = yaml.safe_dump(one.get("rested_on"), sort_keys=False, width=WIDTH, allow_unicode=True)
            yield from (f"    {line}" for line in text.splitlines())


def age_line(document: Document, now: datetime | None = None) -> str:
    """Whether what the operator has said is about the spec as it is now."""
    generation = document["metadata"].get("generation")
    observed = (document.get("status") or {}).get("observedGeneration")
    if generation is None or observed == generation:
        return ""
    when = f"{now or datetime.now(UTC):%H:%M:%S}"
    return f"the spec was changed (generation {generation}), and as of {when} UTC nothing was decided about that yet"


def _remedy(reason: str) -> str:
    known = {each.value: each for each in Reason}
    return REMEDIES.get(known[reason], "") if reason in known else ""
