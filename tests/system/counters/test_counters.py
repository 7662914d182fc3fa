"""Counters on a real Cassandra, from `headgate apply` to a value: the SDK with and without async, and commands."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import headgate
from dev.servers.cassandra.serving import Serving
from headgate.client.catalogue.opened import WrongEventLoop, WrongProcess
from headgate.counters.collect.collector import Collector
from headgate.counters.counter import CounterHandle
from headgate.counters.model.decide_life import LifeTerms
from headgate.counters.types.registry import type_of
from headgate.process.live import Live
from tests.system.sdk.commands import Commands

ROOT = Path(__file__).parents[3]
KEYSPACE = f"counters_{uuid.uuid4().hex[:12]}"
MS_US = 1_000


def counter_of(name: str, spec: str, namespace: str = "shop") -> str:
    """A counter as a person writes it."""
    return (
        "---\napiVersion: headgate.io/v1beta1\nkind: Counter\n"
        f"metadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{spec}}}\n"
    )


SHARED = "storage: {tables: shared}"
THE_PAGES = (ROOT / "examples" / "dev" / "counters.yaml").read_text()
"""The three counters of docs/counters.md."""
COUNTERS = "".join(
    [
        THE_PAGES,
        counter_of("stock", "maxClockSkew: 100ms"),
        counter_of("pages", f"type: topk, {SHARED}"),
        counter_of("colour", f"type: register, {SHARED}"),
        counter_of("short-lived", f"buckets: 4, {SHARED}"),
        counter_of("hasty", f"mutator: {{lifetime: 1h, refuseWithin: 1m}}, {SHARED}", "depot"),
        counter_of("daily", f"gc: {{schedule: '0 3 * * *'}}, {SHARED}", "depot"),
        counter_of("foreign", f"type: acme/longest, {SHARED}", "depot"),
    ]
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The resources."""
    path = tmp_path_factory.mktemp("counters") / "counters.yaml"
    path.write_text(COUNTERS)
    return path


@pytest.fixture(scope="module")
def shop(cassandra: Serving, file: Path) -> Iterator[Commands]:
    """A shop whose counters were applied."""
    shop = Commands({**cassandra.environment(), "KEYSPACE": KEYSPACE})
    done = shop("apply", str(file))
    assert (0, 10) == (done.code, sum(" created " in line for line in done.out)), done
    yield shop
    cassandra.cql(f"DROP KEYSPACE {KEYSPACE}")


# ---- applying


def test_applied_again_nothing_changes_and_its_tables_bear_its_id(
    shop: Commands, file: Path, cassandra: Serving
) -> None:
    done = shop("apply", str(file))
    assert (0, 10) == (done.code, sum(" unchanged " in line for line in done.out)), done
    assert ["-- nothing is missing"] == shop("apply", "--dry-run", str(file)).out
    rows = cassandra.cql("SELECT keyspace_name, table_name FROM system_schema.tables")
    tables = {str(row["table_name"]) for row in rows if row["keyspace_name"] == KEYSPACE}
    stock = next(line for line in done.out if "shop/stock" in line)
    creation = uuid.UUID(stock.partition("(id ")[2][:36]).hex
    for table in ("shards", "tokens", "minutes", "windows"):
        assert {f"c_{creation}_{table}", f"counter_{table}"} <= tables


def test_what_is_fixed_is_refused_and_the_rest_is_changed(shop: Commands, tmp_path: Path) -> None:
    changed = tmp_path / "changed.yaml"
    changed.write_text(
        counter_of("hasty", f"tokenWindow: 1h, {SHARED}", "depot")
        + counter_of("daily", f"gc: {{schedule: '0 4 * * *'}}, {SHARED}", "depot")
    )
    done = shop("apply", str(changed))
    assert (4, 1) == (done.code, sum("counter/depot/daily updated" in line for line in done.out)), done
    assert "tokenWindow is fixed when the counter is made" in done.err[0]
    changed.write_text(counter_of("daily", f"gc: {{schedule: '0 3 * * *'}}, {SHARED}", "depot"))
    assert 0 == shop("apply", str(changed)).code


# ---- the SDK


def test_updates_are_counted_given_by_windows_and_counted_once_with_a_token(shop: Commands) -> None:
    async def work(connection: headgate.Headgate) -> None:
        views = await connection.counter("shop/page-views")
        begin = datetime.now(UTC)
        await asyncio.gather(*(views.add("home", 1) for _ in range(500)), *(views.add("cart", 2) for _ in range(50)))
        await views.add("cart", -1)
        token = views.token("order-17")
        for _ in range(3):
            await views.add("home", 10, token=token)
        assert {"home": 510, "cart": 99, "none": 0} == await views.values(["home", "cart", "none"])
        assert (510, True) == ((report := await views.cached("home")).value, report.age_s <= 1)
        assert 510 == await views.value("home", since=begin)
        assert 0 == await views.value("home", until=begin - timedelta(hours=1))
        assert {"home": 510, "cart": 99} == {key: state.value() async for key, state in views.scan()}

    shop.connected(work)

    async def read_elsewhere(connection: headgate.Headgate) -> None:
        views = await connection.counter("shop/page-views")
        await views.add("home", 5)
        assert 515 == await views.value("home")

    shop.connected(read_elsewhere)


def test_audiences_of_two_counters_are_combined(shop: Commands) -> None:
    async def work(connection: headgate.Headgate) -> tuple[float, float, float]:
        visitors = await connection.counter("shop/visitors")
        buyers = await connection.counter("shop/buyers")
        await asyncio.gather(visitors.add("mon", *range(300)), buyers.add("mon", *range(200, 400)))
        came, bought = await visitors.state("mon"), await buyers.state("mon")
        return tuple(each.value().estimate for each in (came & bought, came | bought, came - bought))  # type: ignore[return-value]

    assert (100.0, 400.0, 200.0) == shop.connected(work)


def test_threads_without_a_loop_count_together(shop: Commands) -> None:
    with headgate.connect_sync(shop.connection_variables) as p:
        views = p.counter("shop/page-views")
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: views.add("threads", number), range(100)))
        assert 4950 == views.value("threads")
        assert 4950 == {key: state.value() for key, state in views.scan()}["threads"]
        views.add("threads", 1, token=views.token())
        assert 4951 == views.cached("threads").value
        colour = p.counter("shop/colour")
        colour.set("door", "red")
        colour.set("door", "blue")
        assert "blue" == colour.value("door").value
        assert "shop/page-views" in p.counters("shop")


def test_shards_that_ended_are_collected_and_the_value_stays(shop: Commands) -> None:
    async def work(connection: headgate.Headgate) -> None:
        """Its mutators live for two seconds, and are final three later: above the hint window of this server."""
        counter = await connection.counter("shop/short-lived")
        life = LifeTerms(lifetime_us=2000 * MS_US, refuse_within_us=1000 * MS_US)
        settings = replace(counter.handle.settings, life=life, gc_after_us=3000 * MS_US)
        hints = connection.process_context.hints
        assert hints is not None
        hasty = CounterHandle(counter.handle.host, settings)
        collector = Collector(hasty.host, Live(settings), hasty.kind, hints)
        added = collected = 0
        while hasty.mutator.born < 3:
            await hasty.add("home", 1)
            added += 1
        while collected < 2:
            report = await collector.run()
            assert report.refused is None
            collected += report.collected
            assert added == await counter.value("home")
        collector.live.set(replace(settings, gc_after_us=1050 * MS_US))
        refused = (await collector.run()).refused
        assert refused is not None
        assert "hint_window_s=1.0" in refused
        assert "raise spec.gc.after" in refused
        assert refused == (await counter.standing()).refused
        await hasty.close()

    shop.connected(work)


def test_a_counter_of_another_loop_or_process_reports_it(shop: Commands) -> None:
    async def work(connection: headgate.Headgate) -> None:
        views = await connection.counter("shop/page-views")

        def use_elsewhere() -> None:
            with pytest.raises(WrongEventLoop):
                asyncio.run(views.add("home", 1))

        await asyncio.to_thread(use_elsewhere)
        child = os.fork()
        if child == 0:  # nothing of the parent's may be used here, least of all its way out
            try:
                views.add("home", 1).send(None)
            except WrongProcess:
                os._exit(7)
            finally:
                os._exit(1)
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert 7 == os.waitstatus_to_exitcode(status)

    shop.connected(work)


PROGRAMS = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "counters.md").read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_how_to_runs_as_it_is_printed(shop: Commands, number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[number]],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **shop.connection_variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert (0, "") == (done.returncode, done.stderr), done.stdout


def test_a_type_of_ones_own_is_used_by_whichever_process_has_its_distribution(shop: Commands, tmp_path: Path) -> None:
    (program,) = [each for each in PROGRAMS if "class Longest" in each]
    (tmp_path / "acme_counters.py").write_text(program)
    announced = tmp_path / "acme_counters-1.dist-info"
    announced.mkdir()
    (announced / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-counters\nVersion: 1\n")
    (announced / "entry_points.txt").write_text("[headgate.counter_types]\nacme/longest = acme_counters:Longest\n")
    installed = Commands({**shop.connection_variables, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})
    for word in ("tea", "rice", "milk"):
        assert 0 == installed.in_own_process("counter", "add", "depot/foreign", "menu", word).code
    assert ["milk"] == installed.in_own_process("counter", "get", "depot/foreign", "menu").out
    elsewhere = shop.in_own_process("counter", "get", "depot/foreign", "menu")
    assert (2, 1) == (elsewhere.code, len(elsewhere.err)), elsewhere
    assert "install the distribution that registers it" in elsewhere.err[0]


# ---- commands


def test_a_command_adds_and_another_reports(shop: Commands) -> None:
    assert (0, [], []) == (
        (done := shop.in_own_process("counter", "add", "shop/page-views", "shell", "41")).code,
        done.out,
        done.err,
    )
    assert 0 == shop("counter", "add", "shop/page-views", "shell").code
    assert ["42"] == shop.in_own_process("counter", "get", "shop/page-views", "shell").out
    assert 0 == shop("counter", "add", "shop/page-views", "shell", "-2").code
    once = shop("counter", "add", "--new-token", "shop/page-views", "shell", "5")
    token = once.err[0].removeprefix("token ")
    assert 0 == shop("counter", "add", "--token", token, "shop/page-views", "shell", "5").code
    assert ["shell\t45", "none\t0"] == shop("counter", "get", "shop/page-views", "shell", "none").out
    since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    assert ["45"] == shop("counter", "get", "shop/page-views", "shell", "--since", since).out
    assert 0 == shop("counter", "add", "shop/colour", "sky", "grey").code
    assert "grey" == json.loads(shop("counter", "get", "shop/colour", "sky").out[0])["value"]
    assert 0 == shop("counter", "add", "--json-values", "shop/colour", "sky", '{"is": ["blue"]}').code
    assert {"is": ["blue"]} == json.loads(shop("counter", "get", "shop/colour", "sky").out[0])["value"]


def test_top_reports_keys_and_items_merge_combines_and_export_has_all(shop: Commands) -> None:
    for item, count in (("home", "30"), ("cart", "7"), ("search", "9")):
        assert 0 == shop("counter", "add", "shop/pages", "mon", item, count).code
    assert 0 == shop("counter", "add", "shop/pages", "tue", "cart", "5").code
    items = shop("counter", "top", "shop/pages", "mon", "--limit", "2").out
    assert [["item", "count", "low", "high"], ["home", "30", "30", "30"], ["search", "9", "9", "9"]] == [
        line.split() for line in items
    ]
    keys = shop("counter", "top", "shop/pages", "--limit", "1").out
    assert ["key", "value"] == keys[0].split()
    assert "mon" == keys[1].split()[0]
    both = json.loads(shop("counter", "merge", "shop/pages", "mon", "tue", "--param", "limit=1").out[0])
    assert [("home", 30)] == [(each["item"], each["count"]) for each in both["items"]]
    assert 51 == both["total"]
    for actor in ("1", "2", "3"):
        assert 0 == shop("counter", "add", "shop/visitors", "wed", actor).code
    assert 0 == shop("counter", "add", "shop/buyers", "wed", "3", "4").code
    text = {
        how: json.loads(
            shop("counter", "merge", "shop/visitors", "wed", "--with", "shop/buyers", "wed", "--how", how).out[0]
        )["estimate"]
        for how in ("or", "and", "not")
    }
    assert {"or": 4.0, "and": 1.0, "not": 2.0} == text
    exported = shop("counter", "export", "shop/pages", "--states")
    lines = {line["key"]: line for line in map(json.loads, exported.out)}
    assert lines.keys() == set(shop("counter", "export", "shop/pages", "-o", "name").out)
    assert {"mon": 46, "tue": 5} == {key: line["value"]["total"] for key, line in lines.items()}
    topk = type_of("topk")
    assert 46 == topk.value(topk.load(base64.b64decode(lines["mon"]["state"])), {}).total


def test_gc_collects_one_or_all_of_a_namespace_with_its_schedule(shop: Commands) -> None:
    one = shop.in_own_process("gc", "shop/page-views")
    assert 0 == one.code, one
    assert "shop/page-views: " in one.out[0]
    assert "0 of 0 ended shards merged" in one.out[0]
    hourly = shop("gc", "--namespace", "depot", "--schedule", "0  *  * * *")
    assert (4, 1) == (hourly.code, len(hourly.out)), hourly
    assert hourly.out[0].startswith("depot/hasty: 0 keys")
    assert ["depot/foreign: There is no such type of counter (type=acme/longest)"] == [
        line.partition(";")[0] for line in hourly.err
    ]
    daily = shop("gc", "--namespace", "depot", "--schedule", "0 3 * * *")
    assert (0, 1, []) == (daily.code, len(daily.out), daily.err)
    none = shop("gc", "--namespace", "nowhere")
    assert (0, ["no counter in nowhere"]) == (none.code, none.err)


def test_a_counter_that_is_not_there_has_an_exit_code_of_its_own(shop: Commands) -> None:
    done = shop("counter", "get", "shop/page-view", "home")
    assert (3, True) == (done.code, "did you mean shop/page-views?" in done.err[0])
    listed = shop("counter", "list", "--namespace", "shop", "-o", "json")
    assert {"name": "shop/page-views"} in json.loads(listed.out[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["counter", "add", "shop/page-views", "home", "much"], "wanted=one whole number"),
        (["counter", "add", "shop/page-views", "home", "1", "--token", "mine"], "token"),
        (["counter", "add", "--verb", "remove", "shop/page-views", "home"], "available: add"),
        (["counter", "add", "--json-values", "shop/colour", "home", "red"], "The value is not JSON"),
        (["counter", "get", "shop/visitors", "mon", "--since", "2026-01-01"], "This counter has no windows"),
        (["counter", "get", "shop/pages", "mon", "--param", "limit"], "--param is NAME=JSON"),
        (["counter", "get", "shop/pages", "mon", "--param", "depth=3"], "available: limit"),
        (["counter", "top", "shop/page-views", "home"], "Only keys of type topk have items"),
        (["counter", "top", "shop/colour"], "Values of this type have no order"),
        (["counter", "merge", "shop/page-views"], "A merge needs keys"),
        (["counter", "merge", "shop/page-views", "a", "b", "--how", "and"], "use a counter of type audience"),
        (["counter", "merge", "shop/visitors", "mon", "--with", "shop/pages", "mon"], "different types"),
        (["gc"], "name a counter as NAMESPACE/NAME, or give --namespace"),
        (["gc", "shop/page-views", "--schedule", "0 * * * *"], "give --namespace too"),
        (["gc", "--namespace", "shop", "--schedule", "whenever"], "must be a cron schedule"),
    ],
)
def test_a_mistake_is_one_clear_line(shop: Commands, arguments: list[str], message: str) -> None:
    done = shop(*arguments)
    assert (2, 1, []) == (done.code, len(done.err), done.out), done
    assert message in done.err[0]
