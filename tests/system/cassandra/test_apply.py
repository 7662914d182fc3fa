"""`headgate apply` on a real server: by many at once, without rights, and for resources of another manager."""

# ruff: noqa: S608 - names are made here
from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from dev.servers.cassandra import Credentials, Grant, create_role_statements
from dev.servers.cassandra.serving import Serving
from headgate.api.read.parse import parse_resource
from headgate.applying.apply import Applied, Applier
from headgate.applying.decide_steps import Forget, ForgetRows, MakeLanes, MarkDeleting, Retain
from headgate.applying.desired_state import PlacementDefaults
from headgate.applying.perform_steps import StepPerformer
from headgate.engines.registry import StoredRecord
from headgate.errors import Conflict
from headgate.store.cassandra.node_queries import CassandraTimes
from headgate.store.cassandra.schema import CassandraSchema
from headgate.store.cassandra.settings import read_settings
from headgate.store.cassandra.store import CassandraStore
from headgate.store.catalogue.catalogue import Catalogue
from headgate.store.catalogue.decide_generation import Generation
from headgate.store.catalogue.entry import EntryState, KnownEntry, Name
from headgate.store.catalogue.tables import CATALOGUE_TABLES
from headgate.store.clock.clock import Clock
from headgate.store.model.table import Column, Table
from headgate.store.model.types import Type

COMMAND = [sys.executable, "-m", "headgate.cli.main", "apply"]
EMAILS = Name("Queue", "shop", "emails")
QUEUE = """
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {name}, namespace: shop}}
spec: {spec}
"""


@pytest.fixture
def keyspace(cassandra: Serving) -> Iterator[str]:
    """A keyspace that no other test uses; gone afterwards, since tables count against the bound on them."""
    name = f"a_{uuid.uuid4().hex[:12]}"
    yield name
    for each in (name, f"{name}_b"):
        cassandra.cql(f"DROP KEYSPACE IF EXISTS {each}")


class Run:
    """`headgate apply` with what it printed."""

    def __init__(self, done: subprocess.Popen[str]) -> None:
        self.out, self.error = done.communicate(timeout=120)
        self.code = done.returncode


def start(environment: Mapping[str, str], *arguments: str | Path) -> subprocess.Popen[str]:
    """Start it as a person would."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def apply(environment: Mapping[str, str], *arguments: str | Path) -> Run:
    """Run it to its end."""
    return Run(start(environment, *arguments))


def queue_file(directory: Path, spec: str = "{shards: 6}", name: str = "emails") -> Path:
    """A file with one queue."""
    file = directory / f"{uuid.uuid4().hex}.yaml"
    file.write_text(QUEUE.format(name=name, spec=spec))
    return file


def with_keyspace(server: Serving, keyspace: str) -> dict[str, str]:
    """The server's environment, with a catalogue of the test's own."""
    return {**server.environment(), "KEYSPACE": keyspace}


def role(server: Serving, keyspace: str, *grants: Grant) -> dict[str, str]:
    """The environment of somebody with these rights alone."""
    someone = Credentials(f"r_{keyspace}", "secret")
    for statement in create_role_statements(someone, grants):
        server.cql(statement)
    return {**with_keyspace(server, keyspace), "USERNAME": someone.username, "PASSWORD": someone.password}


def test_it_makes_keyspace_catalogue_and_entry_and_does_nothing_the_second_time(
    cassandra: Serving, keyspace: str, tmp_path: Path
) -> None:
    file, environment = queue_file(tmp_path), with_keyspace(cassandra, keyspace)
    first, second = apply(environment, file), apply(environment, file)
    assert (0, 0) == (first.code, second.code), first.error + second.error
    assert first.out.startswith("queue/shop/emails created (id ")
    assert second.out.startswith("queue/shop/emails unchanged (id ")
    assert 1 == len(second.out.splitlines())
    replication = cassandra.cql(f"SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'")
    assert "NetworkTopologyStrategy" in str(replication[0]["replication"])


def test_five_at_once_make_one_entry_and_all_succeed(cassandra: Serving, keyspace: str, tmp_path: Path) -> None:
    file, environment = queue_file(tmp_path), with_keyspace(cassandra, keyspace)
    runs = [Run(process) for process in [start(environment, file) for _ in range(5)]]
    assert [0] * 5 == [run.code for run in runs], "".join(run.error for run in runs)
    assert 1 == len({re.findall("id ([0-9a-f-]{36})", run.out)[0] for run in runs})
    outcomes = [run.out.split()[1] for run in runs]
    assert (1, 4) == (outcomes.count("created"), sum(outcome in ("unchanged", "updated") for outcome in outcomes))
    assert "unchanged" in apply(environment, file).out


def test_a_second_owner_is_refused_in_one_line(cassandra: Serving, keyspace: str, tmp_path: Path) -> None:
    file, environment = queue_file(tmp_path), with_keyspace(cassandra, keyspace)
    apply(environment, file)
    other = apply(environment, "--as", "others", queue_file(tmp_path, "{shards: 8}"))
    assert 2 == other.code
    assert "" == other.out
    assert 1 == len(other.error.splitlines())
    assert "owner=cli/headgate, you=cli/others" in other.error
    assert "unchanged" in apply(environment, file).out


def test_a_field_that_is_fixed_is_refused_with_the_line_of_the_api_server(
    cassandra: Serving, keyspace: str, tmp_path: Path
) -> None:
    environment = with_keyspace(cassandra, keyspace)
    apply(environment, queue_file(tmp_path))
    changed = apply(environment, queue_file(tmp_path, "{engine: bucket, shards: 6}"))
    assert 2 == changed.code
    assert "queue/shop/emails refused: spec.engine: engine is fixed when the queue is made" in changed.error
    assert "Traceback" not in changed.error


def test_other_resources_continue_when_one_is_refused(cassandra: Serving, keyspace: str, tmp_path: Path) -> None:
    environment = with_keyspace(cassandra, keyspace)
    apply(environment, queue_file(tmp_path))
    both = apply(environment, queue_file(tmp_path, "{engine: bucket}"), queue_file(tmp_path, name="receipts"))
    assert 4 == both.code
    assert both.out.startswith("queue/shop/receipts created")


def test_another_number_of_shards_is_announced_as_a_generation(
    cassandra: Serving, keyspace: str, tmp_path: Path
) -> None:
    environment = with_keyspace(cassandra, keyspace)
    apply(environment, queue_file(tmp_path))
    more = apply(environment, queue_file(tmp_path, "{shards: 12}"))
    assert "updated" in more.out
    assert "6 shards, 12 from generation 2 on" in more.out
    again = apply(environment, queue_file(tmp_path, "{shards: 9}"))
    assert "being changed already" in again.out
    row = cassandra.cql(
        "SELECT id, generation, next_generation, next_shards, next_from_us, sure_us"
        f" FROM {keyspace}.catalogue_entries"
    )[0]
    assert (1, 2, 12) == (row["generation"], row["next_generation"], row["next_shards"])
    assert row["sure_us"] >= row["next_from_us"]
    assert {0: 1, 1: 6, 2: 12} == lanes_of(cassandra, keyspace, row["id"])


def lanes_of(server: Serving, keyspace: str, creation: Any) -> dict[int, int]:
    """How many lanes there are, by generation; 0 is repair's."""
    table = f"{keyspace}.q_{uuid.UUID(str(creation)).hex}_lanes"
    rows = server.cql(f"SELECT generation, shard, epoch, stop FROM {table}")
    assert {(0, 0)} == {(row["epoch"], row["stop"]) for row in rows}
    return dict(Counter(row["generation"] for row in rows))


def test_a_new_queue_has_its_tables_its_lanes_and_its_repair_lane_and_is_active(
    cassandra: Serving, keyspace: str, tmp_path: Path
) -> None:
    assert 0 == apply(with_keyspace(cassandra, keyspace), queue_file(tmp_path)).code
    row = cassandra.cql(f"SELECT id, state FROM {keyspace}.catalogue_entries")[0]
    assert ("active", {0: 1, 1: 6}) == (row["state"], lanes_of(cassandra, keyspace, row["id"]))


def test_an_existing_keyspace_is_used_as_it_is(cassandra: Serving, keyspace: str, tmp_path: Path) -> None:
    data_center = cassandra.connection.data_center
    cassandra.cql(
        f"CREATE KEYSPACE {keyspace} WITH durable_writes = false"
        f" AND replication = {{'class': 'NetworkTopologyStrategy', '{data_center}': 1}}"
    )
    assert 0 == apply(with_keyspace(cassandra, keyspace), queue_file(tmp_path)).code
    rows = cassandra.cql(f"SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'")
    assert [False] == [row["durable_writes"] for row in rows]


def test_a_user_without_the_right_to_create_gets_one_line_and_the_cql_and_continues_once_it_was_run(
    cassandra: Serving, keyspace: str, tmp_path: Path
) -> None:
    file = queue_file(tmp_path)
    environment = role(cassandra, keyspace, Grant("SELECT", "KEYSPACE system_schema"))

    def refused_until_run() -> None:
        refused, printed = apply(environment, file), apply(environment, "--dry-run", file)
        assert (1, 0, 1) == (refused.code, printed.code, len(refused.error.splitlines())), printed.error
        assert "administrator" in refused.error
        for statement in (each for each in refused.out.split(";\n") if each.startswith("CREATE")):
            assert statement in printed.out
            cassandra.cql(statement)

    refused_until_run()  # the catalogue
    for permission in ("SELECT", "MODIFY"):
        cassandra.cql(Grant(permission, f"KEYSPACE {keyspace}").cql(environment["USERNAME"]))
    refused_until_run()  # the queue's own tables, whose names follow from its entry
    assert "updated" in apply(environment, file).out
    assert ["-- nothing is missing"] == apply(environment, "--dry-run", file).out.splitlines()
    assert "unchanged" in apply(environment, file).out


def test_print_changes_nothing(cassandra: Serving, keyspace: str, tmp_path: Path) -> None:
    printed = apply(with_keyspace(cassandra, keyspace), "--dry-run", queue_file(tmp_path))
    assert f"CREATE TABLE IF NOT EXISTS {keyspace}.catalogue_entries (" in printed.out
    assert [] == cassandra.cql(f"SELECT * FROM system_schema.keyspaces WHERE keyspace_name = '{keyspace}'")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"CONTACT_POINTS": "127.0.0.1:1"}, "o server listens"),
        ({"DATA_CENTER": "mars"}, "data_center=mars"),
        ({"PASSWORD": "wrong"}, "USERNAME"),
        ({"CONTACT_POINTS": ""}, "CONTACT_POINTS is not set"),
    ],
)
def test_bad_surroundings_are_one_line(
    cassandra: Serving, keyspace: str, tmp_path: Path, change: dict[str, str], message: str
) -> None:
    run = apply({**with_keyspace(cassandra, keyspace), **change}, queue_file(tmp_path))
    assert run.code in (1, 2)
    assert 1 == len(run.error.splitlines()), run.error
    assert message in run.error


# With an engine that has one table and no lanes: by the function that the command and the operator call.

THINGS = Table("things", "things", partition=(Column("queue", Type.UUID),), columns=(Column("v", Type.BLOB),))


def shared_tables() -> tuple[Table, ...]:
    """As an engine's module has it."""
    return (THINGS.named("test_things"),)


def dedicated_tables(creation: uuid.UUID) -> tuple[Table, ...]:
    """As an engine's module has it."""
    return (THINGS.named(f"q_{creation.hex}_things"),)


RECORD = StoredRecord(shared_tables=shared_tables, dedicated_tables=dedicated_tables)


def applied(server: Serving, keyspace: str, *specs: dict[str, Any], tables_max: int = 10_000) -> list[Applied]:
    """Apply queues of a supported engine, one after the other."""

    async def run() -> list[Applied]:
        settings = read_settings(with_keyspace(server, keyspace))
        store = await CassandraStore.connect(settings, must_exist=False)
        try:
            async with Clock(CassandraTimes(store)) as clock:
                applier = Applier(
                    CassandraSchema(store),
                    Catalogue(store, now_us=clock.require, owner="cli/test"),
                    store.in_keyspace,
                    PlacementDefaults(keyspace, store.data_center, 1),
                    engines={"timeline": __name__},
                    tables_max=tables_max,
                )
                await applier.prepare()
                return await applier.apply([resource(spec) for spec in specs])
        finally:
            await store.close()

    def resource(spec: dict[str, Any]) -> Any:
        metadata = {"name": spec.pop("name", "emails"), "namespace": "shop"}
        return parse_resource(
            {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": metadata, "spec": spec}
        )

    return asyncio.run(run())


def tables_in(server: Serving, keyspace: str) -> set[str]:
    """All but the catalogue's."""
    rows = server.cql(f"SELECT table_name FROM system_schema.tables WHERE keyspace_name = '{keyspace}'")
    return {str(row["table_name"]) for row in rows} - {table.name for table in CATALOGUE_TABLES}


def test_tables_are_named_by_the_creation_and_the_entry_becomes_active(cassandra: Serving, keyspace: str) -> None:
    done = applied(cassandra, keyspace, {})[0]
    assert done.entry is not None
    assert EntryState.ACTIVE == done.entry.state
    assert {f"q_{done.entry.id.hex}_things"} == tables_in(cassandra, keyspace)


def test_tables_may_lie_in_a_keyspace_of_their_own(cassandra: Serving, keyspace: str) -> None:
    done = applied(cassandra, keyspace, {"storage": {"keyspace": f"{keyspace}_b", "tables": "shared"}})[0]
    assert ("created", {"test_things"}, set()) == (
        done.outcome,
        tables_in(cassandra, f"{keyspace}_b"),
        tables_in(cassandra, keyspace),
    )


def test_a_dropped_table_is_reported_and_never_recreated(cassandra: Serving, keyspace: str) -> None:
    applied(cassandra, keyspace, {"storage": {"tables": "shared"}})
    cassandra.cql(f"DROP TABLE {keyspace}.test_things")
    again = applied(cassandra, keyspace, {"name": "others", "storage": {"tables": "shared"}})[0]
    assert ["dropped"] == [drift.actual for drift in again.drifts]
    assert set() == tables_in(cassandra, keyspace)
    assert again.entry is not None
    assert EntryState.MAKING == again.entry.state


def test_dedicated_tables_past_the_bound_are_refused_before_anything_is_made(
    cassandra: Serving, keyspace: str
) -> None:
    refused, shared = applied(cassandra, keyspace, {}, {"storage": {"tables": "shared"}}, tables_max=4)
    assert refused.refused
    assert "storage.tables: shared" in refused.notes[0]
    assert "created" == shared.outcome


def test_a_home_elsewhere_is_refused(cassandra: Serving, keyspace: str) -> None:
    done = applied(cassandra, keyspace, {"storage": {"dataCenter": "mars"}})[0]
    assert done.refused
    assert "DATA_CENTER=mars" in done.notes[0]


# ---- what becomes of an entry whose resource goes: by the steps that the operator performs


def perform(server: Serving, keyspace: str, work: Callable[[StepPerformer, KnownEntry], Awaitable[None]]) -> None:
    """On the entry that stands."""

    async def run() -> None:
        store = await CassandraStore.connect(read_settings(with_keyspace(server, keyspace)))
        try:
            async with Clock(CassandraTimes(store)) as clock:
                catalogue = Catalogue(store, now_us=clock.require)
                known = await catalogue.find(EMAILS)
                assert known is not None
                await work(StepPerformer(CassandraSchema(store), catalogue, store.in_keyspace), known)
        finally:
            await store.close()

    asyncio.run(run())


def test_what_was_retained_is_refused_to_others_and_adopted_with_its_id(
    cassandra: Serving, keyspace: str, tmp_path: Path
) -> None:
    environment, file = with_keyspace(cassandra, keyspace), queue_file(tmp_path)
    created = apply(environment, file)

    async def retain(performer: StepPerformer, known: KnownEntry) -> None:
        await performer.perform(Retain(known.entry))

    perform(cassandra, keyspace, retain)
    refused = apply(environment, "--as", "others", file)
    assert (2, 1) == (refused.code, len(refused.error.splitlines()))
    assert "it was kept when its resource was deleted" in refused.error
    adopted = apply(environment, "--as", "others", "--adopt", file)
    assert adopted.out.startswith("queue/shop/emails updated (id "), adopted.error
    assert created.out.split()[-1] == adopted.out.split()[-1]
    assert "unchanged" in apply(environment, "--as", "others", file).out


def test_rows_in_shared_tables_are_forgotten_for_good_also_those_that_are_made_late(
    cassandra: Serving, keyspace: str, tmp_path: Path
) -> None:
    """A delete that is stamped ahead hides what an LWT writes after it: on a real server as in the simulation."""
    environment = with_keyspace(cassandra, keyspace)
    for name in ("emails", "others"):
        apply(environment, queue_file(tmp_path, "{shards: 2, storage: {tables: shared}}", name=name))

    async def remove(performer: StepPerformer, known: KnownEntry) -> None:
        marked = (await performer.perform(MarkDeleting(known.entry))).entry
        assert marked is not None
        for _ in range(2):  # a second leader does it again
            await performer.perform(ForgetRows("timeline", marked))
        await performer.perform(MakeLanes("timeline", known.entry, Generation(1, 2)))
        await performer.perform(Forget(marked))
        with pytest.raises(Conflict):
            await performer.perform(ForgetRows("timeline", marked))

    perform(cassandra, keyspace, remove)
    rows = cassandra.cql(f"SELECT queue, generation, epoch FROM {keyspace}.timeline_lanes")
    kept = cassandra.cql(
        f"SELECT id, state FROM {keyspace}.catalogue_entries WHERE namespace = 'shop' ALLOW FILTERING"
    )
    assert {"active", "gone"} == {str(row["state"]) for row in kept}
    assert {str(row["id"]) for row in kept if row["state"] == "active"} == {str(row["queue"]) for row in rows}
    assert 3 == len(rows)
    assert "created" in apply(environment, queue_file(tmp_path)).out
