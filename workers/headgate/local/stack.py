"""A whole stack on one machine: a Cassandra, the resources of some files, a worker for each consumer, repair on its
schedule. When the files change they are applied again. When the code of handlers changes, their workers restart.

It runs the same programs as a cluster: `headgate apply`, `headgate worker`, `headgate repair`, each in a process of
its own. It stops everything that it started, cleanly; the data stays for the next run.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import signal
import sys
import time
from collections.abc import Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from headgate.api.read.loader import load_files
from headgate.api.read.parse import Resource
from headgate.errors import HeadgateError, InvalidRequest
from headgate.local.cache import cache_root
from headgate.local.cassandra.own_cassandra import OwnCassandra
from headgate.local.declared import Job, WorkerOf, counted, jobs_due, jobs_of, suggestions_of, workers_of
from headgate.local.first_message import FirstMessage, find_worked_queue, put_first_message
from headgate.local.first_queue import format_first_queue
from headgate.local.programs import Program, Programs, ended_how
from headgate.process.background_tasks import end_task, start_task
from headgate.store.connection_variables import connection_variables, prefixed, variable_names

CHECK_EVERY_S = 1.0
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a supervisor, and a terminal that is closed."""
CODE_FILES_MAX = 2_000
"""Of one package: further files are not watched for changes."""
HEADGATE = (sys.executable, "-m", "headgate.cli.main")


def state_directory(files: Sequence[Path]) -> Path:
    """Where the data of a stack of these files live: another set of files has its own."""
    named = "\n".join(sorted(str(file.resolve()) for file in files))
    return cache_root() / "run" / "dev" / hashlib.blake2b(named.encode(), digest_size=6).hexdigest()


def last_environment() -> Path:
    """The variables of the stack that was started last, at a place that documentation can name."""
    return cache_root() / "run" / "dev" / "env"


def without_own_connection(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without a connection that a stack wrote for other terminals: that is nobody's own Cassandra,
    and has ended with its stack. Another stack that still runs is reached by its files, not by its address."""
    names = variable_names(environment)
    written = _export_lines(connection_variables(environment))
    stacks = (cache_root() / "run" / "dev").glob("*/env")
    if not written or not any(set(written) <= set(file.read_text().splitlines()) for file in stacks):
        return dict(environment)
    return {name: value for name, value in environment.items() if name not in names.values()}


def write_first_queue(queue: str, handler: str) -> Path:
    """A file for a queue that has none. Its place depends on the queue's name alone, and so do the data."""
    name = queue.replace("/", ".")
    file = cache_root() / "run" / "dev" / "queues" / f"{name}.yaml"
    text = format_first_queue(queue, handler, file=str(file))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


class Stack:
    def __init__(
        self,
        files: Sequence[Path],
        environment: Mapping[str, str],
        *,
        fresh: bool,
        first: FirstMessage | None = None,
    ) -> None:
        self._files = files
        self._environment = without_own_connection(environment)
        self._first = first
        self._directory = state_directory(files)
        self._cassandra = (
            None
            if "CONTACT_POINTS" in connection_variables(self._environment)
            else OwnCassandra(self._directory, partial(_print_line, "cassandra"), fresh=fresh)
        )
        self._resources: Sequence[Resource] = ()
        self._left_out: dict[str, str] = {}
        self._programs: Programs | None = None
        self._repairing: dict[Job, asyncio.Task[int]] = {}

    async def run(self) -> None:
        """Run until a shutdown request."""
        began_s = time.monotonic()
        ending = asyncio.Event()
        for number in ENDS:
            asyncio.get_running_loop().add_signal_handler(number, self._stop_on_signal, ending)
        self._resources = load_files(self._files)
        if not self._resources:
            raise InvalidRequest("No Queue and no Counter in these files", files=", ".join(map(str, self._files)))
        worked = "" if self._first is None else find_worked_queue(self._resources)
        try:
            if not await self._until(ending, self._bring_cassandra()):
                return
            self._programs = Programs(self._environment, _print_line)
            if not await self._until(ending, self._apply()):
                return
            self._begin_workers()
            if self._first is not None:
                putting = put_first_message(
                    self._environment, worked, self._first.payload, partial(_print_line, "put")
                )
                if not await self._until(ending, putting) or self._first.then_end:
                    return
            self._report_ready(time.monotonic() - began_s)
            await self._keep(ending)
        finally:
            await self._close()

    # ---- its parts

    async def _bring_cassandra(self) -> None:
        if self._cassandra is None:
            _print_line(
                "cassandra",
                f"the one at {connection_variables(self._environment)['CONTACT_POINTS']}, an existing server",
            )
            return
        self._environment |= await self._cassandra.bring()
        _print_line("cassandra", f"ready at {self._environment['CONTACT_POINTS']}")

    async def _apply(self) -> None:
        arguments = (*HEADGATE, "apply", *map(str, self._files))
        assert self._programs is not None
        code = await self._programs.run(Program("apply", arguments, Path.cwd()))
        if code != 0:
            _print_line("apply", f"{ended_how(code)}; restarts when a file is saved")

    def _begin_workers(self, *, with_new_code: bool = False) -> None:
        assert self._programs is not None
        workers = workers_of(self._resources)
        programs = [
            Program(each.name, (*HEADGATE, *each.arguments), Path.cwd(), each.of_template.environment)
            for each in workers
        ]
        for each in workers:
            self._report_left_out(each)
        if with_new_code:
            _print_line("handlers", "changed; restarting their workers")
            self._programs.keep(
                [each for each, worker in zip(programs, workers, strict=True) if worker.module is None]
            )
        self._programs.keep(programs)

    def _report_left_out(self, worker: WorkerOf) -> None:
        """The parts without effect on one machine, once for each template."""
        left_out = ", ".join(worker.of_template.left_out)
        if left_out and self._left_out.get(worker.name) != left_out:
            _print_line(worker.name, f"only the worker's environment of its template is used locally, not {left_out}")
        self._left_out[worker.name] = left_out

    # ---- while it runs

    async def _keep(self, ending: asyncio.Event) -> None:
        """Repair and gc when they are due; apply again when a file was changed."""
        stamps_before, code = self._stamps(), self._code_stamps()
        minute = _minute()
        while not ending.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ending.wait(), CHECK_EVERY_S)
            while minute < _minute():
                minute += timedelta(minutes=1)
                self._repair(jobs_due(jobs_of(self._resources), minute))
            stamps = self._stamps()
            if stamps != stamps_before:
                stamps_before = stamps
                await self._until(ending, self._reload())
                code = self._code_stamps()
            elif (changed := self._code_stamps()) != code:
                code = changed
                self._begin_workers(with_new_code=True)

    async def _reload(self) -> None:
        try:
            resources = load_files(self._files)
        except HeadgateError as error:
            for line in str(error).splitlines():
                _print_line("files", line)
            return
        self._resources = resources
        await self._apply()
        self._begin_workers()

    def _repair(self, jobs: Sequence[Job]) -> None:
        """Each once at a time; its output is shown."""
        assert self._programs is not None
        for job in jobs:
            running = self._repairing.get(job)
            if running is None or running.done():
                program = Program(job.command, (*HEADGATE, *job.arguments), Path.cwd())
                self._repairing[job] = start_task(job.command, self._programs.run(program))

    def _stamps(self) -> dict[Path, int]:
        """The time of the last change of each file. A file that is missing for an instant, as editors do it, is not a
        change."""
        files = [
            file_listed
            for file in self._files
            for file_listed in ([file] if file.is_file() else sorted(file.rglob("*.y*ml")))
        ]
        return {file: file.stat().st_mtime_ns for file in files if file.exists()}

    def _code_stamps(self) -> dict[Path, int]:
        """The time of the last change of the handlers' code: all of a package, as far as it is in this folder."""
        tops = {each.module.partition(".")[0] for each in workers_of(self._resources) if each.module is not None}
        stamps: dict[Path, int] = {}
        for top in sorted(tops):
            for file in islice((Path(f"{top}.py"), *Path(top).rglob("*.py")), CODE_FILES_MAX):
                with contextlib.suppress(OSError):
                    stamps[file] = file.stat().st_mtime_ns
        return stamps

    # ---- its end

    def _stop_on_signal(self, ending: asyncio.Event) -> None:
        if ending.is_set() and self._programs is not None:
            self._programs.hurry()
        ending.set()

    async def _until(self, ending: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
        """Wait for some work, or for the end; whether the work was done."""
        doing = start_task("work until the end", work)
        ended = start_task("end", ending.wait())
        await asyncio.wait([doing, ended], return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        if not doing.done():
            await end_task(doing)
            return False
        doing.result()
        return not ending.is_set()

    async def _close(self) -> None:
        await end_task(*self._repairing.values())
        if self._programs is not None:
            await self._programs.close()
        if self._cassandra is not None:
            await self._cassandra.end()

    def _report_ready(self, took_s: float) -> None:
        """The running parts, and commands to try next."""
        click.echo(f"\nready after {took_s:.0f} s: {counted(self._resources)}. Ctrl-C ends it.")
        suggestions = suggestions_of(self._resources)
        if suggestions:
            file = self._directory / "env"
            _write_environment(file, self._environment)
            _link(file, last_environment())
            click.echo("Try in another terminal:")
            for line in (f". {shlex.quote(str(file))}", *suggestions):
                click.echo(f"  {line}")
        click.echo("")


def _print_line(source: str, line: str) -> None:
    click.echo(f"{source:<16} | {line}")


def _minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


def _link(file: Path, place: Path) -> None:
    """Make the place lead to the file, in one step."""
    partial_link = place.with_name(f".{place.name}.{os.getpid()}")
    partial_link.unlink(missing_ok=True)
    partial_link.symlink_to(file)
    partial_link.replace(place)


def _export_lines(settings: Mapping[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in prefixed(settings).items()]


def _write_environment(file: Path, environment: Mapping[str, str]) -> None:
    """For other terminals: `. FILE` puts `headgate` on the path and points it at this Cassandra. The file holds a
    password, so only its owner may read it."""
    lines = _export_lines(connection_variables(environment))
    programs = Path(sys.executable).parent
    if (programs / "headgate").exists():
        lines.append(f'export PATH={shlex.quote(str(programs))}:"$PATH"')
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_text("\n".join(lines) + "\n")
