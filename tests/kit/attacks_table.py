"""The table of attacks in docs/internals/simulation.md: each schedule that would break a system like this, and the
tests that show that it does not break this one.

A test that shows an attack bears its number (`test_attack_A3_...`); the table is made from the tests, so it cannot
name one that is gone. generated_tables.py writes it into the page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

ATTACKS = {
    "A1": "a claim of ids outlives the repair that gave it up",
    "A2": "the invisibility pointer skips a message that failed",
    "A3": "a row that lands late, below the position or between settled ones, is swallowed",
    "A4": "repair checks once, and a batch or a hint lands hours after",
    "A5": "gc_grace 0 drops hints and half of a logged batch",
    "A6": "the end of a weak extent is renewed where nobody sees it",
    "A7": "a renewal of an extent lands after its seal",
    "A8": "a producer continues to write shards that nobody reads any more",
    "A9": "an edit moves the places where messages are searched",
    "A10": "two rows of one time share a key, or sort otherwise than positions compare",
    "A11": "two data centres grant an owner each",
    "A12": "a clock that is off, stepped or stood still acknowledges what a reader has passed",
    "A13": "the index does not name a part that holds something",
    "A14": "a duplicate is acknowledged before its original is durable",
    "A15": "a cancel is promised and the message comes; a reschedule loses it",
    "B1": "a paged read of a counter misses what a collector folded meanwhile",
    "B2": "a late fold is hidden by a tally",
    "B3": "what was folded and deleted is written again",
    "B4": "a reader sees a minute neither folded nor unfolded",
    "B5": "an update with a token is acknowledged after its minute was folded",
    "B6": "a mutator is paused between its check and its write",
    "B7": "culled keys leave a shard each",
    "C1": "a failed message of a group is overtaken",
    "C2": "a reshard reorders a group",
    "C3": "a restamp reorders a group",
    "C4": "an emergency stop makes two owners",
    "C5": "an owner is paused between its last check and the handler's effects",
    "D1": "a copy is written twice, at two places",
    "D2": "messages that did nothing are charged for one that kills its process",
    "D3": "after a kill the whole backlog is suspect",
    "D4": "a settle is confirmed that the next owner did not read",
    "D5": "settled facts are dropped though the position was never written",
    "D6": "a touch of an earlier tenure moves the position back; a retired lane is taken",
    "D7": "a lease is judged by the clock of another coordinator",
    "D8": "what was hidden for long comes at once when its owner dies",
    "D9": "a restamped original lands late, and comes beside its twin",
    "D10": "what was purged comes back by repair, retry or copy",
    "E1": "a slow cluster restamps without end",
    "E2": "all lanes of a queue share one Paxos key",
    "E3": "a stop outlives its epoch",
    "E4": "one slow message makes the settled set grow without bound",
    "E5": "cancels fill a part with tombstones; one part holds too much",
    "E6": "one long-lived row keeps a whole day of expired ones",
    "E7": "a wake-up mark is cleared by a slower clock",
    "E8": "a dropped partition leaves rows without a payload",
    "E9": "Paxos state or a quorum write is lost with a replaced node",
}
"""Each attack in a line."""

ELSEWHERE = {
    **dict.fromkeys(("A1", "A2"), "comes with Bucket"),
    **dict.fromkeys(("A6", "A7", "A14"), "comes with Extent"),
    **{f"B{number}": "comes with Counters" for number in range(1, 8)},
    "E9": "cannot be simulated (membership); the steps for administrators are in docs/cassandra.md",
}
"""The reason why an attack has no test in this repository, or not yet; printed as long as it has none."""


def tests_by_attack(root: Path = ROOT) -> dict[str, list[str]]:
    """The tests that bear the number of an attack."""
    entries: dict[str, list[str]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        for name in _tests_in(path):
            match = re.match(r"test_attack_([a-e]\d+)_", name, re.IGNORECASE)
            if match:
                where = path.relative_to(root).as_posix()
                entries.setdefault(match[1].upper(), []).append(f"{where}::{name}")
    return entries


def _tests_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def table(tests: dict[str, list[str]]) -> str:
    """As the page has it."""
    lines = ["| attack | what it tries | shown by |", "| --- | --- | --- |"]
    for number, what in ATTACKS.items():
        by_file: dict[str, list[str]] = {}
        for test in tests.get(number, ()):
            path, _, name = test.partition("::")
            by_file.setdefault(path, []).append(re.sub(r"(?i)^test_attack_[a-e]\d+_", "", name).replace("_", " "))
        shown = "; ".join(f"`{path}`: {', '.join(names)}" for path, names in by_file.items())
        lines.append(f"| {number} | {what} | {shown or ELSEWHERE.get(number, '')} |")
    return "\n".join(lines) + "\n"


def faults(tests: dict[str, list[str]]) -> list[str]:
    """Attacks that nothing shows and no reason excuses, and numbers that no attack has."""
    matches = [f"{number}: no test, and no reason" for number in ATTACKS if not {number} & {*tests, *ELSEWHERE}]
    matches += [f"{number}: no such attack" for number in tests if number not in ATTACKS]
    return matches
