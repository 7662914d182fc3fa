"""The judge of histories, over good ones made by hand, and one for each fault."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.client_history import history as history_module
from tests.kit.client_history.fates import Promises
from tests.kit.client_history.history import History, read_events
from tests.kit.client_history.judge import Asked, Judge, main

SECOND = 1_000_000
Events = list[dict[str, Any]]


def event(at_s: float, what: str, **facts: Any) -> dict[str, Any]:
    """One line of a history."""
    return {"at": int(at_s * SECOND), "actor": facts.pop("actor", "worker"), "what": what, **facts}


def put(at_s: float, message_id: str, **options: Any) -> Events:
    """An acknowledged put, of a producer's call of its own."""
    facts = {"put": message_id, "call": message_id, "producer": "producer", "content": message_id, **options}
    return [event(at_s, "putting", **facts), event(at_s + 0.1, "put", put=message_id, message_id=message_id)]


def given(at_s: float, message_id: str, attempt: int = 1, **options: Any) -> Events:
    """A receive that gave one message, hidden for five seconds."""
    call, at_us = f"{message_id} {at_s}", int(at_s * SECOND)
    facts = {
        "receipt": f"{message_id}/{attempt}",
        "content": message_id,
        "group": None,
        "due_us": 0,
        "put_us": 0,
        "early": False,
    }
    facts |= {"attempt": attempt, "given_us": at_us, "until_us": at_us + 5 * SECOND, **options}
    asked = event(at_s - 0.1, "receiving", call=call, hides_us=5 * SECOND)
    return [
        asked,
        event(at_s, "given", message_id=message_id, **facts),
        event(at_s, "received", call=call, how="messages"),
    ]


def settled(
    at_s: float, message_id: str, attempt: int = 1, how: str = "ack", answer: str = "done", **options: Any
) -> Events:
    """A settle and its answer."""
    name = f"{message_id} {at_s} {attempt}"
    asked = event(at_s, "asking", settle=name, receipt=f"{message_id}/{attempt}", how=how, **options)
    return [asked, event(at_s + 0.1, "answered", settle=name, answer=answer)]


GOOD: dict[str, Events] = {
    "put, delivered, settled": [*put(1, "a"), *given(2, "a"), *settled(3, "a")],
    "put without an answer, and delivered": [put(1, "a")[0], *given(2, "a"), *settled(3, "a")],
    "refused, and not delivered": [put(1, "a")[0], event(1.1, "not put", put="a", sure=True)],
    "failed, and delivered again": [
        *put(1, "a"),
        *given(2, "a"),
        *settled(3, "a", how="nack"),
        *given(4, "a", 2),
        *settled(5, "a", 2),
    ],
    "returned without charge, and delivered again by the same receipt": [
        *put(1, "a"),
        *given(2, "a"),
        *settled(3, "a", how="nack", charged=False),
        *given(4, "a"),
        *settled(5, "a"),
    ],
    "charged for a receive whose process was killed": [
        *put(1, "a"),
        event(1.5, "receiving", call="killed", hides_us=5 * SECOND),
        *given(3, "a", 2),
        *settled(4, "a", 2),
    ],
    "a dead letter after the last receive": [
        *put(1, "a"),
        *given(2, "a"),
        *settled(3, "a", how="nack"),
        *given(4, "a", 2),
        *settled(5, "a", 2, how="nack"),
        event(6, "dead", message_id="a"),
    ],
    "rejected at once": [
        *put(1, "a"),
        *given(2, "a"),
        *settled(3, "a", how="reject"),
        event(6, "dead", message_id="a"),
    ],
    "cancelled": [*put(1, "a"), event(2, "cancelling", message_id="a"), event(3, "cancelled", message_id="a")],
    "a group, one after the other": [
        *put(1, "a", group="g"),
        *put(2, "b", group="g"),
        *given(3, "a", group="g"),
        *settled(4, "a"),
        *given(5, "b", group="g"),
        *settled(6, "b"),
    ],
}
BAD: dict[str, Events] = {
    "an acknowledged put is settled, dead or still there": put(1, "a"),
    "what was not sent does not come": [
        put(1, "a")[0],
        event(1.1, "not put", put="a", sure=True),
        *given(2, "a"),
        *settled(3, "a"),
    ],
    "at most one receipt is honoured": [
        *put(1, "a"),
        *given(2, "a"),
        *given(8, "a", 2),
        *settled(9, "a"),
        *settled(9, "a", 2),
    ],
    "what is settled does not come again": [*put(1, "a"), *given(2, "a"), *settled(3, "a"), *given(9, "a", 2)],
    "a receipt is of one delivery": [*put(1, "a"), *given(2, "a"), *given(3, "a"), *settled(4, "a")],
    "a delivery is charged once": [*put(1, "a"), *given(2, "a", 2), *settled(3, "a", 2)],
    "a dead letter had all its receives": [*put(1, "a"), *given(2, "a"), event(9, "dead", message_id="a")],
    "no attempt exceeds the maximum of receives": [
        *put(1, "a"),
        *given(2, "a"),
        *given(8, "a", 2),
        *given(15, "a", 3),
        *settled(16, "a", 3),
    ],
    "what was cancelled is never delivered": [
        *put(1, "a"),
        event(2, "cancelling", message_id="a"),
        event(3, "cancelled", message_id="a"),
        *given(9, "a"),
        *settled(10, "a"),
    ],
    "a group comes in order": [
        *put(1, "a", group="g"),
        *put(2, "b", group="g"),
        *given(3, "b", group="g"),
        *settled(4, "b"),
        *given(5, "a", group="g"),
        *settled(6, "a"),
    ],
    "a once key makes one message": [
        *put(1, "a", once="k"),
        *put(2, "b", once="k"),
        *given(3, "a"),
        *settled(4, "a"),
        *given(5, "b"),
        *settled(6, "b"),
    ],
    "nothing early": [*put(1, "a", due_us=60 * SECOND), *given(2, "a"), *settled(3, "a")],
    "it comes as it was put": [*put(1, "a"), *given(2, "a", content="b"), *settled(3, "a")],
    "nothing waits while a consumer asks": [*put(1, "a"), *given(20, "a"), *settled(21, "a")],
}


def rules(events: Iterable[dict[str, Any]]) -> set[str]:
    """The promises that a history breaks, of a queue with dead letters after two receives."""
    judge = Judge(History.read(events), Promises(max_receives=2, charges=True))
    return {each.rule for each in judge.violations([Asked(0, 100 * SECOND, 12 * SECOND)])}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_breaks_no_promise(name: str) -> None:
    assert set() == rules(GOOD[name])


@pytest.mark.parametrize("rule", BAD)
def test_a_bad_history_breaks_its_promise_and_no_other(rule: str) -> None:
    assert {rule} == rules(BAD[rule])


def test_what_waits_while_nobody_asks_breaks_no_promise() -> None:
    judge = Judge(History.read(BAD["nothing waits while a consumer asks"]), Promises())
    assert [] == list(judge.violations([Asked(0, 10 * SECOND, 12 * SECOND), Asked(15 * SECOND, 30 * SECOND)]))


def test_files_of_several_processes_are_merged_and_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"producer": put(1, "a"), "one": given(2, "a"), "two": given(8, "a", 2)}
    for name, events in files.items():
        (tmp_path / name).write_text("".join(json.dumps(each) + "\n" for each in events) + '{"at": 9, "cut by a kil')
    paths = [str(tmp_path / name) for name in ("two", "one", "producer")]
    assert 3 + 3 + 2 == len(list(read_events(*map(Path, paths))))
    assert 1 == main(paths)
    assert "a: delivered, never settled" in capsys.readouterr().out


def test_the_judge_imports_no_code_of_ours() -> None:
    folder = Path(history_module.__file__).parent
    imported = {
        name
        for file in folder.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {"tests.kit.client_history.fates", "tests.kit.client_history.history"} == {
        each for each in imported if each.split(".")[0] in OURS
    }
    assert "json" in imported


OURS = ("headgate", "headgate_operator", "headgate_spark", "tests", "dev", "bench")
