"""Shared code of the chart's short programs: they reach the cluster, retry until it answers, and end.

A mistake, or a cluster that cannot be reached, is one line and an exit code.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import click

from headgate.command_line.exit_codes import ExitCode
from headgate.errors import EnvironmentProblem, HeadgateError
from headgate_operator.cluster.api_server import HttpApiClient
from headgate_operator.cluster.port import Denial, Denied
from headgate_operator.cluster.requests import ClusterPort

REACH_WITHIN_S: Final = 30.0
RIGHTS_WITHIN_S: Final = 15.0
"""In which an API server has heard of new roles: those of a hook are made only just before its Job."""
AGAIN_S: Final = 1.0

Answer = TypeVar("Answer")


class ApiServerUnavailable(EnvironmentProblem):
    """The API server does not answer, or refuses."""


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--context", help="Context of the kubeconfig.")(command)
    return click.option("--kubeconfig", help="Kubeconfig. Default: the pod's account, or yours.")(command)


def run_to_its_end(
    work: Callable[[ClusterPort], Awaitable[None]], *, kubeconfig: str | None, context: str | None
) -> None:
    """Run it; an error is printed as one line."""
    logging.getLogger("kubernetes").setLevel(logging.ERROR)

    async def run() -> None:
        cluster = await HttpApiClient.connect(kubeconfig=kubeconfig, context=context)
        try:
            await work(cluster)
        finally:
            await cluster.close()

    try:
        asyncio.run(run())
    except HeadgateError as error:
        click.echo(str(error), err=True)
        sys.exit(ExitCode.FAILED)


async def request_until_answered(ask: Callable[[], Awaitable[Answer | Denied]]) -> Answer | Denied:
    """The answer; NOT_FOUND is one. A passing failure is retried for a while."""
    began_s = asyncio.get_running_loop().time()
    while True:
        answer = await ask()
        if not isinstance(answer, Denied) or answer.denial is Denial.NOT_FOUND:
            return answer
        if asyncio.get_running_loop().time() >= began_s + _patience_s(answer):
            raise ApiServerUnavailable(
                answer=str(answer), remedy="check the rights of its account, and whether the API server is up"
            )
        await asyncio.sleep(answer.retry_after_s or AGAIN_S)


def _patience_s(answer: Denied) -> float:
    """For how long the same is asked again."""
    if answer.denial is Denial.FORBIDDEN:
        return RIGHTS_WITHIN_S
    return 0.0 if answer.is_permanent else REACH_WITHIN_S
