"""The program of bulk jobs: `spark-submit .../headgate_spark/bulk_program.py drain --queue shop/emails ...`, what the
operator launches (`--queue shop/emails --bulk nightly --run emails-nightly-1a2b`), and `headgate bulk ...`.

It parses, calls, and leaves with one line for a mistake. Exit codes as of all commands: 0, 1 for what failed, 2 for
what was asked for wrongly.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NoReturn, TypeVar

import click

from headgate.cli.connection import connection_options, environment_with
from headgate.cli.queues import SPAN
from headgate.errors import HeadgateError, SpecError, Surroundings
from headgate_spark.jobs.request import (
    BATCH_MESSAGES,
    LOAN_S,
    JobRequest,
    bulk_of,
    bulk_of_entry,
    job_id,
    request_of,
)

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_FAILED, EXIT_SPEC, EXIT_INTERRUPTED = 1, 2, 130
TRIGGER = "0 0 1 1 *"
"""A job of the command line has no schedule; the model asks for one."""
UNTOLD = ("--bulk", "--run")


class Group(click.Group):
    """What the operator launches names no command: the job's mode is in the catalogue."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any(each.partition("=")[0] in UNTOLD for each in args) and not (args and args[0] in self.commands):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("bulk", cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Work on many messages at once, by Spark."""


def _shared(function: Command) -> Command:
    options = (
        click.option("--queue", required=True, metavar="NAMESPACE/NAME", help="Queue name."),
        click.option("--name", default=None, help="Job name. A run with the same name resumes the job."),
        click.option(
            "--master", default=None, help="Spark's master, such as local[2]. Default: that of the submission."
        ),
        click.option("--where", default=None, help="SQL predicate; the job takes only messages that match."),
        click.option("--from", "from_", default=None, help="Earliest due time, or an age such as 24h."),
        click.option("--to", default=None, help="Latest due time (exclusive), or an age."),
        click.option("--rate", default=None, help="Maximum rate, such as 500/s."),
    )
    for option in reversed(options):
        function = option(function)
    return connection_options(function)


def _borrows(function: Command) -> Command:
    options = (
        click.option("--loan", type=SPAN, default=f"{LOAN_S:.0f}s", help="Maximum duration of a batch."),
        click.option(
            "--batch", type=click.IntRange(1, 5_000_000), default=BATCH_MESSAGES, help="Messages per batch."
        ),
        click.option(
            "--resume-at-once",
            is_flag=True,
            help="Deliver again at once the messages that a killed earlier run had in flight."
            " Only safe when that run has ended.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def _writes(function: Command) -> Command:
    options = (
        click.option("--sink", default=None, metavar="FORMAT:PATH", help="Such as parquet:s3a://bucket/emails."),
        click.option(
            "--sink-option", "sink_options", multiple=True, metavar="KEY=VALUE", help="Options of Spark's writer."
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


_target = click.option("--target", default=None, metavar="NAME", help="Another queue of the namespace.")
_handler = click.option(
    "--handler", default=None, metavar="MODULE:FUNCTION", help="Handler: DataFrame in, DataFrame out."
)


@command.command("drain")
@_shared
@_borrows
@_writes
@_target
@_handler
def drain(**options: Any) -> None:
    """Hand what waits to a handler, or write it somewhere; settle what succeeded."""
    _go("drain", options)


@command.command("move")
@_shared
@_borrows
@_target
def move(**options: Any) -> None:
    """Put what waits into another queue."""
    _go("move", options)


@command.command("redrive")
@_shared
@_borrows
@_target
def redrive(**options: Any) -> None:
    """Put dead letters back where they died, or into a target."""
    _go("redrive", options)


@command.command("replay")
@_shared
@_writes
@_target
@_handler
def replay(**options: Any) -> None:
    """Send kept history again: into a queue, or write it somewhere."""
    _go("replay", options)


@command.command("export")
@_shared
@_writes
def export(**options: Any) -> None:
    """Write history to files by day; each run what is new since the last."""
    _go("export", options)


@command.command("run")
@click.option("--queue", required=True, metavar="NAMESPACE/NAME", help="Queue name.")
@click.option("--bulk", required=True, help="Name of a job in its `spec.bulk`.")
@click.option("--run", default="", help="Name of this run, for display.")
@click.option("--master", default=None, help="Spark's master. Default: that of the submission.")
@connection_options
def run(bulk: str, **options: Any) -> None:
    """Run a bulk job as the queue's resource has it."""

    def request(entry: Any) -> JobRequest:
        return request_of(options["queue"], bulk_of_entry(entry, bulk))

    _run({**options, "job": bulk}, request)


@command.command("rollup")
@click.option("--counter", required=True, metavar="NAMESPACE/NAME", help="Name of a counter with spec.windows.")
@click.option("--window", required=True, type=SPAN, help="Window size, such as 1h.")
@click.option("--sink", required=True, metavar="FORMAT:PATH", help="Such as parquet:s3a://bucket/views.")
@click.option("--sink-option", "sink_options", multiple=True, metavar="KEY=VALUE", help="Options of Spark's writer.")
@click.option("--from", "from_", default=None, help="Start time, or an age such as 24h.")
@click.option("--to", default=None, help="End time (exclusive), or an age.")
@click.option("--name", default="rollup", help="Job name. Each run continues where the last run of this name ended.")
@click.option("--master", default=None, help="Spark's master. Default: that of the submission.")
@connection_options
def rollup(counter: str, window: Any, name: str, **options: Any) -> None:
    """Write each key's value by windows of time; each run those that became final since the last."""
    from headgate_spark.jobs.request import sink_request_of

    sink = sink_request_of(_sink(options["sink"], options["sink_options"]))

    def work(here: Any, spark: Any, _: Any) -> bool:
        from headgate_spark.jobs.rollup import RollupRequest, run_rollup

        grain_us = round(window.total_seconds() * 1_000_000)
        request = RollupRequest(counter, grain_us, sink, options["from_"], options["to"])
        entry = here.run(here.headgate.counter(counter)).entry
        done = run_rollup(spark, here, request, job_id(entry, name))
        click.echo(f"rollup {counter}: {done.done} values written")
        return True

    _upkeep(options, work)


@command.command("gc")
@click.option("--counter", metavar="NAMESPACE/NAME", help="Only this counter.")
@click.option("--namespace", help="Every counter of this namespace ...")
@click.option("--schedule", metavar="CRON", help="... with this gc schedule. Default: any schedule.")
@click.option("--master", default=None, help="Spark's master. Default: that of the submission.")
@connection_options
def gc(counter: str | None, namespace: str | None, schedule: str | None, **options: Any) -> None:
    """One pass of the collector, a counter's buckets shared among tasks."""
    from headgate.cli.collect import scheduled_counters
    from headgate.cli.passes import check_whom

    check_whom("gc", "counter", counter, namespace, schedule)

    def work(here: Any, spark: Any, told: Any) -> bool:
        from headgate_spark.jobs.upkeep import collect

        names = [counter] if counter else list(here.run(scheduled_counters(here.headgate, namespace or "", schedule)))
        ended = [_said(name, partial(collect, spark, here, told, name)) for name in names]
        return all(ended)

    _upkeep(options, work)


@command.command("repair")
@click.option("--queue", metavar="NAMESPACE/NAME", help="Only this queue.")
@click.option("--namespace", help="Every queue of this namespace ...")
@click.option("--schedule", metavar="CRON", help="... with this repair schedule. Default: any schedule.")
@click.option("--master", default=None, help="Spark's master. Default: that of the submission.")
@connection_options
def repair(queue: str | None, namespace: str | None, schedule: str | None, **options: Any) -> None:
    """One pass of repair over each queue, a task each."""
    from headgate.cli.passes import check_whom
    from headgate.cli.repair import scheduled_queues

    check_whom("repair", "queue", queue, namespace, schedule)

    def work(here: Any, spark: Any, told: Any) -> bool:
        from headgate_spark.jobs.upkeep import repair as repair_all

        names = [queue] if queue else list(here.run(scheduled_queues(here.headgate, namespace or "", schedule)))
        done = repair_all(spark, told, names)
        for name, says, problems in done:
            click.echo(f"{name}: {says}")
            for problem in problems:
                click.echo(f"{name}: {problem}", err=True)
        return not any(problems for _, _, problems in done)

    _upkeep(options, work)


def _said(name: str, work: Callable[[], bool]) -> bool:
    """One that fails does not stop the others."""
    try:
        return work()
    except HeadgateError as error:
        click.echo(f"{name}: {error}", err=True)
        return False


def _upkeep(options: dict[str, Any], work: Callable[[Any, Any, Any], bool]) -> None:
    """Connect, open Spark, make the passes; exit code 1 where one failed."""
    from headgate_spark.worker_connection import WorkerConnection, local_environment, told_environment

    _require_spark()
    here = WorkerConnection(environment_with(options))
    try:
        spark = _opened("headgate upkeep", options["master"])
        from headgate_spark.jobs.frames import SparkFailed, told_as

        if str(spark.sparkContext.master).startswith("local"):
            spark.sparkContext.environment.update(local_environment(here.environment))
        try:
            with told_as(SparkFailed):
                if not work(here, spark, told_environment(here.environment)):
                    sys.exit(EXIT_FAILED)
        finally:
            spark.stop()
    finally:
        here.close()


def _go(mode: str, options: dict[str, Any]) -> None:
    document: dict[str, Any] = {"name": options.get("name") or mode, "mode": mode, "schedule": TRIGGER}
    fields = {"handler": "handler", "target": "target", "from_": "from", "to": "to", "where": "where", "rate": "rate"}
    for option, field in fields.items():
        if options.get(option) is not None:
            document[field] = options[option]
    if options.get("sink") is not None:
        document["sink"] = _sink(options["sink"], options["sink_options"])
    more: dict[str, Any] = {}
    if "loan" in options:
        more = {"loan_s": options["loan"].total_seconds(), "batch_messages": options["batch"]}
        more["resume_at_once"] = options["resume_at_once"]
    wanted = {**options, "job": document["name"]}
    _run(wanted, lambda _: request_of(options["queue"], bulk_of(document), **more))


def _sink(text: str, options: tuple[str, ...]) -> dict[str, Any]:
    form, colon, path = text.partition(":")
    if not colon or not path:
        raise SpecError("a sink must be FORMAT:PATH", given=text, remedy="write parquet:/data/emails")
    pairs = [each.partition("=") for each in options]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise SpecError("an option of a sink must be KEY=VALUE", given=wrong[0])
    return {"format": form, "path": path, "options": {name: value for name, _, value in pairs}}


def _run(options: dict[str, Any], request: Callable[[Any], JobRequest]) -> None:
    """Connect, open Spark, work, disconnect. What is wrong with the request is said before Spark is begun."""
    from headgate_spark.worker_connection import WorkerConnection

    _require_spark()
    logging.getLogger("py4j").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_INTERRUPTED))
    here = WorkerConnection(environment_with(options))
    try:
        entry = here.queue(options["queue"]).entry
        job = job_id(entry, options["job"])
        try:
            wanted = request(entry)
            spark = _opened(f"headgate {wanted.mode} {wanted.queue}", options["master"])
        except HeadgateError as error:
            _tell_failure(here, job, options, error)
            raise
        _with_spark(spark, here, wanted, job)
    finally:
        here.close()


def _require_spark() -> None:
    """What is not installed is said before anything is begun."""
    if find_spec("pyspark") is None:
        raise Surroundings("Spark is not installed", remedy="pip install 'headgate[spark]'")


def _opened(title: str, master: str | None) -> Any:
    """The session; one line where Spark does not start."""
    from headgate_spark.jobs.frames import SparkNotStarted, told_as
    from headgate_spark.session import LOCAL, open_session

    settings = dict(LOCAL) if (master or "").startswith("local") else {}  # that of a submission has what it needs
    remedy = "check that Java 17 is installed (JAVA_HOME), and that Spark supports the master"
    with told_as(SparkNotStarted, remedy=remedy, master=master or "that of the submission"):
        return open_session(title, master=master, settings=settings)


def _tell_failure(here: Any, job: Any, options: dict[str, Any], error: HeadgateError) -> None:
    """Where the operator reads it, of a job that did not begin; what an earlier run told is over."""
    from headgate_spark.jobs.progress import Progress

    Progress(here, job, f"{options['job']} {options['queue']}").tell(str(error))


def _with_spark(spark: Any, here: Any, wanted: JobRequest, job: Any) -> None:
    from headgate_spark.jobs.run import run_job

    spark.sparkContext.setLogLevel("ERROR")
    try:
        done = run_job(spark, here, wanted, job)
    finally:
        spark.stop()
    click.echo(
        f"{wanted.mode} {wanted.queue}: {done.done} done, {done.dead} of them dead letters, {done.returned} left"
    )


def main() -> NoReturn:
    """As a program of its own."""
    try:
        command(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort as abort:
        _say_what_ended(abort.__cause__)
    except HeadgateError as error:
        for line in str(error).splitlines():
            click.echo(line if isinstance(error, SpecError) else f"headgate: {line}", err=True)
        sys.exit(EXIT_SPEC if isinstance(error, SpecError) else EXIT_FAILED)
    sys.exit(0)


def _say_what_ended(cause: BaseException | None) -> NoReturn:
    """click takes the end of any input for an interruption, too: here it is that of a pipe to the JVM."""
    if isinstance(cause, EOFError):
        click.echo("headgate: Spark's JVM ended during a request; run the job again", err=True)
        sys.exit(EXIT_FAILED)
    click.echo("interrupted: run the job again to resume it", err=True)
    sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
