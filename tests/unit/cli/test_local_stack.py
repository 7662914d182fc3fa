"""`headgate dev` without a Cassandra: which programs a file asks for, how they are kept running, and how they end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.api.read.loader import load_files
from headgate.api.read.parse import Resource
from headgate.api.resources.consumer import PodTemplate
from headgate.cli.main import COMMANDS
from headgate.local.cassandra import own_cassandra as kept_module
from headgate.local.cassandra.node import GivenUp
from headgate.local.cassandra.own_cassandra import OwnCassandra, Starting
from headgate.local.declared import Job, counted, jobs_due, jobs_of, of_template, suggestions_of, workers_of
from headgate.local.processes import Identity, wait_until
from headgate.local.programs import Pauses, Program, Programs, ended_how, pause_after
from headgate.local.stack import state_directory, without_own_connection
from headgate.process.pacing import ExponentialPause

ROOT = Path(__file__).parents[3]
QUICK = Pauses(again_s=0.01, again_s_max=0.04, long_s=60.0, grace_s=0.3)

# ---- which programs


def resources(folder: Path, *queues: str) -> list[Resource]:
    """Resources of a file, each given as its kind, name, namespace and spec."""
    file = folder / "queues.yaml"
    file.write_text(
        "".join(f"---\napiVersion: headgate.io/v1beta1\n{queue}\n" for queue in queues),
    )
    return list(load_files([file]))


def queue(name: str, spec: str, namespace: str = "shop") -> str:
    """One."""
    return f"kind: Queue\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {{{spec}}}"


def test_each_consumer_is_a_worker_reported_what_its_resource_states(tmp_path: Path) -> None:
    result = resources(
        tmp_path,
        queue("emails", "consumers: [{name: mailer, handler: 'mailer.tasks:send', concurrency: 3}]"),
        queue(
            "orders",
            "consumers: [{name: shop, image: 'r/x:1', http: {port: 8080, path: /work}, rate: 50/s,"
            " visibilityTimeout: 20s}]",
        ),
        queue("letters", "shards: 1"),
    )
    text = {each.name: " ".join(each.arguments) for each in workers_of(result)}
    quiet = "--health off --log text"
    assert {
        "emails/mailer": f"worker shop/emails --concurrency 3 {quiet} --handler mailer.tasks:send",
        "orders/shop": f"worker shop/orders --concurrency 16 {quiet} --http http://127.0.0.1:8080/work"
        " --rate 50/s --visibility 20s",
    } == text


TEMPLATE = """template: {metadata: {labels: {team: shop}}, spec: {nodeSelector: {disk: fast}, containers: [
    {name: worker, image: 'r/x:2', env: [{name: MODE, value: dry}, {name: EMPTY}, {name: URL, value: 'http://$(HOST)'},
     {name: TOKEN, valueFrom: {secretKeyRef: {name: t, key: k}}}]}, {name: beside, image: 'r/y:1'}]}}"""


def test_of_a_template_the_environment_of_the_worker_is_used_and_the_rest_is_named(tmp_path: Path) -> None:
    consumers = (
        f"consumers: [{{name: mailer, handler: 'mailer.tasks:send', {TEMPLATE}}}, {{name: b, handler: 'm:f'}}]"
    )
    mailer, other = workers_of(resources(tmp_path, queue("emails", f"engine: extent, {consumers}")))
    assert (("MODE", "dry"), ("EMPTY", "")) == mailer.of_template.environment
    assert (
        "metadata",
        "nodeSelector",
        "worker.image",
        "worker.env.URL",
        "worker.env.TOKEN",
        "container beside",
    ) == mailer.of_template.left_out
    assert ((), ()) == (other.of_template.environment, other.of_template.left_out)


def test_a_template_of_another_shape_is_left_out_and_breaks_nothing() -> None:
    for spec in ({"containers": "worker"}, {"containers": {"name": "worker"}}):
        assert ((), ("containers",)) == _reported(spec)
    assert ((), ("container None",)) == _reported({"containers": ["worker"]})
    assert ((), ("worker.env.A",)) == _reported(
        {"containers": [{"name": "worker", "env": [{"name": "A", "value": 1}]}]}
    )
    assert ((), ()) == _reported({"containers": [{"name": "worker", "env": ["A=1"]}]})


def _reported(spec: dict[str, Any]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    report = of_template(PodTemplate(spec=spec))
    return report.environment, report.left_out


def counter(name: str, spec: str) -> str:
    """A counter as a person writes it."""
    return queue(name, spec).replace("kind: Queue", "kind: Counter")


def test_gc_runs_once_for_each_schedule_of_a_namespace_and_a_counter_can_be_tried(tmp_path: Path) -> None:
    result = resources(
        tmp_path,
        counter("views", ""),
        counter("hits", ""),
        counter("visitors", "type: distinct, gc: {schedule: '*/5 * * * *'}"),
        queue("emails", ""),
    )
    jobs = jobs_of(result)
    assert [("gc", "*/5 * * * *"), ("repair", "*/5 * * * *"), ("gc", "0 * * * *")] == [
        (job.command, job.schedule) for job in jobs
    ]
    assert ("gc", "--namespace", "shop", "--schedule", "0 * * * *") == jobs[2].arguments
    assert ["headgate counter add shop/views home 3", "headgate counter get shop/views home"] == suggestions_of(
        result[:2]
    )
    assert "headgate counter add shop/visitors home tea" in suggestions_of(result[2:])
    assert [] == suggestions_of(resources(tmp_path, counter("own", "type: acme/longest")))


def test_repair_runs_once_for_each_schedule_of_a_namespace_when_it_is_due(tmp_path: Path) -> None:
    result = resources(
        tmp_path,
        queue("a", ""),
        queue("b", ""),
        queue("c", "repair: {schedule: '0 * * * *'}"),
        queue("d", "", "depot"),
    )
    jobs = jobs_of(result)
    assert [Job("depot", "*/5 * * * *"), Job("shop", "*/5 * * * *"), Job("shop", "0 * * * *")] == jobs
    five, six = (datetime(2026, 11, 18, 9, minute, tzinfo=UTC) for minute in (5, 6))
    assert (jobs[:2], []) == (jobs_due(jobs, five), jobs_due(jobs, six))
    assert jobs == jobs_due(jobs, datetime(2026, 11, 18, 9, 0, tzinfo=UTC))
    assert ("repair", "--namespace", "shop", "--schedule", "0 * * * *") == jobs[2].arguments


def test_what_is_suggested_fits_the_queue_that_is_worked_and_names_commands_that_are_there(tmp_path: Path) -> None:
    result = resources(
        tmp_path,
        queue("emails-dead", ""),
        queue("emails", "deadLetter: emails-dead, consumers: [{name: mailer, handler: 'mailer.tasks:send'}]"),
    )
    lines = suggestions_of(result)
    assert all(line.split()[0] == "headgate" and line.split()[1] in COMMANDS for line in lines)
    assert lines[0].startswith("headgate put shop/emails ")
    assert "headgate peek shop/emails-dead" in lines
    assert not any(line.startswith("headgate receive") for line in lines)
    assert "headgate receive shop/emails-dead --ack" in suggestions_of(result[:1])
    assert [] == suggestions_of([])


def test_what_there_is_is_counted_and_nothing_else_is_spoken_of(tmp_path: Path) -> None:
    worked = queue("emails", "consumers: [{name: mailer, handler: 'mailer.tasks:send'}]")
    assert ["2 queues, 1 worker", "1 queue, 1 worker, 1 counter", "2 counters", "0 queues, 0 workers"] == [
        counted(resources(tmp_path, worked, queue("dead", ""))),
        counted(resources(tmp_path, worked, counter("views", ""))),
        counted(resources(tmp_path, counter("views", ""), counter("visitors", "type: distinct"))),
        counted([]),
    ]


def test_other_files_have_other_data(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    assert state_directory([one, two]) == state_directory([two, one])
    assert 3 == len({state_directory(each) for each in ([one], [two], [one, two])})


# ---- its Cassandra


class Started:
    """In place of starting one: the actions of a thread of the stack, and when it may continue."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = threading.Event(), threading.Event()
        self.launched, self.stopped = 0, 0

    def start(self, directory: Path, *, starting: Starting) -> dict[str, str]:
        """As `start_kept`: first what takes long, then the launch, unless it was given up."""
        self.begun.set()
        self.may_go_on.wait(20)
        if starting.is_given_up():
            raise GivenUp
        self.launched += 1
        starting.launched = True
        return {"CONTACT_POINTS": "127.0.0.1:9042"}

    def stop(self, directory: Path) -> bool:
        """As `stop_kept`."""
        self.stopped += 1
        return True


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """None is started."""
    one = Started()
    monkeypatch.setattr(kept_module, "start_kept", one.start)
    monkeypatch.setattr(kept_module, "stop_kept", one.stop)
    return one


def ended_at(folder: Path, started: Started, *, when_ready: bool) -> list[str]:
    """A Cassandra that is ended while it starts, or after it; its output."""
    message: list[str] = []

    async def run() -> None:
        own = OwnCassandra(folder, message.append, fresh=False)
        bringing = asyncio.ensure_future(own.bring())
        assert await asyncio.to_thread(started.begun.wait, 20)
        if when_ready:
            started.may_go_on.set()
            await bringing
        bringing.cancel()
        ending = asyncio.ensure_future(own.end())
        await asyncio.sleep(0)
        assert when_ready or not ending.done(), "the thread may still launch one"
        started.may_go_on.set()
        await ending

    asyncio.run(run())
    return message


def test_asked_to_end_before_its_server_is_launched_it_waits_for_the_start_to_be_given_up(
    tmp_path: Path, started: Started
) -> None:
    assert ["starting"] == ended_at(tmp_path, started, when_ready=False)
    assert (0, 0) == (started.launched, started.stopped)


def test_what_was_started_is_stopped_and_what_ran_already_is_left(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ["starting", "stopping; its data stays for the next run"] == ended_at(tmp_path, started, when_ready=True)
    assert (1, 1) == (started.launched, started.stopped)
    running = {"CONTACT_POINTS": "127.0.0.1:9042"}
    monkeypatch.setattr(kept_module, "find_kept", lambda directory: running)

    async def run() -> None:
        own = OwnCassandra(tmp_path, lambda _: None, fresh=False)
        assert running == await own.bring()
        await own.end()

    asyncio.run(run())
    assert (1, 1) == (started.launched, started.stopped)


def test_a_stack_that_never_began_one_has_nothing_to_end(tmp_path: Path, started: Started) -> None:
    asyncio.run(OwnCassandra(tmp_path, lambda _: None, fresh=False).end())
    assert (0, 0) == (started.launched, started.stopped)


# ---- how they are kept


class Output:
    """The output of programs, and the tasks that wait for it."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []
        self._change = asyncio.Event()

    def __call__(self, actor: str, line: str) -> None:
        self.lines.append((actor, line))
        self._change.set()

    async def until(self, holds: Callable[[list[str]], object]) -> None:
        """Until the lines are so."""
        async with asyncio.timeout(20):
            while not holds([line for _, line in self.lines]):
                self._change.clear()
                await self._change.wait()


def program(name: str, source: str) -> Program:
    """A small one, in Python."""
    return Program(name, (sys.executable, "-S", "-c", source), ROOT)


def kept(work: Callable[[Programs, Output], Coroutine[Any, Any, None]]) -> None:
    """Do something with programs, and end them."""

    async def run() -> None:
        output = Output()
        programs = Programs(os.environ, output, QUICK)
        try:
            await work(programs, output)
        finally:
            await programs.close()

    asyncio.run(run())


HELLO = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {HELLO}"
PARENT = f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {HELLO!r}]); {HELLO}"


def pids(lines: list[str]) -> list[int]:
    """The programs that printed hello."""
    return [int(line.split()[1]) for line in lines if line.startswith("pid ")]


def test_what_ends_is_restarted_later_each_time_and_shows_how_it_ended() -> None:
    async def work(programs: Programs, message: Output) -> None:
        programs.keep([program("a", "print('hello'); raise SystemExit(3)")])
        await message.until(lambda lines: lines.count("hello") >= 4)
        ended = [line for actor, line in message.lines if "ended" in line]
        again = [f"ended with code 3; restarting in {pause} s" for pause in (0.01, 0.02, 0.04)]
        assert again == ended[:3]

    kept(work)


def test_a_process_that_ran_for_long_is_restarted_soon() -> None:
    pause = ExponentialPause(1, 30)
    assert [1, 2, 4, 8, 16, 30, 30] == [pause_after(pause, ran_s=5, long_s=10) for _ in range(7)]
    assert [1, 2] == [pause_after(pause, ran_s=ran_s, long_s=10) for ran_s in (10, 5)]


def test_exactly_what_is_wanted_runs() -> None:
    async def work(programs: Programs, message: Output) -> None:
        first, second = program("first", HELLO), program("second", HELLO)
        programs.keep([first])
        await message.until(lambda lines: len(pids(lines)) == 1)
        programs.keep([first, second])
        await message.until(lambda lines: len(pids(lines)) == 2)
        assert ["first", "second"] == [actor for actor, line in message.lines if line.startswith("pid")]
        programs.keep([second])
        one, two = pids([line for _, line in message.lines])
        assert await asyncio.to_thread(wait_until, lambda: Identity.of(one) is None, timeout_s=10)
        assert Identity.of(two) is not None

    kept(work)


@pytest.mark.parametrize("source", [HELLO, STUBBORN, PARENT], ids=["obedient", "stubborn", "with a child of its own"])
def test_nothing_is_left_at_the_end(source: str) -> None:
    matches: list[int] = []

    async def work(programs: Programs, message: Output) -> None:
        programs.keep([program("a", source)])
        await message.until(lambda lines: len(pids(lines)) == (2 if source is PARENT else 1))
        matches.extend(pids([line for _, line in message.lines]))

    kept(work)
    assert wait_until(lambda: not any(map(Identity.of, matches)), timeout_s=5)


def test_what_a_program_leaves_behind_when_it_dies_does_not_keep_the_next_one_from_beginning() -> None:
    async def work(programs: Programs, message: Output) -> None:
        programs.keep([program("a", f"{PARENT.removesuffix(HELLO)}raise SystemExit(1)")])
        await message.until(lambda lines: sum("restarting in" in line for line in lines) >= 2)

    kept(work)


def test_a_process_that_is_reported_twice_need_not_wait_for_a_good_end() -> None:
    source = (
        "import os, signal, time\n"
        "signals = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: signals.append(1) or len(signals) > 1 and os._exit(9))\n"
        "print('pid', os.getpid(), flush=True)\n"
        "while True: time.sleep(0.01)"
    )

    async def work() -> None:
        output = Output()
        programs = Programs(os.environ, output, Pauses(grace_s=600))
        programs.keep([program("a", source)])
        await output.until(pids)
        closing = asyncio.ensure_future(programs.close())
        async with asyncio.timeout(20):
            while not closing.done():
                programs.hurry()
                await asyncio.wait([closing], timeout=0.05)

    asyncio.run(work())


def test_a_line_that_is_too_long_is_reported_to_be_and_the_next_is_shown() -> None:
    async def work(programs: Programs, message: Output) -> None:
        programs.keep(
            [program("a", "print('x' * 3_000_000); print('after', flush=True); import time; time.sleep(9)")]
        )
        await message.until(lambda lines: "after" in lines)
        assert "line too long to show" in [line for _, line in message.lines]

    kept(work)


def test_an_end_is_reported_in_words() -> None:
    assert ["ended with code 0", "was killed by SIGKILL", "was killed by signal 99"] == list(
        map(ended_how, (0, -9, -99))
    )


def test_a_connection_that_an_earlier_stack_printed_is_not_the_users_own_cassandra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    written = {"HEADGATE_CONTACT_POINTS": "127.0.0.1:25992", "HEADGATE_PASSWORD": "it's one"}
    lines = "export HEADGATE_CONTACT_POINTS=127.0.0.1:25992\nexport HEADGATE_PASSWORD='it'\"'\"'s one'\n"
    (tmp_path / "run" / "dev" / "1b02").mkdir(parents=True)
    (tmp_path / "run" / "dev" / "1b02" / "env").write_text(lines + 'export PATH=/venv/bin:"$PATH"\n')
    assert {"HEADGATE_QUEUE": "shop/emails"} == without_own_connection(written | {"HEADGATE_QUEUE": "shop/emails"})
    for users_own in (written | {"HEADGATE_PASSWORD": "another"}, {"CONTACT_POINTS": "10.0.0.1"}, {}):
        assert users_own == without_own_connection(users_own)
