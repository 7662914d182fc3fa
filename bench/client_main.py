"""The client process: `python -m bench.client_main MODULE`, lines of JSON in and out until input ends.

MODULE has `open_contender(environment) -> Contender`. What the work prints goes to stderr, so answers stay whole.
A mistake is answered in one line; its traceback goes to stderr, which the parent keeps. The cyclic collector is tuned
as a worker tunes it, alike for all contenders.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from dataclasses import asdict
from typing import Any

from bench.contender import Contender
from penstock.runtime.loop import spare_the_collector


def answer(contender: Contender, asked: dict[str, Any]) -> Any:
    """Do what one line asks."""
    match asked:
        case {"do": "prepare", "job": job}:
            return contender.prepare(job)
        case {"do": "run", "job": job}:
            return asdict(contender.run(job))
        case {"do": "tell"}:
            return asdict(contender.tell())
    raise ValueError(f"asked for {asked.get('do')!r}")


def main(arguments: list[str]) -> int:
    """Serve the parent."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    contender: Contender = importlib.import_module(arguments[0]).open_contender(os.environ)
    spare_the_collector()
    try:
        answers.write(json.dumps({"ok": "ready"}) + "\n")
        for line in sys.stdin:
            try:
                said = {"ok": answer(contender, json.loads(line))}
            except Exception as error:
                traceback.print_exc()
                said = {"failed": f"{type(error).__name__}: {error}"}
            answers.write(json.dumps(said) + "\n")
    finally:
        contender.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
