"""`headgate worker`: drains a queue by a handler."""

from __future__ import annotations

import os
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import click

from headgate.api.durations import parse_duration_ms
from headgate.cli.connection import connection_options, environment_with
from headgate.cli.extras import require_extra
from headgate.errors import SpecError
from headgate.telemetry.logs import FORMATS, LEVELS

HTTP_TIMEOUT_S = 300.0
PREFETCH_MAX = 1_000
_RATE = re.compile(r"([1-9][0-9]{0,6})/([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600}


def _duration(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds, written as `90s` or `1h30m`."""
    found_ms = None if value is None else parse_duration_ms(value)
    if value is not None and found_ms is None:
        raise click.BadParameter(f"{value!r} is not a duration such as 500ms, 90s or 1h30m")
    return None if found_ms is None else found_ms / 1_000


def _rate(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Messages a second, written as `50/s`, `600/m` or `1000/h`."""
    if value is None:
        return None
    found = _RATE.fullmatch(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a rate such as 50/s, 600/m or 1000/h")
    return int(found[1]) / _SECONDS[found[2]]


class VersionTooFar(SpecError):
    """This worker's version does not fit the operator's, which started it."""


def _require_version() -> None:
    """Where an operator started it."""
    from headgate.runtime.decide_version import why_version_refused

    operators = os.environ.get("HEADGATE_OPERATOR_VERSION")
    if not operators:
        return
    try:
        own = version("headgate")
    except PackageNotFoundError:
        own = "unknown"
    why = why_version_refused(own, operators)
    if why is not None:
        raise VersionTooFar(worker=own, operator=operators, remedy=why)


@click.command("worker")
@click.option("--queue", required=True, metavar="NAMESPACE/NAME", help="The queue to drain.")
@click.option("--handler", metavar="MODULE:FUNCTION", help="A Python function, called with each message.")
@click.option("--http", metavar="URL", help="A handler in any language: each message is posted there.")
@click.option(
    "--concurrency", type=click.IntRange(1, 10_000), default=16, show_default=True, help="Handlers at the same time."
)
@click.option(
    "--prefetch",
    type=click.IntRange(0, PREFETCH_MAX),
    help="Messages in hand beyond these, so that no handler waits. Unset: what is handled in 50 ms, at least as many "
    "as --concurrency.",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="The most messages that a handler of batches is called with.",
)
@click.option(
    "--rate",
    callback=_rate,
    metavar="RATE",
    help="Maximum rate of all workers of the queue together, as 50/s or 600/m. Default: no limit.",
)
@click.option(
    "--rate-per-worker",
    callback=_rate,
    metavar="RATE",
    help="Maximum rate of this worker. Default: no limit.",
)
@click.option(
    "--timeout",
    callback=_duration,
    metavar="DURATION",
    help="A handler that takes longer is stopped, and its message delivered again. Unset: no limit for a Python "
    "handler, 5m for one over HTTP.",
)
@click.option(
    "--grace",
    callback=_duration,
    metavar="DURATION",
    default="25s",
    show_default=True,
    help="After SIGTERM, so long may run what was begun. Less than terminationGracePeriodSeconds.",
)
@click.option(
    "--visibility",
    callback=_duration,
    metavar="DURATION",
    help="The most that a message is hidden at a time. Unset: the queue's.",
)
@click.option(
    "--backoff",
    callback=_duration,
    metavar="DURATION",
    default="1s",
    show_default=True,
    help="The bound of the first delay after a failure; it doubles each time.",
)
@click.option(
    "--backoff-max",
    callback=_duration,
    metavar="DURATION",
    default="5m",
    show_default=True,
    help="Where the doubling ends.",
)
@click.option(
    "--health",
    envvar="HEADGATE_HEALTH",
    metavar="HOST:PORT",
    help="Address of /livez, /readyz and /metrics, or off. Default: 0.0.0.0:9090, or a free port where that is "
    "taken. [HEADGATE_HEALTH]",
)
@click.option("--log", "log_form", type=click.Choice(FORMATS), default="json", show_default=True, help="Log lines.")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="The least to log.")
@connection_options
def command(**options: Any) -> None:
    """Drain a queue: receive its messages, have each handled, settle it.

    The handler is either a Python function or whatever answers at a URL. SIGTERM drains: what was begun may end, the
    rest goes back. A second SIGTERM ends at once.
    """
    _require_version()
    require_extra("worker", component="a worker")
    from headgate.runtime.decide_retry import Backoff
    from headgate.runtime.doors import DEFAULT_ADDRESS, read_address
    from headgate.runtime.drain_files import DrainFiles
    from headgate.runtime.process import WorkerOptions, opening_by_client, run_worker
    from headgate.runtime.worker import WorkerTerms
    from headgate.telemetry.graphite import read_graphite

    if (options["handler"] is None) == (options["http"] is None):
        raise SpecError("a worker needs a handler", remedy="give either --handler MODULE:FUNCTION or --http URL")
    if options["rate"] is not None and options["rate_per_worker"] is not None:
        raise SpecError("a worker has one rate", remedy="give either --rate or --rate-per-worker")
    timeout_s = options["timeout"]
    if timeout_s is None and options["http"] is not None:
        timeout_s = HTTP_TIMEOUT_S
    environment = environment_with(options)
    told = WorkerOptions(
        queue=options["queue"],
        handler=options["handler"],
        http=options["http"],
        terms=WorkerTerms(
            concurrency=options["concurrency"],
            prefetch=options["prefetch"],
            batch_size=options["batch_size"],
            rate_per_s=options["rate"] or options["rate_per_worker"],
            rate_is_shared=options["rate"] is not None,
            timeout_s=timeout_s or None,
            grace_s=options["grace"],
            backoff=Backoff(first_s=options["backoff"], cap_s=max(options["backoff_max"], options["backoff"])),
        ),
        health=read_address(options["health"] or DEFAULT_ADDRESS),
        health_may_move=options["health"] is None,
        graphite=read_graphite(environment),
        drain=DrainFiles.of(os.environ),
        log_form=options["log_form"],
        log_level=options["log_level"],
    )
    visibility_s = options["visibility"]
    visibility_us = None if visibility_s is None else round(visibility_s * 1_000_000)
    run_worker(told, opening_by_client(told, environment, visibility_us))
