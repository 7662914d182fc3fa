"""The four forms of a result, its documented fields, exit codes, and the queue as an argument or by default."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from headgate.applying.apply import Applied
from headgate.cli.documents import (
    applied_document,
    iso_time,
    lane_document,
    location_document,
    overview_document,
    payload_fields,
    peeked_document,
    received_document,
    redriven_document,
    stats_document,
)
from headgate.cli.main import main
from headgate.client.catalogue.overview import QueueOverview
from headgate.client.catalogue.queue_record import QueueNotFound
from headgate.client.counters import CounterNotFound
from headgate.client.message import Message
from headgate.client.redriving import RedriveResult, SkippedMessage, SkipReason
from headgate.command_line import arguments
from headgate.command_line.arguments import DURATION, FUTURE_TIME, PAST_TIME, RATE, define_command, queue_argument
from headgate.command_line.exit_codes import ExitCode, exit_code_for, exit_code_of
from headgate.command_line.output import FORMS, Output, output_option
from headgate.command_line.passes import pass_document
from headgate.engines.contract import (
    Delivery,
    LaneStats,
    MessageLocation,
    MessageState,
    Peeked,
    RepairStanding,
    Stats,
    Visibility,
)
from headgate.engines.summary.pass_results import PassStatus
from headgate.engines.summary.reading import QueueFigures
from headgate.errors import InvalidRequest, Unavailable
from headgate.store.catalogue.entry import Name
from tests.unit.cli.test_cli_help import COMMANDS_BELOW

PAGE = (Path(__file__).parents[3] / "docs" / "commands.md").read_text(encoding="utf-8")
NOW_US = 1_800_000_000_123_456
LANE = LaneStats(1, 0, "owner", 7, NOW_US, NOW_US, NOW_US, NOW_US - 1_500_000, lease_left_us=2_500_000)
STATS = Stats(3, 1, 2, NOW_US - 1_500_000, (LANE,), repair=RepairStanding(False, 3, NOW_US, NOW_US, None))
PASS = PassStatus(NOW_US, 0, "checked 3 parts", "", None, None, None, None, None, None)
DELIVERY = Delivery("m", b"x", {"a": b"\xff"}, None, 1, NOW_US, NOW_US, 7, NOW_US, "r")


class Nobody:
    """The settler of messages that nobody settles."""

    def now_us(self) -> int:
        return NOW_US


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    """One of each kind, by its name on the page."""
    yield "receive", received_document(Message(DELIVERY, Nobody()))  # type: ignore[arg-type]
    yield "peek", peeked_document(Peeked("m", b"x", {}, None, NOW_US, NOW_US, 1, Visibility.READY))
    yield "locate", location_document(MessageLocation("m", MessageState.WAITING, ("1/0",), NOW_US))
    yield "stats", stats_document("shop/emails", STATS, PASS, NOW_US)
    yield "stats, each of lanes", lane_document(LANE)
    yield "top", overview_document(QueueOverview("shop/emails", QueueFigures(3, put_us=NOW_US), NOW_US))
    yield "apply", applied_document(Applied(Name("Queue", "shop", "emails"), "refused", notes=("no",)))
    yield "redrive", redriven_document("shop/dead", RedriveResult(1, (SkippedMessage("m", SkipReason.NO_SOURCE),)))
    yield "repair", pass_document("queue", "shop/emails", message="done", problems=())
    yield "gc", pass_document("counter", "shop/views", message="done", problems=())


def fields_on_the_page(kind: str) -> set[str]:
    """The fields that the page of the commands describes, each in a row of the table of its kind."""
    table = PAGE.partition(f"\n`{kind}`\n\n| field | |\n|---|---|\n")[2].partition("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)` \| .+ \|$", table, re.MULTILINE))


@pytest.mark.parametrize(("kind", "document"), [*documents()], ids=[kind for kind, _ in documents()])
def test_every_field_is_documented_and_none_is_in_microseconds(kind: str, document: dict[str, Any]) -> None:
    assert fields_on_the_page(kind) == set(document)
    text = json.dumps(document)
    assert document == json.loads(text)
    assert "_us" not in text
    assert not re.search(r"\d{16}", text)


def test_times_are_iso_and_durations_are_seconds() -> None:
    stats = stats_document("shop/emails", STATS, None, NOW_US)
    assert ("2027-01-15T08:00:00.123Z", 1.5) == (stats["at"], stats["oldest_age_s"])
    assert "2027-01-15T07:59:58.623Z" == stats["oldest_due_at"]
    assert 2.5 == stats["lanes"][0]["lease_left_s"]
    assert iso_time(None) is None


def test_a_binary_payload_is_base64() -> None:
    assert {"payload_base64": "/w=="} == payload_fields(b"\xff")
    assert {"payload": "é"} == payload_fields("é".encode())


# ---- the four forms


@click.command()
@click.option("--stream", is_flag=True)
@output_option
def shows(*, stream: bool, output: Output) -> None:
    documents = [{"id": "é1", "size": 1}, {"id": "é2", "size": None}]
    if stream:
        for each in documents:
            output.show_item(each, line=f"row {each['id']}", name=str(each["id"]))
    else:
        output.show(documents, table=lambda: ["head", "row"], names=[str(each["id"]) for each in documents])


def shown(*words: str) -> str:
    return CliRunner().invoke(shows, words).output


def test_a_result_has_four_forms() -> None:
    documents = [{"id": "é1", "size": 1}, {"id": "é2", "size": None}]
    assert "head\nrow\n" == shown()
    assert documents == json.loads(shown("-o", "json"))
    assert documents == yaml.safe_load(shown("-o", "yaml"))
    assert "é1\né2\n" == shown("-o", "name")
    assert 1 == len(shown("-o", "json").splitlines())


def test_a_stream_is_json_lines_and_one_yaml_list() -> None:
    assert "row é1\nrow é2\n" == shown("--stream")
    assert ["é1", "é2"] == [json.loads(line)["id"] for line in shown("--stream", "-o", "json").splitlines()]
    assert ["é1", "é2"] == [each["id"] for each in yaml.safe_load(shown("--stream", "-o", "yaml"))]
    assert "é1\né2\n" == shown("--stream", "-o", "name")


SILENT = {"counter add", "dev", "init", "worker", "kubectl headgate pause", "kubectl headgate resume"}
"""Commands without a result."""


@pytest.mark.parametrize(("name", "command"), COMMANDS_BELOW, ids=[name for name, _ in COMMANDS_BELOW])
def test_every_command_with_a_result_has_the_option(name: str, command: click.Command) -> None:
    outputs = [option for option in command.params if "-o" in option.opts]
    assert (name not in SILENT) == bool(outputs), name
    assert all(tuple(option.type.choices) == FORMS for option in outputs)  # type: ignore[attr-defined]


# ---- exit codes


def test_an_error_has_its_exit_code() -> None:
    codes = [exit_code_of(error()) for error in (InvalidRequest, QueueNotFound, CounterNotFound, Unavailable)]
    assert [ExitCode.INVALID, ExitCode.NOT_FOUND, ExitCode.NOT_FOUND, ExitCode.FAILED] == codes


def test_some_of_several_is_partly_done() -> None:
    codes = [exit_code_for(*counts) for counts in ((2, 0), (0, 2), (1, 1))]
    assert [ExitCode.DONE, ExitCode.FAILED, ExitCode.PARTLY_DONE] == codes
    assert ExitCode.INVALID == exit_code_for(0, 1, if_none=ExitCode.INVALID)
    assert [0, 1, 2, 3, 4, 130] == [code.value for code in ExitCode]


# ---- the queue as an argument


@define_command("on")
@queue_argument
@click.argument("words", nargs=-1)
@click.option("--namespace")
def on_queue(queue: str, words: tuple[str, ...], namespace: str | None) -> None:
    click.echo(f"{queue} {words}")


@pytest.mark.parametrize(
    ("default", "words", "expected"),
    [
        (None, ["shop/emails", "x"], "shop/emails ('x',)"),
        (None, ["emails"], "emails ()"),
        ("shop/emails", [], "shop/emails ()"),
        ("shop/emails", ["x", "y"], "shop/emails ('x', 'y')"),
        ("shop/emails", ["shop/orders", "y"], "shop/orders ('y',)"),
        ("shop/emails", ['{"a": 1/2}'], "shop/emails ('{\"a\": 1/2}',)"),
    ],
)
def test_the_queue_is_an_argument_or_comes_from_the_environment(
    default: str | None, words: list[str], expected: str
) -> None:
    done = CliRunner().invoke(on_queue, words, env={"HEADGATE_QUEUE": default})
    assert (0, expected) == (done.exit_code, done.output.strip())


def test_a_missing_queue_names_the_argument() -> None:
    done = CliRunner().invoke(main, ["stats"], env={"HEADGATE_QUEUE": None})
    assert 2 == done.exit_code
    assert "Missing argument 'NAMESPACE/NAME'" in done.stderr


# ---- values


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (DURATION, "5", "is not a duration such as 500ms"),
        (RATE, "5", "is not a rate such as 50/s"),
        (PAST_TIME, "yesterday", "is not a time such as 2030-01-31T09:00:00+01:00 or an age such as 24h"),
        (FUTURE_TIME, "24h", "is not a time such as 2030-01-31T09:00:00+01:00"),
    ],
)
def test_a_wrong_value_is_explained(kind: click.ParamType[Any], text: str, expected: str) -> None:
    with pytest.raises(click.BadParameter) as refused:
        kind.convert(text, None, None)
    assert expected in refused.value.message


def test_values_are_read() -> None:
    assert 90 == DURATION.convert("1m30s", None, None).total_seconds()
    assert 1.0 == RATE.convert("60/m", None, None)
    now = PAST_TIME.convert("0s", None, None)
    assert 86_399 < (now - PAST_TIME.convert("24h", None, None)).total_seconds() <= 86_400
    assert "2030-01-31T09:00:00+00:00" == FUTURE_TIME.convert("2030-01-31T09:00:00", None, None).isoformat()
    assert set(arguments.FALLBACKS) == {"queue", "counter"}
