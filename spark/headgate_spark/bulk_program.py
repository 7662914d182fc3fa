"""The program of bulk jobs: `spark-submit .../headgate_spark/bulk_program.py drain shop/emails ...`, `headgate bulk`,
and what the operator launches (`run shop/emails nightly --run-name emails-nightly-1a2b`).

It parses, calls, and ends with one line for a mistake. Exit codes are those of all commands.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from importlib.util import find_spec
from typing import Any, Final, NoReturn, TypeVar

import click

from headgate.command_line.arguments import (
    DURATION,
    NAME_METAVAR,
    Group,
    complete_counter,
    complete_queue,
    counter_argument,
    namespace_option,
    queue_argument,
    target_option,
)
from headgate.command_line.connection import connection_options, read_environment
from headgate.command_line.exit_codes import ExitCode, exit_code_for, exit_code_of
from headgate.command_line.output import Output, output_option
from headgate.command_line.passes import PassTarget, schedule_option, show_pass
from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest
from headgate_spark.jobs.request import (
    BATCH_MESSAGES,
    RESERVATION_S,
    JobRequest,
    bulk_of,
    bulk_of_entry,
    job_id,
    request_of,
    sink_request_of,
)

Command = TypeVar("Command", bound=Callable[..., Any])

TRIGGER: Final = "0 0 1 1 *"
"""A job of the command line has no schedule; the model asks for one."""
HELP: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

name_option = click.option("--name", help="Name of the job, which resumes by it.")
master_option = click.option("--master", help="Spark master. Default: of the submission.")
since_option = click.option("--since", metavar="TIME", help="Start: an ISO time, or an age such as 24h.")
until_option = click.option("--until", metavar="TIME", help="End (exclusive): an ISO time, or an age.")
sink_option = click.option("--sink", metavar="FORMAT:PATH", help="Files, such as parquet:s3a://bucket/x.")
sink_options_option = click.option(
    "--sink-option", "sink_options", multiple=True, metavar="KEY=VALUE", help="Option of the writer. Repeatable."
)


@click.group("bulk", cls=Group, context_settings=HELP)
def command() -> None:
    """Work on many messages at once.

    The jobs run in Spark.
    """


def _options(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """All of them, in the order of the help."""

    def decorate(function: Command) -> Command:
        return reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), function)

    return decorate


_shared = _options(
    queue_argument,
    name_option,
    master_option,
    click.option("--where", metavar="SQL", help="Only messages that match."),
    since_option,
    until_option,
    click.option("--rate", metavar="RATE", help="Maximum rate, such as 500/s."),
    output_option,
)
_reserving = _options(
    click.option(
        "--visibility",
        type=DURATION,
        default=f"{RESERVATION_S:.0f}s",
        show_default=True,
        help="Maximum time per batch.",
    ),
    click.option(
        "--batch-size",
        type=click.IntRange(1, 5_000_000),
        metavar="N",
        default=BATCH_MESSAGES,
        show_default=True,
        help="Messages per batch.",
    ),
    click.option("--resume-at-once", is_flag=True, help="No wait for a killed run's messages."),
)
_writes = _options(sink_option, sink_options_option)
_target = click.option("--to", metavar=NAME_METAVAR, shell_complete=complete_queue, help="Target queue.")
_handler = click.option("--handler", metavar="MODULE:FUNCTION", help="Function on a DataFrame.")


@command.command("drain")
@_shared
@_reserving
@_writes
@_target
@_handler
def drain(**options: Any) -> None:
    """Handle or write all messages, then ack them.

    Messages go to a handler, into files, or into another queue. Those that succeed are settled. --resume-at-once is
    for a run that was killed for certain: its messages are handled again at once, and not after --visibility.
    """
    _go("drain", options)


@command.command("move")
@_shared
@_reserving
@_target
def move(**options: Any) -> None:
    """Move messages into another queue."""
    _go("move", options)


@command.command("redrive")
@_shared
@_reserving
@target_option
def redrive(**options: Any) -> None:
    """Move dead letters back to their source."""
    _go("redrive", options)


@command.command("replay")
@_shared
@_writes
@_target
@_handler
def replay(**options: Any) -> None:
    """Put history again, or write it to files."""
    _go("replay", options)


@command.command("export")
@_shared
@_writes
def export(**options: Any) -> None:
    """Write history to files by day.

    Each run writes what is new since the last.
    """
    _go("export", options)


@command.command("run")
@queue_argument
@click.argument("job", metavar="JOB")
@click.option("--run-name", default="", help="Name of this run.")
@master_option
@output_option
def run(job: str, **options: Any) -> None:
    """Run a job of the queue's resource.

    JOB is a name in its spec.bulk.
    """

    def request(entry: Any) -> JobRequest:
        return request_of(options["queue"], bulk_of_entry(entry, job))

    _run({**options, "job": job}, request)


@command.command("rollup")
@counter_argument
@click.option("--window", required=True, type=DURATION, help="Window of the counter, such as 1h.")
@click.option("--sink", required=True, metavar="FORMAT:PATH", help="Files, such as parquet:s3a://bucket/x.")
@sink_options_option
@since_option
@until_option
@click.option("--name", default="rollup", show_default=True, help="Name of the job, which resumes by it.")
@master_option
@output_option
def rollup(counter: str, window: Any, name: str, output: Output, **options: Any) -> None:
    """Write a counter's values by windows.

    Each run writes the windows that became final since the last.
    """
    sink = sink_request_of(_sink(options["sink"], options["sink_options"]))

    def work(connection: Any, spark: Any, _: Any) -> ExitCode:
        from headgate_spark.jobs.rollup import RollupRequest, run_rollup

        grain_us = round(window.total_seconds() * 1_000_000)
        request = RollupRequest(counter, grain_us, sink, options["since"], options["until"])
        entry = connection.run(connection.headgate.counter(counter)).entry
        done = run_rollup(spark, connection, request, job_id(entry, name))
        document = {"counter": counter, "values": done.done}
        output.show(document, table=lambda: [f"rollup {counter}: {done.done} values written"], names=[counter])
        return ExitCode.DONE

    _upkeep(options, work)


@command.command("gc")
@click.argument("counter", metavar=f"[{NAME_METAVAR}]", required=False, shell_complete=complete_counter)
@namespace_option
@schedule_option
@master_option
@output_option
def gc(counter: str | None, namespace: str | None, schedule: str | None, output: Output, **options: Any) -> None:
    """Compact counters.

    The keys of a counter are divided among tasks.
    """
    from headgate.maintenance.passes import scheduled_counters

    target = PassTarget("gc", "counter", counter, namespace, schedule)

    def work(connection: Any, spark: Any, environment: Any) -> ExitCode:
        from headgate_spark.jobs.upkeep import collect

        entries = () if counter else connection.run(target.entries(connection.headgate, scheduled_counters))
        names, failed = [counter] if counter else list(entries), 0
        for name in names:
            try:
                outcome = collect(spark, connection, environment, name)
                show_pass("counter", name, output, outcome)
                failed += bool(outcome.problems)
            except HeadgateError as error:  # the others are collected all the same
                click.echo(f"{name}: {error}", err=True)
                failed += 1
        return exit_code_for(len(names) - failed, failed)

    _upkeep(options, work)


@command.command("repair")
@click.argument("queue", metavar=f"[{NAME_METAVAR}]", required=False, shell_complete=complete_queue)
@namespace_option
@schedule_option
@master_option
@output_option
def repair(queue: str | None, namespace: str | None, schedule: str | None, output: Output, **options: Any) -> None:
    """Repair queues, one task each."""
    from headgate.maintenance.passes import scheduled_queues

    target = PassTarget("repair", "queue", queue, namespace, schedule)

    def work(connection: Any, spark: Any, environment: Any) -> ExitCode:
        from headgate_spark.jobs.upkeep import repair as repair_all

        names = [queue] if queue else list(connection.run(target.entries(connection.headgate, scheduled_queues)))
        done = repair_all(spark, environment, names)
        for name, outcome in done:
            show_pass("queue", name, output, outcome)
        failed = sum(bool(outcome.problems) for _, outcome in done)
        return exit_code_for(len(done) - failed, failed)

    _upkeep(options, work)


@contextmanager
def _connected() -> Iterator[Any]:
    """The connection of the driver; a missing installation is reported before anything starts."""
    if find_spec("pyspark") is None:
        raise EnvironmentProblem("Spark is not installed", remedy="pip install 'headgate[spark]'")
    from headgate_spark.process.worker_connection import WorkerConnection

    connection = WorkerConnection(read_environment())
    try:
        yield connection
    finally:
        connection.close()


def _upkeep(options: dict[str, Any], work: Callable[[Any, Any, Any], ExitCode]) -> None:
    """Connect, open Spark, make the passes; end with their exit code where one failed."""
    with _connected() as connection:
        spark = _opened("headgate upkeep", options["master"])
        from headgate_spark.jobs.frames import SparkFailed, spark_errors_as
        from headgate_spark.process.session import share_environment

        try:
            with spark_errors_as(SparkFailed):
                if code := work(connection, spark, share_environment(spark, connection)):
                    sys.exit(code)
        finally:
            spark.stop()


def _go(mode: str, options: dict[str, Any]) -> None:
    document: dict[str, Any] = {"name": options.get("name") or mode, "mode": mode, "schedule": TRIGGER}
    fields = {"handler": "handler", "to": "target", "since": "from", "until": "to", "where": "where", "rate": "rate"}
    for option, field in fields.items():
        if options.get(option) is not None:
            document[field] = options[option]
    if "target" in document:
        document["target"] = _target_name(document["target"], options["queue"])
    if options.get("sink") is not None:
        document["sink"] = _sink(options["sink"], options["sink_options"])
    more: dict[str, Any] = {}
    if "visibility" in options:
        more = {"reservation_s": options["visibility"].total_seconds(), "batch_messages": options["batch_size"]}
        more["resume_at_once"] = options["resume_at_once"]
    wanted = {**options, "job": document["name"]}
    _run(wanted, lambda _: request_of(options["queue"], bulk_of(document), **more))


def _target_name(target: str, queue: str) -> str:
    """The name of the target, which is in the namespace of the queue."""
    namespace, slash, name = target.rpartition("/")
    if slash and namespace != queue.rpartition("/")[0]:
        raise InvalidRequest("A bulk job's target is in the namespace of its queue", target=target, queue=queue)
    return name


def _sink(text: str, options: tuple[str, ...]) -> dict[str, Any]:
    form, colon, path = text.partition(":")
    if not colon or not path:
        raise InvalidRequest("A sink must be FORMAT:PATH", given=text, remedy="write parquet:/data/emails")
    pairs = [each.partition("=") for each in options]
    wrong = [name for name, equals, _ in pairs if not equals]
    if wrong:
        raise InvalidRequest("An option of a sink must be KEY=VALUE", given=wrong[0])
    return {"format": form, "path": path, "options": {name: value for name, _, value in pairs}}


def _run(options: dict[str, Any], request: Callable[[Any], JobRequest]) -> None:
    """Connect, open Spark, work, disconnect. A mistake in the request is reported before Spark starts."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitCode.INTERRUPTED))
    with _connected() as connection:
        entry = connection.queue(options["queue"]).entry
        job = job_id(entry, options["job"])
        try:
            wanted = request(entry)
            spark = _opened(f"headgate {wanted.mode} {wanted.queue}", options["master"])
        except HeadgateError as error:
            from headgate_spark.jobs.show_progress import JobProgress

            # where the operator reads it, over the report of an earlier run
            JobProgress(connection, job, f"{options['job']} {options['queue']}").report(str(error))
            raise
        _with_spark(spark, connection, wanted, job, options["output"])


def _opened(title: str, master: str | None) -> Any:
    """The session; one line where Spark does not start."""
    from headgate_spark.jobs.frames import SparkNotStarted, spark_errors_as
    from headgate_spark.process.session import LOCAL, open_session

    is_local = (master or "").startswith("local")  # the environment of a submission is complete
    remedy = "check that Java 17 is installed (JAVA_HOME), and that Spark supports the master"
    with spark_errors_as(SparkNotStarted, remedy=remedy, master=master or "that of the submission"):
        return open_session(title, master=master, settings=LOCAL if is_local else {})


def _with_spark(spark: Any, connection: Any, wanted: JobRequest, job: Any, output: Output) -> None:
    from headgate_spark.jobs.run import run_job

    spark.sparkContext.setLogLevel("ERROR")
    try:
        done = run_job(spark, connection, wanted, job)
    finally:
        spark.stop()
    line = f"{wanted.mode} {wanted.queue}: {done.done} done, {done.dead} of them dead letters, {done.returned} left"
    counts = {"done": done.done, "dead_letters": done.dead, "left": done.returned}
    output.show({"queue": wanted.queue, "mode": wanted.mode, **counts}, table=lambda: [line], names=[wanted.queue])


@click.group("bulk_program", commands=command.commands, context_settings=HELP)
@connection_options
def program(**options: str | None) -> None:
    """Work on many messages at once.

    The jobs run in Spark. This is the program for spark-submit; `headgate bulk` has the same commands.
    """


def main() -> NoReturn:
    """As a program of its own."""
    try:
        code = program(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort as abort:
        _report_end(abort.__cause__)
    except HeadgateError as error:
        for line in str(error).splitlines():
            click.echo(line if isinstance(error, InvalidRequest) else f"headgate: {line}", err=True)
        sys.exit(exit_code_of(error))
    sys.exit(code or ExitCode.DONE)


def _report_end(cause: BaseException | None) -> NoReturn:
    """click also takes the end of any input for an interruption: there it is that of a pipe to the JVM."""
    if isinstance(cause, EOFError):
        click.echo("headgate: Spark's JVM ended during a request; run the job again", err=True)
        sys.exit(ExitCode.FAILED)
    click.echo("interrupted; run the job again to resume it", err=True)
    sys.exit(ExitCode.INTERRUPTED)


if __name__ == "__main__":
    main()
