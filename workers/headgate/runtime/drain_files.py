"""The files by which a worker is told to drain, and tells that it has: for whoever may not signal it.

Kubernetes' preStop hook runs beside the worker (drain.py). It sends no signal, since a second one ends a worker at
once, and since the worker may stand behind a shell that passes none on. Beside the file that asks lie two of the
worker: one as long as it runs, with its process and its grace, and one once its lanes are given back.

They are looked for where HEADGATE_DRAIN says, and under an operator in `/tmp/headgate-drain`; else nowhere: on a
machine with many workers one file would end them all.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "HEADGATE_DRAIN"
UNDER_OPERATOR = "HEADGATE_OPERATOR_VERSION"
DEFAULT = "/tmp/headgate-drain"  # noqa: S108  the pod's own
GRACE_S = 25.0


@dataclass(frozen=True)
class RunningWorker:
    """A worker that takes the file's word."""

    pid: int
    grace_s: float

    def is_alive(self) -> bool:
        """Whether its process is there."""
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@dataclass(frozen=True)
class DrainFiles:
    """Three files with one name."""

    asking: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> DrainFiles | None:
        """As the environment tells; None where nothing is looked for."""
        told = environment.get(VARIABLE) or (DEFAULT if environment.get(UNDER_OPERATOR) else "")
        return cls(Path(told)) if told else None

    @property
    def running(self) -> Path:
        """There as long as a worker looks for the other."""
        return self.asking.with_name(self.asking.name + ".worker")

    @property
    def answer(self) -> Path:
        """There once the worker has nothing in hand and no lane."""
        return self.asking.with_name(self.asking.name + ".done")

    # ---- the worker's side

    def begin(self, grace_s: float) -> None:
        """Say that a worker runs; what is left of another (the folder outlives a container) means nothing."""
        self.asking.unlink(missing_ok=True)
        self.answer.unlink(missing_ok=True)
        _write(self.running, json.dumps({"pid": os.getpid(), "grace_s": grace_s}))

    def is_asked(self) -> bool:
        """Whether it was told to drain."""
        return self.asking.exists()

    def finish(self) -> None:
        """Say that it has, and that no worker runs any more."""
        with contextlib.suppress(OSError):
            _write(self.answer, "")
            self.running.unlink(missing_ok=True)

    # ---- the other side

    def worker(self) -> RunningWorker | None:
        """The worker that runs; None where there is none."""
        try:
            told = json.loads(self.running.read_text(encoding="utf-8"))
            return RunningWorker(int(told["pid"]), float(told.get("grace_s", GRACE_S)))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def ask(self) -> None:
        """Tell it to drain."""
        _write(self.asking, "")

    def is_answered(self) -> bool:
        """Whether it has nothing in hand any more."""
        return self.answer.exists()


def _write(path: Path, text: str) -> None:
    """Whole or not at all: the other side looks at any moment."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
