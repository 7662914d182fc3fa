"""Whether this process makes progress, as /livez asks. The prose is docs/internals/protocols/operator.md, "Leading
and living".

An API server that is unavailable is no failure, since a restart would not help.
"""

from __future__ import annotations

from typing import Final

from headgate_operator.informers.watch_audit import WatchAudit
from headgate_operator.informers.work_queue import Class, WorkQueue

WAITING_S_MAX: Final = 60.0
WORK_S_MAX: Final = 300.0


class LivenessCheck:
    def __init__(self, queue: WorkQueue, audit: WatchAudit, *, reconcilers: int) -> None:
        self._queue = queue
        self._audit = audit
        self._reconcilers = reconcilers

    def why_not_alive(self) -> str | None:
        worked = list(self._queue.work_s())
        waiting_s = self._queue.longest_waiting_s(Class.CHANGED)
        if waiting_s > WAITING_S_MAX and len(worked) < self._reconcilers:
            return f"a change waits for {waiting_s:.0f} s while reconcilers are free"
        if worked and max(worked) > WORK_S_MAX:
            return f"a reconcile takes {max(worked):.0f} s"
        return self._audit.why_dead()
