"""The client process: `python -m bench.client_main MODULE`, lines of JSON in and out until input ends.

MODULE has `open_contender(environment) -> Contender`. Output of the work goes to stderr, so answers stay whole. A
mistake is answered in one line; its traceback goes to stderr, which the parent keeps. The cyclic collector is tuned
as a worker tunes it, for all contenders. SIGUSR1 prints the place where each of its tasks waits.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from bench.contender import Contender
from headgate.process.event_loop import spare_the_collector


def answer(contender: Contender, asked: dict[str, Any]) -> Any:
    """Run the request of one line."""
    match asked:
        case {"do": "prepare", "job": job}:
            return contender.prepare(job)
        case {"do": "run", "job": job}:
            return asdict(contender.run(job))
        case {"do": "report"}:
            return asdict(contender.report())
    raise ValueError(f"unknown request {asked.get('do')!r}")


def print_waiting() -> None:
    """The stack of each task of all loops: they may run in other threads than this one."""
    tasks = [each for each in gc.get_objects() if isinstance(each, asyncio.Task) and not each.done()]
    for task in tasks:
        print(f"{task.get_name()}: {' < '.join(_frames_of(task.get_coro()))}", file=sys.stderr)
    print(f"{len(tasks)} tasks wait", file=sys.stderr, flush=True)


def _frames_of(awaited: Any) -> Iterator[str]:
    """From the outermost frame to the one that waits."""
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        yield f"{frame.f_code.co_qualname}:{frame.f_lineno}"
        awaited = awaited.cr_await


def main(arguments: list[str]) -> int:
    """Serve the parent."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    contender: Contender = importlib.import_module(arguments[0]).open_contender(os.environ)
    spare_the_collector()
    signal.signal(signal.SIGUSR1, lambda *_: print_waiting())
    try:
        answers.write(json.dumps({"ok": "ready"}) + "\n")
        for line in sys.stdin:
            try:
                text = {"ok": answer(contender, json.loads(line))}
            except Exception as error:
                traceback.print_exc()
                text = {"failed": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(text) + "\n")
    finally:
        contender.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
