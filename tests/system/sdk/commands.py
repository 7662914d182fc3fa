"""`headgate` as tests call it: in this process, which is quick, or as a process of its own, as users do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from click.testing import CliRunner

import headgate
from headgate.cli.main import main

OWN_PROCESS_WITHIN_S = 90

T = TypeVar("T")


class Ran:
    """How a command ended and what it printed."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out.splitlines()
        self.err = err.splitlines()

    def __repr__(self) -> str:
        return f"Ran({self.code}, {self.out}, {self.err})"


class Commands:
    """The commands and the SDK, with an environment."""

    def __init__(self, connection_variables: Mapping[str, str]) -> None:
        self.connection_variables = dict(connection_variables)
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **connection_variables}

    def __call__(self, *arguments: str, given: str | None = None, **environment: str) -> Ran:
        """In this process."""
        done = CliRunner().invoke(main, arguments, input=given, env={**self.connection_variables, **environment})
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    def in_own_process(self, *arguments: str, given: str | None = None) -> Ran:
        """As a user runs it, to its end."""
        command = [sys.executable, "-m", "headgate.cli.main", *arguments]
        done = subprocess.run(
            command,
            env=self._environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=OWN_PROCESS_WITHIN_S,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """As a user runs it, while it runs."""
        command = [sys.executable, "-m", "headgate.cli.main", *arguments]
        return subprocess.Popen(
            command, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def connected(self, work: Callable[[headgate.Headgate], Awaitable[T]]) -> T:
        """Do something by the SDK."""

        async def run() -> T:
            async with headgate.connect(self.connection_variables) as connection:
                return await work(connection)

        return asyncio.run(run())
