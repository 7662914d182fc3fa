"""The commands on a real Cassandra: what they do, what they print, how they end, and the report of a mistake.

Each is run once as a process of its own, and otherwise by its `main` in this one, which is quicker.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

import headgate
from dev.servers.cassandra.serving import Serving
from headgate.cli.main import COMMANDS, main
from headgate.engines.timeline.lanes.timeline_lanes import lane_of
from headgate.engines.timeline.repair.repair import REPAIR_LANE, Leader
from headgate.local.processes import wait_until
from tests.system.sdk.commands import Commands, Ran

KEYSPACE = f"commands_{uuid.uuid4().hex[:12]}"
LOST = f"{KEYSPACE}_lost"
TIMES = "part: 1s, safetyLag: 200ms, lateWriteTimeout: 1200ms, lease: {ttl: 4s, touch: 500ms}"
NEAR = f"maxClockSkew: 100ms, timeline: {{{TIMES}}}"
SHARED = "storage: {tables: shared}"
EVERY_FIVE, HOURLY = "*/5 * * * *", "0 * * * *"


def queue_of(name: str, spec: str, namespace: str = "shop") -> str:
    """A queue whose clocks are near, so that nothing waits long."""
    return (
        "---\napiVersion: headgate.io/v1beta1\nkind: Queue\n"
        f"metadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{NEAR}, {spec}}}\n"
    )


QUEUES = "".join(
    [
        queue_of("emails", f"shards: 2, maxReceives: 3, deadLetter: emails-dead, {SHARED}"),
        queue_of("emails-dead", f"shards: 1, {SHARED}"),
        queue_of("checked", f"shards: 2, {SHARED}"),
        queue_of("tidy", f"shards: 1, {SHARED}", "depot"),
        queue_of("broken", f"shards: 1, storage: {{keyspace: {LOST}}}", "depot"),
        queue_of("parcels", f"shards: 1, {SHARED}", "depot"),
        queue_of("hourly", f"shards: 1, repair: {{schedule: '{HOURLY}'}}, {SHARED}", "depot"),
    ]
)


@pytest.fixture(scope="module")
def run(cassandra: Serving, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """The commands, on queues that were applied; one of them has lost its keyspace since."""
    commands = Commands({**cassandra.environment(), "KEYSPACE": KEYSPACE})
    file = tmp_path_factory.mktemp("commands") / "queues.yaml"
    file.write_text(QUEUES)
    done = commands("apply", str(file))
    assert (0, 7) == (done.code, sum(" created " in line for line in done.out)), done
    cassandra.cql(f"DROP KEYSPACE {LOST}")
    yield commands
    cassandra.cql(f"DROP KEYSPACE {KEYSPACE}")


def emptied(run: Commands, queue: str = "shop/emails") -> None:
    """Nothing is in the queue."""
    assert 0 == run("purge", queue, "--yes").code


def test_queues_are_listed_and_their_names_complete_in_a_shell(run: Commands) -> None:
    names = ["shop/checked", "shop/emails", "shop/emails-dead"]
    assert names == run("queues", "--namespace", "shop").out
    assert [{"name": name} for name in names] == json.loads(run("queues", "--namespace", "shop", "-o", "json").out[0])
    words = {"_HEADGATE_COMPLETE": "bash_complete", "COMP_WORDS": "headgate stats shop/em", "COMP_CWORD": "2"}
    offered = (
        CliRunner().invoke(main, [], prog_name="headgate", env={**run.connection_variables, **words}).output.split()
    )
    assert ["plain,shop/emails", "plain,shop/emails-dead"] == offered


def stats(run: Commands, queue: str = "shop/emails") -> dict[str, int]:
    """What the command counts."""
    text = json.loads(run("stats", queue, "-o", "json").out[0])
    return {name: text[name] for name in ("backlog", "in_flight", "delayed")}


# ---- a message from its beginning to its end


def test_what_is_sent_can_be_checked_counted_found_received_and_is_gone_then(run: Commands) -> None:
    sent = run.in_own_process("put", "shop/emails", '{"number": {n}}', "--count", "3")
    assert (0, 3, ["put 3"]) == (sent.code, len(set(sent.out)), sent.err)
    with ThreadPoolExecutor(3) as pool:
        checks = ["peek", "shop/emails"], ["stats", "shop/emails"]
        peeked, counted, result = pool.map(
            lambda each: run.in_own_process(*each), (*checks, ["locate", "shop/emails", sent.out[0]])
        )
    assert ["id", "state", "due", "since", "attempts", "group", "payload"] == peeked.out[0].split()
    assert [(each, "ready") for each in sent.out] == [tuple(line.split()[:2]) for line in peeked.out[1:]]
    assert ['{"number": 1}', '{"number": 2}', '{"number": 3}'] == [line[-13:] for line in peeked.out[1:]]
    assert ["backlog    3", "in flight  0", "delayed    0"] == counted.out[:3]
    assert "lanes      2, 0 held" in counted.out
    assert (0, "waiting") == (result.code, result.out[0])
    received = run.in_own_process("receive", "shop/emails", "--limit", "3", "--ack", "-o", "json")
    messages = [json.loads(line) for line in received.out]
    assert sorted(sent.out) == sorted(each["id"] for each in messages)
    assert {("application/json", 1)} == {(each["attributes"]["content-type"], each["attempt"]) for each in messages}
    assert {1, 2, 3} == {json.loads(each["payload"])["number"] for each in messages}
    assert (0, "settled") == ((gone := run("locate", "shop/emails", sent.out[0])).code, gone.out[0])
    assert ["no messages"] == run("peek", "shop/emails").out
    assert {"backlog": 0, "in_flight": 0, "delayed": 0} == stats(run)


def test_a_stream_is_sent_at_its_rate_and_a_line_of_input_is_a_message(run: Commands) -> None:
    began_s = time.monotonic()
    sent = run("put", "shop/emails", "number {n}", "--count", "30", "--rate", "20/s")
    assert (0, 30, "put 30") == (sent.code, len(set(sent.out)), sent.err[-1])
    assert time.monotonic() - began_s >= 1.4
    lines = run("put", "shop/emails", "--lines", "--quiet", given="one\ntwo\n")
    assert (0, [], "put 2") == (lines.code, lines.out, lines.err[-1])
    received = run("receive", "shop/emails", "--limit", "32", "--ack", "-o", "json")
    wanted = ["one", "two", *(f"number {number}" for number in range(1, 31))]
    assert sorted(wanted) == sorted(json.loads(line)["payload"] for line in received.out)


def test_what_is_sent_later_once_in_a_group_and_with_attributes_is_so(run: Commands) -> None:
    key = uuid.uuid4().hex
    twice = [run("put", "shop/emails", "x", "--once", key).out for _ in range(2)]
    assert twice[0] == twice[1]
    run("put", "shop/emails", "in order", "--group", "g", "--attribute", "colour=red=ish")
    later = run("put", "shop/emails", "later", "--delay", "1h").out[0]
    peeked = {line.split()[0]: line for line in run("peek", "shop/emails").out[1:]}
    assert (3, "later") == (len(peeked), peeked[later].split()[1])
    assert re.search(r"-59m\d*s?", peeked[later]), peeked[later]
    (report,) = [
        json.loads(line)
        for line in run("receive", "shop/emails", "--ack", "-o", "json", "--limit", "2").out
        if '"in order"' in line
    ]
    assert ("g", "red=ish") == (report["group"], report["attributes"]["colour"])
    emptied(run)


def test_what_is_received_without_ack_is_given_back_uncounted_also_when_it_is_interrupted(run: Commands) -> None:
    (sent,) = run("put", "shop/emails", "a check").out
    first = run("receive", "shop/emails", "--limit", "1")
    assert [sent, "a check"] == [first.out[0].split()[0], first.out[0][-7:]]
    with run.begin("receive", "shop/emails", "--follow") as following:
        assert following.stdout is not None
        line = following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert (130, sent) == (following.wait(20), line.split()[0])
    again = run("receive", "shop/emails", "--limit", "1", "--ack", "-o", "json")
    assert (sent, 1) == ((text := json.loads(again.out[0]))["id"], text["attempt"])


def test_what_was_sent_for_later_can_be_cancelled_and_what_is_due_cannot(run: Commands) -> None:
    (later,) = run("put", "shop/emails", "later", "--delay", "1h").out
    (now,) = run("put", "shop/emails", "now").out
    done = run.in_own_process("cancel", "shop/emails", later, now)
    assert (4, [f"{later} cancelled", f"{now} too late"]) == (done.code, done.out)
    assert "cancelled" == run("locate", "shop/emails", later).out[0]
    emptied(run)


def test_a_purge_settles_what_is_there_when_it_is_meant(run: Commands) -> None:
    run("put", "shop/emails", "x", "--count", "3")
    run("put", "shop/emails", "later", "--delay", "1h")
    doubted = run("purge", "shop/emails", given="n\n")
    asked = "Delete 4 messages (3 ready, 0 in flight, 1 delayed) in shop/emails? [y/N]"
    assert asked in " ".join(doubted.err)
    assert (1, {"backlog": 3, "in_flight": 0, "delayed": 1}) == (doubted.code, stats(run))
    instant = datetime.now(UTC).isoformat()
    (young,) = run("put", "shop/emails", "young").out
    older = run("purge", "shop/emails", "--yes", "--until", instant)
    assert [f"deleted messages put before {instant}"] == older.out
    assert [young] == [line.split()[0] for line in run("peek", "shop/emails").out[1:]]
    done = run.in_own_process("purge", "shop/emails", "--yes")
    assert (0, True) == (done.code, done.out[0].startswith("deleted messages put before "))
    assert ["no messages"] == run("peek", "shop/emails").out


def test_dead_letters_are_redriven_each_once(run: Commands) -> None:
    emptied(run)
    run("put", "shop/emails", "poison {n}", "--count", "3")
    run("put", "shop/emails-dead", "of nowhere")
    run("put", "shop/emails-dead", "of one gone", "--attribute", "headgate.dead.queue=shop/gone")

    async def kill(connection: headgate.Headgate) -> None:
        queue = await connection.queue("shop/emails")
        killed = 0
        while killed < 3:
            given = await queue.receive(3)
            await queue.settle([headgate.settle.DeadLetter(each.receipt, "invalid address") for each in given])
            killed += len(given)

    run.connected(kill)
    assert 5 == stats(run, "shop/emails-dead")["backlog"]
    left = [
        "skipped 1: it has no source queue; give a target",
        "skipped 1: its source queue does not exist; give a target",
    ]
    done = run.in_own_process("redrive", "shop/emails-dead")
    assert (4, "moved 3", left) == (done.code, done.out[0], sorted(done.out[1:]))
    again = run("redrive", "shop/emails-dead", "-o", "json")
    assert (4, 0, 2) == (again.code, (text := json.loads(again.out[0]))["moved"], len(text["skipped"]))
    absent = run("redrive", "shop/emails-dead", "--id", run("put", "shop/emails", "elsewhere").out[0])
    assert (3, ["moved 0", "skipped 1: it is not in this queue"]) == (absent.code, absent.out)
    emptied_of_one = run("receive", "shop/emails", "--limit", "4", "--ack", "-o", "json")
    nowhere = run("redrive", "shop/emails-dead", "--to", "shop/gone")
    assert (3, True) == (nowhere.code, nowhere.err[0].startswith("There is no such queue"))
    back = sorted((json.loads(line) for line in emptied_of_one.out), key=lambda each: str(each["payload"]))
    assert ["elsewhere", "poison 1", "poison 2", "poison 3"] == [each["payload"] for each in back]
    assert [{}] * 4 == [{name for name in each["attributes"] if "dead" in name} or {} for each in back]
    assert ["moved 2"] == run("redrive", "shop/emails-dead", "--to", "shop/emails").out
    emptied(run)


def test_top_shows_every_queue_with_what_is_behind_first_and_continues_until_it_is_reported(run: Commands) -> None:
    run("put", "depot/parcels", "x", "--count", "40")

    async def receive_slowly(connection: headgate.Headgate) -> list[dict[str, object]]:
        """Only the owner of a lane reports its state."""
        queue = await connection.queue("depot/parcels")
        await queue.receive(1)
        while True:
            shown = await asyncio.to_thread(run.in_own_process, "top", "--snapshot", "-o", "json")
            queues: list[dict[str, object]] = json.loads(shown.out[0])["queues"]
            if queues[0]["backlog"]:
                return queues

    queues = run.connected(receive_slowly)
    assert ("depot/parcels", 1) == (queues[0]["queue"], queues[0]["workers"])
    assert 39 <= int(str(queues[0]["backlog"])) <= 40
    assert {"shop/emails", "depot/hourly", "depot/broken"} < {each["queue"] for each in queues}
    with run.begin("top", "--namespace", "depot", "--every", "100ms", "-o", "table") as showing:
        assert showing.stdout is not None
        checks = [showing.stdout.readline() for _ in range(10)]
        showing.send_signal(signal.SIGINT)
        assert 0 == showing.wait(20)
    assert 2 == sum(line.split()[:2] == ["queue", "backlog"] for line in checks), checks
    assert not any("shop/" in line for line in checks)
    emptied(run, "depot/parcels")


# ---- repair


def repaired(line: str) -> tuple[str, int]:
    """The queue, and the number of checked parts."""
    result = re.fullmatch(r"(\S+): checked (\d+) parts; .*", line)
    assert result, line
    return result[1], int(result[2])


def passed(run: Commands, queue: str, count: int) -> None:
    """Messages were put, received and settled, and their parts can be checked for the first time."""
    run("put", queue, "x", "--count", str(count), "--quiet")
    assert count == len(run("receive", queue, "--limit", str(count), "--ack").out)


def until_owed(run: Commands, queue: str) -> None:
    """A check is due. The position of a lane passes a part only while a process holds the lane."""

    async def hold(connection: headgate.Headgate) -> None:
        held = await connection.queue(queue)
        while True:
            assert [] == await held.receive(1, wait=0.5)
            standing = (await held.read_stats()).repair
            assert standing is not None
            if standing.owed_since_us is not None:
                return

    run.connected(hold)


def test_repair_checks_once_at_what_is_owed_shows_how_far_it_is_and_continues_from_there(run: Commands) -> None:
    assert "repair     never run; nothing overdue" in run("stats", "shop/checked").out
    passed(run, "shop/checked", 20)
    until_owed(run, "shop/checked")
    (owes,) = [line for line in run("stats", "shop/checked").out if line.startswith("repair")]
    assert re.fullmatch(r"repair     never run; oldest check overdue for \d+\S*", owes), owes
    first = run.in_own_process("repair", "shop/checked")
    assert (0, []) == (first.code, first.err)
    assert repaired(first.out[0])[1] >= 1
    (stands,) = [line for line in run("stats", "shop/checked").out if line.startswith("repair")]
    assert re.fullmatch(
        r"repair     last run \d+m?s ago; checked what was due until \d+s ago; nothing overdue", stands
    ), stands
    assert ("shop/checked", 0) == repaired(run("repair", "shop/checked").out[0])
    shown = run("stats", "shop/checked", "--lanes").out
    (last,) = [line for line in shown if line.startswith("last pass")]
    assert re.fullmatch(r"last pass  \d+m?s ago: checked 0 parts; 0 of 0 late rows put again", last), last
    assert shown[-3].startswith("lane  state  owner  fencing token  lease left  progress  settled up to"), shown[-3]
    assert [["1/0", "free", "-"], ["1/1", "free", "-"]] == [line.split()[:3] for line in shown[-2:]]


def test_one_process_repairs_a_queue_at_a_time_and_when_it_dies_the_next_one_does(run: Commands) -> None:
    async def hold(connection: headgate.Headgate) -> tuple[Ran, Ran]:
        """As a process that repairs for a while, and then dies."""
        engine = (await connection.queue("shop/checked")).engine
        lane = lane_of(engine.host, engine.settings, (REPAIR_LANE.number, 0))
        lanes = await lane.read_state()
        lease_term = None if lanes is None else await lane.take(lanes)
        assert lanes is not None and lease_term is not None
        touching = asyncio.ensure_future(Leader(engine.host, lane, lanes, lease_term).keep_touching())
        try:
            return (
                await asyncio.to_thread(run.in_own_process, "repair", "shop/checked"),
                await asyncio.to_thread(run.in_own_process, "stats", "shop/checked"),
            )
        finally:
            touching.cancel()

    passed(run, "shop/checked", 20)
    until_owed(run, "shop/checked")
    meanwhile, shown = run.connected(hold)
    assert (0, ["shop/checked: another process repairs this queue"]) == (meanwhile.code, meanwhile.out)
    assert any(line.startswith("repair     running; ") for line in shown.out), shown
    taken_up = wait_until(
        lambda: run("repair", "shop/checked").out[0].startswith("shop/checked: checked"),
        timeout_s=20,
    )
    assert taken_up


def test_a_job_repairs_every_queue_of_its_schedule_and_one_that_fails_stops_no_other(run: Commands) -> None:
    done = run.in_own_process("repair", "--namespace", "depot", "--schedule", EVERY_FIVE)
    assert 4 == done.code
    assert {"depot/parcels", "depot/tidy"} == {repaired(line)[0] for line in done.out}
    assert {"depot/broken"} == {line.partition(":")[0] for line in done.err}
    assert not any("Traceback" in line for line in done.err)
    hourly = run("repair", "--namespace", "depot", "--schedule", "0  *  * * *")
    assert (0, ["depot/hourly"]) == (hourly.code, [repaired(line)[0] for line in hourly.out])
    whole = run("repair", "--namespace", "depot")
    assert (4, 3) == (whole.code, len(whole.out))
    others = run("repair", "--namespace", "depot", HEADGATE_CONNECTION="other-cassandra")
    assert (0, ["no queue in depot"]) == (others.code, others.err)
    for arguments, message in (
        (
            ("--namespace", "depot", "--schedule", "1 2 3 * *"),
            "no queue in depot has the repair schedule '1 2 3 * *'",
        ),
        (("--namespace", "nowhere"), "no queue in nowhere"),
    ):
        nothing = run("repair", *arguments)
        assert (0, [], [message]) == (nothing.code, nothing.out, nothing.err)


def test_two_jobs_at_once_do_no_harm(run: Commands) -> None:
    with ThreadPoolExecutor(2) as pool:
        both = list(
            pool.map(
                lambda _: run.in_own_process("repair", "--namespace", "shop", "--schedule", EVERY_FIVE), range(2)
            )
        )
    assert [(0, 3, [])] * 2 == [(each.code, len(each.out), each.err) for each in both], both


# ---- mistakes

NO_SERVER = {"CONTACT_POINTS": "127.0.0.1:1"}
OF_A_QUEUE = {
    "cancel": ["aeaqaaaa"],
    "peek": [],
    "purge": ["--yes"],
    "receive": [],
    "redrive": [],
    "repair": [],
    "put": ["x"],
    "stats": [],
    "locate": ["aeaqaaaa"],
}
"""What each needs beside its queue."""


@pytest.mark.parametrize("command", sorted(OF_A_QUEUE))
def test_a_queue_that_is_not_there_is_one_line(run: Commands, command: str) -> None:
    done = run(command, "shop/emials", *OF_A_QUEUE[command])
    line = "There is no such queue (queue=shop/emials); did you mean shop/emails?"
    assert (3, [], [line]) == (done.code, done.out, done.err)


@pytest.mark.parametrize("command", [*sorted(OF_A_QUEUE), "top", "apply"])
def test_no_server_is_one_line(run: Commands, command: str, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text(queue_of("x", SHARED))
    rest = {"top": ["--snapshot"], "apply": [str(tmp_path / "q.yaml")]}
    arguments = rest.get(command) or ["shop/emails", *OF_A_QUEUE[command]]
    done = run(command, *arguments, **NO_SERVER)
    line = (
        "headgate: No server listens at the contact points (at=127.0.0.1:1); start Cassandra, or fix CONTACT_POINTS"
    )
    assert (1, [], [line]) == (done.code, done.out, done.err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["put", "shop/emails", "x", "--delay", "soon"], "'soon' is not a duration such as 500ms"),
        (["put", "shop/emails", "x", "--deliver-at", "noon"], "'noon' is not a time such as"),
        (["put", "shop/emails", "x", "--rate", "0"], "'0' is not a rate such as 50/s"),
        (["put", "shop/emails", "x", "--count", "0"], "0 is not in the range x>=1"),
        (["put", "shop/emails", "x", "--attribute", "red"], "An attribute is written NAME=VALUE"),
        (
            ["put", "shop/emails", "x", "--delay", "1s", "--deliver-at", "2030-01-01"],
            "--delay and --deliver-at exclude each other",
        ),
        (["put", "shop/emails", "x", "--lines"], "A payload is an argument, or comes from a file"),
        (["put", "shop/emails", "x", "--delay", "9000d"], "due"),
        (["put"], "Missing argument 'NAMESPACE/NAME'"),
        (["put", "a/b/c", "x"], "A queue is named NAMESPACE/NAME"),
        (["receive", "shop/emails", "--wait", "5"], "'5' is not a duration"),
        (["receive", "shop/emails", "--limit", "0"], "0 is not in the range x>=1"),
        (["peek", "shop/emails", "--since", "yesterday"], "'yesterday' is not a time"),
        (["locate", "shop/emails", "nonsense"], "Not a message id (id=nonsense)"),
        (["cancel", "shop/emails", "nonsense"], "Not a message id (id=nonsense)"),
        (["cancel", "shop/emails"], "Missing argument 'ID...'"),
        (["purge", "shop/emails", "--yes", "--until", "2990-01-01"], "A purge needs an enqueue time in the past"),
        (["top", "--every", "often"], "'often' is not a duration"),
        (
            ["redrive", "shop/emails-dead", "--to", "shop/emails-dead"],
            "A dead-letter queue is not its own target",
        ),
        (["repair"], "repair needs one target; name a queue as NAMESPACE/NAME, or give --namespace"),
        (["repair", "shop/emails", "--schedule", EVERY_FIVE], "--schedule selects queues of a namespace"),
        (["repair", "--namespace", "depot", "--schedule", "whenever"], "--schedule must be a cron schedule"),
        (["pat", "shop/emails"], "No such command 'pat'. Did you mean put?"),
    ],
)
def test_a_mistake_is_one_clear_line(run: Commands, arguments: list[str], message: str) -> None:
    done = run(*arguments)
    text = [line for line in done.err if line and not line.startswith(("Usage: ", "Try "))]
    assert (2, 1, []) == (done.code, len(text), done.out), done
    assert message in text[0]


def test_every_command_on_a_queue_is_tried_here() -> None:
    elsewhere = {"apply", "check", "counter", "dev", "gc", "init", "validate", "worker"}  # check: by `helm test`
    assert set(COMMANDS) == set(OF_A_QUEUE) | {"top", "queues"} | elsewhere
