"""Bulk jobs on a real Cassandra, in a Spark of two cores: what they settle, leave and write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dev.servers.cassandra.serving import Serving
from headgate.engines.summary.pass_results import MESSAGE_CHARACTERS_MAX
from headgate.errors import HeadgateError, InvalidRequest
from headgate.local.processes import wait_until
from tests.system.spark.shop import Shop, opened_shop, twice

HANDLERS = "tests.system.spark.handlers"
NAMES = (
    "handled",
    "wrong",
    "empty",
    "sunk",
    "json",
    "jdbc",
    "moved",
    "target",
    "mortal",
    "kept",
    "again",
    "exported",
    "live",
)


@pytest.fixture(scope="module")
def shop(cassandra: Serving, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """The queues of these tests."""
    with opened_shop(cassandra, spark, tmp_path_factory.mktemp("shop"), NAMES) as opened:
        yield opened


def test_a_drain_settles_what_succeeded_buries_what_died_and_leaves_the_rest(shop: Shop) -> None:
    shop.put("handled", 2_000)
    shop.settle_down()
    done = shop.job("handled", "drain", handler=f"{HANDLERS}:by_number", batch_messages=700)
    assert (1_200, 400, 800) == (done.done, done.dead, done.returned)
    dead = shop.received("handled-dead")
    assert {b"%d" % each for each in range(0, 2_000, 5)} == {each.payload for each in dead}
    assert {("shop/handled", "invalid address")} == {
        (each.attributes["headgate.dead.queue"], each.attributes["headgate.dead.reason"]) for each in dead
    }
    left = shop.taken("handled")
    assert ([], {b"%d" % each for each in range(2_000) if each % 5 in (1, 2)}) == (twice(left), set(left))
    standing = shop.standing("handled", "drain")
    assert (1_200, 800, "done") == (standing.keys, standing.problems, standing.message)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"handler": f"{HANDLERS}:wrong_columns"}, "return a DataFrame with id, outcome"),
        ({"handler": f"{HANDLERS}:nobody"}, "The handler cannot be loaded"),
        ({"handler": f"{HANDLERS}:wrong_outcome"}, "one of done, return, dead"),
        ({"handler": f"{HANDLERS}:strangers"}, "return the column `id` unchanged"),
        ({"handler": f"{HANDLERS}:breaks"}, "ValueError: cannot send"),
        ({"handler": f"{HANDLERS}:all_done", "where": "no_such_column = 1"}, "no_such_column"),
        ({"handler": f"{HANDLERS}:all_done", "where": "id = = 1"}, "PARSE_SYNTAX_ERROR"),
        ({"handler": f"{HANDLERS}:all_done", "where": "1 / (length(payload) - 1) > 0"}, "DIVIDE_BY_ZERO"),
        ({"target": "nowhere"}, "shop/nowhere"),
        ({"sink": {"format": "parquet", "path": "/proc/nowhere"}}, "/proc/nowhere"),
        ({"sink": {"format": "jdbc", "path": "jdbc:nosuch:x", "options": {"dbtable": "t"}}}, "jdbc:nosuch:x"),
    ],
)
def test_what_is_wrong_is_one_line_and_settles_nothing(shop: Shop, fields: dict[str, object], message: str) -> None:
    if shop.backlog("wrong") == 0:
        shop.put("wrong", 50)
        assert wait_until(lambda: shop.backlog("wrong") == 50, timeout_s=10)
    with pytest.raises(HeadgateError) as wrong:
        shop.job("wrong", "drain", **fields)
    assert message in str(wrong.value)
    assert 1 == len(str(wrong.value).splitlines())
    report = shop.standing("wrong", "drain")
    assert (str(wrong.value)[:MESSAGE_CHARACTERS_MAX], 0) == (report.message, report.keys)
    assert 50 == shop.backlog("wrong")
    lanes = shop.connection.run(shop.queue("wrong").stats()).lanes
    assert not any(lane.is_reserved for lane in lanes)


def test_a_sink_that_cannot_be_written_is_found_before_there_is_anything_to_write(shop: Shop) -> None:
    sink = {"format": "parquet", "path": "/proc/nowhere"}
    for mode in ("drain", "export", "replay"):
        with pytest.raises(HeadgateError, match="/proc/nowhere"):
            shop.job("empty", mode, sink=sink)


def test_a_queue_that_is_not_there_is_named(shop: Shop) -> None:
    with pytest.raises(InvalidRequest, match="shop/nowhere"):
        shop.job("nowhere", "drain", handler=f"{HANDLERS}:all_done")


def test_a_drain_into_parquet_writes_each_message_once_and_settles_it(shop: Shop, tmp_path: Path) -> None:
    shop.put("sunk", 1_500, attributes={"n": "1", "b": b"\x00\xff"}, group=None)
    shop.settle_down()
    sink = {"format": "parquet", "path": str(tmp_path / "out")}
    done = shop.job(
        "sunk", "drain", sink=sink, where="cast(cast(payload as string) as int) < 1000", batch_messages=400
    )
    assert (1_000, 0) == (done.done, done.returned)
    rows = shop.spark.read.parquet(sink["path"]).collect()
    assert sorted(range(1_000)) == sorted(int(row["payload"]) for row in rows)
    assert [] == twice(row["id"] for row in rows)
    assert {(("n", "1"),)} == {tuple(row["attributes"].items()) for row in rows}
    assert {(("b", b"\x00\xff"),)} == {
        tuple((k, bytes(v)) for k, v in row["binary_attributes"].items()) for row in rows
    }
    assert {b"%d" % each for each in range(1_000, 1_500)} == set(shop.taken("sunk"))


def test_a_drain_into_json_and_into_a_table(shop: Shop, tmp_path: Path) -> None:
    for name, sink in (
        ("json", {"format": "json", "path": str(tmp_path / "json")}),
        (
            "jdbc",
            {
                "format": "jdbc",
                "path": f"jdbc:derby:{tmp_path}/derby;create=true",
                "options": {"dbtable": "letters", "driver": "org.apache.derby.jdbc.EmbeddedDriver"},
            },
        ),
    ):
        shop.put(name, 100)
        shop.settle_down()
        assert 100 == shop.job(name, "drain", sink=sink).done
        assert 0 == shop.backlog(name)
    lines = [
        json.loads(line) for file in (tmp_path / "json").glob("*.json") for line in file.read_text().splitlines()
    ]
    assert 100 == len({line["id"] for line in lines})


def test_a_move_takes_all_and_keeps_payloads_groups_and_attributes(shop: Shop) -> None:
    shop.put("moved", 1_200, attributes={"a": "b", "c": b"\x01"}, group="g")
    shop.settle_down()
    assert 1_200 == shop.job("moved", "move", target="target").done
    moved = shop.received("target")
    assert [b"%d" % each for each in range(1_200)] == sorted((each.payload for each in moved), key=int)
    assert {("b", b"\x01", "g")} == {(each.attributes["a"], each.attributes["c"], each.group) for each in moved}
    assert [] == shop.taken("moved")


def test_a_redrive_puts_dead_letters_back_where_they_died_and_leaves_what_has_no_home(shop: Shop) -> None:
    shop.put("mortal", 600)
    shop.settle_down()
    shop.job("mortal", "drain", handler=f"{HANDLERS}:by_number")
    assert 240 == len(shop.taken("mortal"))
    shop.put("mortal-dead", 7)
    shop.put("mortal-dead", 2, attributes={"headgate.dead.queue": "shop/gone"})
    shop.settle_down()
    first = shop.job("mortal-dead", "redrive", where="cast(cast(payload as string) as int) < 300")
    assert 60 == first.done
    again = shop.received("mortal")
    assert {b"%d" % each for each in range(0, 300, 5)} == {each.payload for each in again}
    assert [{}] == [dict(each.attributes) for each in again[:1]]
    assert 60 == shop.job("mortal-dead", "redrive").done
    assert 7 + 2 == len(shop.taken("mortal-dead"))


def test_a_replay_puts_a_range_of_history_again_transformed(shop: Shop) -> None:
    shop.put("kept", 300)
    shop.settle_down()
    shop.taken("kept")
    where = "cast(cast(payload as string) as int) >= 100"
    done = shop.job("kept", "replay", target="again", handler=f"{HANDLERS}:upper", where=where, **{"from": "1h"})
    assert 200 == done.done
    again = shop.taken("again")
    assert ([], {b"again %d" % each for each in range(100, 300)}) == (twice(again), set(again))


def test_an_export_writes_by_day_and_resumes_where_it_was(shop: Shop, tmp_path: Path) -> None:
    sink = {"format": "parquet", "path": str(tmp_path / "history")}
    for count in (200, 100):
        shop.put("exported", count)
        shop.settle_down()
        shop.taken("exported")
        assert count == shop.job("exported", "export", sink=sink).done
    assert 0 == shop.job("exported", "export", sink=sink).done
    rows = shop.spark.read.parquet(sink["path"])
    assert (300, 300) == (rows.count(), rows.select("id").distinct().count())
    assert "day" in rows.columns
