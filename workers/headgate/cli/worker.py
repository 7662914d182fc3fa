"""`headgate worker`: drains a queue by a handler."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import click

from headgate.command_line.arguments import DURATION, RATE, define_command, queue_argument
from headgate.command_line.connection import read_environment
from headgate.command_line.extras import require_extra
from headgate.errors import InvalidRequest
from headgate.process.version import read_version
from headgate.telemetry.logs import FORMATS, LEVELS

HTTP_TIMEOUT_S = 300.0
PREFETCH_MAX = 1_000


class VersionTooFar(InvalidRequest):
    """This worker's version does not fit the operator's, which started it."""


def _require_version() -> None:
    """Where an operator started it."""
    from headgate.runtime.policy.decide_version import decide_version_problem

    operators = os.environ.get("HEADGATE_OPERATOR_VERSION")
    if not operators:
        return
    own = read_version()
    why = decide_version_problem(own, operators)
    if why is not None:
        raise VersionTooFar(worker=own, operator=operators, remedy=why)


@define_command("worker")
@queue_argument
@click.option("--handler", metavar="MODULE:FUNCTION", help="Python function for each message.")
@click.option("--http", metavar="URL", help="URL to which messages are posted.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=16,
    show_default=True,
    help="Maximum handlers at a time.",
)
@click.option(
    "--prefetch", type=click.IntRange(0, PREFETCH_MAX), metavar="N", help="Messages in advance. Default: adaptive."
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=100,
    show_default=True,
    help="Messages per batch.",
)
@click.option("--rate", type=RATE, help="Maximum rate of all workers together.")
@click.option("--rate-per-worker", type=RATE, help="Maximum rate of this worker.")
@click.option("--timeout", type=DURATION, help="Maximum handler time. Default: see below.")
@click.option("--grace", type=DURATION, default="25s", show_default=True, help="Time for handlers after SIGTERM.")
@click.option("--visibility", type=DURATION, help="Visibility timeout. Default: the queue's.")
@click.option("--backoff", type=DURATION, default="1s", show_default=True, help="First retry delay (upper bound).")
@click.option("--backoff-max", type=DURATION, default="5m", show_default=True, help="Maximum retry delay.")
@click.option(
    "--health",
    envvar="HEADGATE_HEALTH",
    metavar="HOST:PORT",
    help="Address of the probes. [HEADGATE_HEALTH]",
)
@click.option(
    "--log", "log_form", type=click.Choice(FORMATS), default="json", show_default=True, help="Format of log lines."
)
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="Minimum level.")
def worker(queue: str, **options: Any) -> None:
    """Run a handler for each message.

    The handler is a Python function (--handler) or an HTTP endpoint in any language (--http). An HTTP request takes
    at most 5m; a Python handler has no limit unless --timeout sets one. A handler that takes longer is stopped, and
    its message is delivered again.

    Rates are written as 50/s, 600/m or 1000/h. Retry delays double from --backoff to --backoff-max. By default
    --prefetch is the number of messages handled in 50 ms, and at least --concurrency.

    SIGTERM drains the worker: running handlers have --grace to finish, and other messages return to the queue. Keep
    --grace below terminationGracePeriodSeconds. A second SIGTERM stops at once. --health serves /livez, /readyz and
    /metrics; `off` serves nothing. Default: 0.0.0.0:9090, or a free port where that is taken.
    """
    _require_version()
    require_extra("worker", component="a worker")
    from headgate.process.http_server import DEFAULT_ADDRESS, read_address
    from headgate.runtime.handler.decide_retry import Backoff
    from headgate.runtime.startup.drain_files import DrainFiles
    from headgate.runtime.startup.worker_process import WorkerOptions, opening_by_client, run_worker
    from headgate.runtime.worker.worker import WorkerTerms
    from headgate.telemetry.graphite import read_graphite

    if (options["handler"] is None) == (options["http"] is None):
        raise InvalidRequest("A worker needs a handler", remedy="give either --handler MODULE:FUNCTION or --http URL")
    if options["rate"] is not None and options["rate_per_worker"] is not None:
        raise InvalidRequest("A worker has one rate", remedy="give either --rate or --rate-per-worker")
    timeout_s = _seconds(options["timeout"])
    if timeout_s is None and options["http"] is not None:
        timeout_s = HTTP_TIMEOUT_S
    first_s = options["backoff"].total_seconds()
    environment = read_environment()
    worker_options = WorkerOptions(
        queue=queue,
        handler=options["handler"],
        http=options["http"],
        terms=WorkerTerms(
            concurrency=options["concurrency"],
            prefetch=options["prefetch"],
            batch_size=options["batch_size"],
            rate_per_s=options["rate"] or options["rate_per_worker"],
            rate_is_shared=options["rate"] is not None,
            timeout_s=timeout_s or None,
            grace_s=options["grace"].total_seconds(),
            backoff=Backoff(first_s=first_s, cap_s=max(options["backoff_max"].total_seconds(), first_s)),
        ),
        health=read_address(options["health"] or DEFAULT_ADDRESS),
        health_may_move=options["health"] is None,
        graphite=read_graphite(environment),
        drain=DrainFiles.of(os.environ),
        log_form=options["log_form"],
        log_level=options["log_level"],
    )
    visibility_s = _seconds(options["visibility"])
    visibility_us = None if visibility_s is None else round(visibility_s * 1_000_000)
    run_worker(worker_options, opening_by_client(worker_options, environment, visibility_us))


def _seconds(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
