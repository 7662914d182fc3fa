"""The putting side of bench-timeline's contender: callers that await `put`, of which one in sixteen is timed."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from bench.timeline_process import TimelineProcess
from bench.timeline_run import Run
from bench.timeline_work import DICTS, PAYLOADS, TIMED_ONE_IN, Do, Form, Keys, Work, padded, stamped
from headgate.client.model.outgoing import build_plain_message
from headgate.client.model.payloads import CONTENT_TYPE, JSON
from headgate.engines.contract import NewMessage
from headgate.errors import HeadgateError

KEPT_IDS_MAX = 2_000

_FORMS: dict[Form, tuple[Callable[[Any], NewMessage], Sequence[Any]]] = {
    Form.BYTES: (build_plain_message, PAYLOADS),
    Form.TYPED: (lambda payload: NewMessage(payload, None, {CONTENT_TYPE: JSON}), PAYLOADS),
    Form.ENCODED: (lambda value: build_plain_message(json.dumps(value).encode()), DICTS),
    Form.DICTS: (build_plain_message, DICTS),
}


class Putting(Run):
    """One run of a producer."""

    def __init__(self, process: TimelineProcess) -> None:
        super().__init__(process)
        self._payload = itertools.cycle(PAYLOADS)
        run = uuid.uuid4().hex[:12]
        self._callers = (f"{run} {number}" for number in itertools.count())

    async def work(self, work: Work) -> None:
        if work.do is Do.PACE:
            await self._pace(work)
            return
        caller = self._in_batches if work.batch > 1 else self._singly if work.form is None else self._formed
        if work.keys is not None:
            caller = self._keyed
        await asyncio.gather(*(caller(work, number % TIMED_ONE_IN == 0) for number in range(work.callers)))

    async def _singly(self, work: Work, timed: bool) -> None:
        put, payload, delay_us = self.queue.put, self._payload, work.delay_us
        wanted, done = work.messages_max // work.callers, 0
        while self.on and done < wanted:
            sent = time.perf_counter() if timed else 0.0
            due_us = self.process.clock.now_us() + delay_us if delay_us else None
            try:
                ids = await put([NewMessage(next(payload), due_us)])
            except HeadgateError as error:
                self.fail(error)
                continue
            done += 1
            if timed:
                self._timed(sent, ids)
        self.rows += done
        self.requests += done

    async def _formed(self, work: Work, timed: bool) -> None:
        """As the SDK: a payload becomes a message of the engine."""
        put, build, values = self.queue.put, *_FORMS[work.form or Form.BYTES]
        value = itertools.cycle(values)
        done = 0
        while self.on:
            sent = time.perf_counter() if timed else 0.0
            try:
                ids = await put([build(next(value))])
            except HeadgateError as error:
                self.fail(error)
                continue
            done += 1
            if timed:
                self._timed(sent, ids)
        self.rows += done
        self.requests += done

    async def _in_batches(self, work: Work, _: bool) -> None:
        put, payload, delay_us = self.queue.put, self._payload, work.delay_us
        wanted, done = work.messages_max // work.callers, 0
        while self.on and done < wanted:
            sent = time.perf_counter()
            due_us = self.process.clock.now_us() + delay_us if delay_us else None
            try:
                ids = await put([NewMessage(each, due_us) for each in itertools.islice(payload, work.batch)])
            except HeadgateError as error:
                self.fail(error)
                continue
            done += len(ids)
            self.requests += 1
            self._timed(sent, ids)
        self.rows += done

    async def _keyed(self, work: Work, _: bool) -> None:
        """Each message with a once key, of which no other caller has one."""
        caller = next(self._callers)
        done = 0
        while self.on:
            call = 0 if work.keys is Keys.REPEATED else done
            scope = None if work.keys is Keys.EACH else f"{caller} {call}"
            messages = [
                NewMessage(next(self._payload), once=f"{caller} {call} {number}", once_scope=scope)
                for number in range(work.batch)
            ]
            sent = time.perf_counter()
            try:
                ids = await self.queue.put(messages)
            except HeadgateError as error:
                self.fail(error)
                continue
            done += len(ids)
            self.requests += 1
            self._timed(sent, ids)
        self.rows += done

    async def _pace(self, work: Work) -> None:
        """At even intervals; overdue ones are put at once, so the rate is kept."""
        began = time.perf_counter()
        waiting: set[asyncio.Task[None]] = set()
        for number in range(work.messages_max):
            left_s = began + number / work.rate - time.perf_counter()
            if left_s > 0:
                await asyncio.sleep(left_s)
            task = asyncio.get_running_loop().create_task(self._put_stamped(work))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
        if waiting:
            await asyncio.wait(waiting)

    async def _put_stamped(self, work: Work) -> None:
        now_us, sent = self.process.clock.now_us(), time.perf_counter()
        due_us = now_us + work.delay_us if work.delay_us else None
        try:
            payload = padded(stamped(next(self._payload), now_us), work.payload_bytes)
            ids = await self.queue.put([NewMessage(payload, due_us)])
        except HeadgateError as error:
            self.fail(error)
            return
        self.rows += 1
        self.requests += 1
        self._timed(sent, ids)

    def _timed(self, sent: float, ids: Sequence[str]) -> None:
        self.latencies_s.append(time.perf_counter() - sent)
        if len(self.ids) < KEPT_IDS_MAX:
            self.ids += ids
