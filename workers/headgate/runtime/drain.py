"""`python -m headgate.runtime.drain`: request a drain from the worker of this pod, and return when it is
done. The preStop hook.

It returns at once where no worker runs, and with the worker's grace at the latest: then SIGTERM comes, and the worker
ends as it does then.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping

from headgate.runtime.startup.drain_files import DrainFiles

MORE_S = 3.0
"""Time beyond the worker's grace, for releasing the lanes. The pod has ten seconds more than the grace."""
CHECK_EVERY_S = 0.1
EXIT_NOT_DRAINED = 1


def drain(
    environment: Mapping[str, str],
    *,
    now_s: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether no message is in flight any more."""
    files = DrainFiles.of(environment)
    worker = None if files is None else files.worker()
    if files is None or worker is None or not worker.is_alive():
        return True
    files.ask()
    until_s = now_s() + worker.grace_s + MORE_S
    while now_s() < until_s:
        if files.is_answered() or not worker.is_alive():
            return True
        pause(CHECK_EVERY_S)
    return False


def main() -> int:
    try:
        if drain(os.environ):
            return 0
        message = "the worker did not drain within its grace period"
    except OSError as error:
        message = f"the drain request could not be written: {error}"
    print(message, file=sys.stderr)  # noqa: T201  output of a hook
    return EXIT_NOT_DRAINED


if __name__ == "__main__":
    raise SystemExit(main())
