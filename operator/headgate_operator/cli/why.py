"""The text of `kubectl headgate why`: a resource's failing conditions and their remedies, then the leader's last
decisions with their inputs. Pure: from the resource and the leader's answer to lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import yaml

from headgate.api.resources.reasons import Reason
from headgate.client.model.times import format_time
from headgate_operator.model.kinds import Document

SHOWN: Final = 5
TRANSIENT: Final = ("Reconciling", "Stalled")
QUIET: Final = "no change needed"
WIDTH: Final = 118


def condition_lines(document: Document) -> Iterator[str]:
    """The failing conditions, each with its remedy."""
    conditions: Sequence[Document] = (document.get("status") or {}).get("conditions") or ()
    if not conditions:
        yield "the operator has not reported a status yet"
    for one in conditions:
        if one["type"] in TRANSIENT or (one["status"] == "True" and one["type"] != "Ready"):
            continue
        yield f"{one['type']} is {one['status']}, {one['reason']}, since {one.get('lastTransitionTime', 'never')}"
        if one.get("message"):
            yield f"  {one['message']}"
        remedy = _remedy(str(one["reason"])) if one["status"] != "True" else ""
        if remedy:
            yield f"  remedy: {remedy}"


def decision_lines(decisions: Sequence[Document], shown: int, *, with_inputs: bool) -> Iterator[str]:
    """The last of them, the latest last."""
    for one in decisions[-shown:] if shown else ():
        yield ""
        yield format_time(one.get("at_us"))
        sentences = [
            *(one.get("trail") or ()),
            *(f"checks whether it exists: {each}" for each in one.get("asks") or ()),
        ]
        yield from (f"  {sentence}" for sentence in sentences or (QUIET,))
        yield from (f"  effect: {effect}" for effect in one.get("effects") or ())
        if one.get("outcome"):
            yield f"  error: {one['outcome']}"
        if one.get("again_at_us"):
            yield f"  decides again at {format_time(one['again_at_us'])}"
        if with_inputs:
            yield "  inputs:"
            text = yaml.safe_dump(one.get("rested_on"), sort_keys=False, width=WIDTH, allow_unicode=True)
            yield from (f"    {line}" for line in text.splitlines())


def age_line(document: Document, now: datetime | None = None) -> str:
    """A note if the status is of an older spec."""
    generation = document["metadata"].get("generation")
    observed = (document.get("status") or {}).get("observedGeneration")
    if generation is None or observed == generation:
        return ""
    when = f"{now or datetime.now(UTC):%H:%M:%S}"
    return (
        f"the spec was changed (generation {generation}), and as of {when} UTC the operator has not decided about it"
    )


def _remedy(reason: str) -> str:
    known = {each.value: each for each in Reason}
    return known[reason].remedy if reason in known else ""
