"""bench-timeline's contender: a timeline queue through its engine, as an application would use it.

A process is a producer or a consumer. LWTs are counted after each run: a lane sends one per second, and a put sends
none unless its messages have once keys.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from bench.contender import ClientReport, Contender, Job, Ran, percentile
from bench.timeline_process import LoopThread, TimelineProcess
from bench.timeline_putting import Putting
from bench.timeline_receiving import Receiving
from bench.timeline_run import Run
from bench.timeline_work import LANES, Do, Work, work_of
from headgate.engines.contract import MessageState
from headgate.engines.timeline.model.layout import MessagePlace, id_bytes
from headgate.errors import Bug
from headgate.store.model.statements import Select
from headgate.store.model.types import Value

RECEIPTS_MAX = 20
TOUCHES_A_LANE_S = 1.0
PUTS = (Do.PUT, Do.PACE)


class TimelineContender(Contender):
    """One process, producer or consumer."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._thread = LoopThread()
        self._process = TimelineProcess(environment)
        self._thread.run(self._process.open())
        self._run: Run | None = None
        self._work: Work | None = None
        self._lwts = 0

    def prepare(self, job: Job) -> int:
        """Open the queue of the run that follows."""
        self._thread.run(self._process.open_queue(work_of(job)))
        return 0

    def run(self, job: Job) -> Ran:
        """One window."""
        self._work = work = work_of(job)
        self._run = run = Putting(self._process) if work.do in PUTS else Receiving(self._process)
        before = self._process.lwt_count()
        self._thread.run(run.do(work))
        self._lwts = self._process.lwt_count() - before
        if not run.rows:
            raise Bug("the run did nothing", first_error=run.first_error or "none")
        return Ran(run.wall_s, 0 if work.baseline_name else run.rows, run.requests, run.failed)

    def report(self) -> ClientReport:
        """Percentiles, LWTs and receipts checked, the queue closed."""
        run, work = self._run, self._work
        if run is None or work is None:
            raise Bug("the run did nothing")
        self._check_lwts(run, work)
        check = self._check_ids if work.keys is None else self._check_states
        checked = self._thread.run(check(run))
        if not work.keeps:
            self._thread.run(self._process.close_queue())
        timed = [0.0] if work.baseline_name else run.latencies_s
        return ClientReport(percentile(timed, 0.50) * 1000, percentile(timed, 0.99) * 1000, checked)

    def close(self) -> None:
        self._thread.run(self._process.close())
        self._thread.stop()

    def _check_lwts(self, run: Run, work: Work) -> None:
        if work.keys is not None:
            return
        allowed = 0 if work.do in PUTS else LANES * (2 + int(run.wall_s / TOUCHES_A_LANE_S))
        if self._lwts > allowed:
            raise Bug("more lightweight transactions than promised", sent=self._lwts, allowed=allowed)

    async def _check_states(self, run: Run) -> int:
        """The same where a message may lie at another place than its first: the queue is asked."""
        sample = random.sample(run.ids, min(RECEIPTS_MAX, len(run.ids)))
        for message_id in sample:
            if (await self._process.current.where(message_id)).fate is MessageState.NOT_FOUND:
                raise Bug("an acknowledged message is not found", message_id=message_id)
        return len(sample)

    async def _check_ids(self, run: Run) -> int:
        """A sample of the acknowledged messages is read at its places."""
        sample = random.sample(run.ids, min(RECEIPTS_MAX, len(run.ids)))
        settings = self._process.current.settings
        for message_id in sample:
            row = MessagePlace.from_bytes(id_bytes(message_id)).row
            key: dict[str, Value] = {
                "queue": settings.queue,
                "generation": row.generation,
                "part": row.part(settings.part_us),
                "sub": row.sub,
                "shard": row.shard,
                "due": row.due,
            }
            table = settings.tables.later if row.lies_later else settings.tables.work
            rows = await self._process.store.read(Select(table, key, ("run",)))
            if not rows or rows[0].run is None:
                raise Bug("an acknowledged write is missing", message_id=message_id)
        return len(sample)


def open_contender(environment: Mapping[str, str]) -> TimelineContender:
    """Connected."""
    return TimelineContender(environment)
