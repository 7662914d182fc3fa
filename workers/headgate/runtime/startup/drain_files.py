"""The files that request a drain from a worker and report its end, for processes that may not signal it.

Kubernetes' preStop hook runs next to the worker (drain.py). It sends no signal, because a second signal ends a worker
at once, and because the worker may run under a shell that forwards none. Next to the request file the worker keeps
two files. One exists while it runs, with its process and its grace; the other appears once its lanes are released.

The files are in the folder HEADGATE_DRAIN, and under an operator in `/tmp/headgate-drain`. By default there are none:
on a machine with many workers one file would end them all.
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
    pid: int
    grace_s: float

    def is_alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


@dataclass(frozen=True)
class DrainFiles:
    asking: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> DrainFiles | None:
        """From the environment; None where no file is watched."""
        directory = environment.get(VARIABLE) or (DEFAULT if environment.get(UNDER_OPERATOR) else "")
        return cls(Path(directory)) if directory else None

    @property
    def running(self) -> Path:
        """Exists while a worker watches for the other file."""
        return self.asking.with_name(self.asking.name + ".worker")

    @property
    def answer(self) -> Path:
        """Exists once the worker has nothing in flight and no lane."""
        return self.asking.with_name(self.asking.name + ".done")

    # ---- the worker's side

    def begin(self, grace_s: float) -> None:
        """Record that a worker runs. Files left by another worker (the folder outlives a container) mean nothing."""
        self.asking.unlink(missing_ok=True)
        self.answer.unlink(missing_ok=True)
        _write(self.running, json.dumps({"pid": os.getpid(), "grace_s": grace_s}))

    def is_asked(self) -> bool:
        return self.asking.exists()

    def finish(self) -> None:
        """Record that the drain is done, and that no worker runs any more."""
        with contextlib.suppress(OSError):
            _write(self.answer, "")
            self.running.unlink(missing_ok=True)

    # ---- the other side

    def worker(self) -> RunningWorker | None:
        try:
            document = json.loads(self.running.read_text(encoding="utf-8"))
            return RunningWorker(int(document["pid"]), float(document.get("grace_s", GRACE_S)))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def ask(self) -> None:
        _write(self.asking, "")

    def is_answered(self) -> bool:
        return self.answer.exists()


def _write(path: Path, text: str) -> None:
    """The file is written whole or not at all: the other side may read it at any time."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
