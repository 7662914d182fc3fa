"""Handlers in any language: each message is posted to a URL, and the response decides about it.

The body is the payload. The headers hold the rest (docs/workers.md). A connection that
cannot be made is not an attempt: the message was never sent. It is sent again for as long as this worker owns it, and
costs no receive. A request that was sent and not answered counts as failed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import math
import time
from collections.abc import Sequence
from random import Random
from urllib.parse import quote, urlsplit

import aiohttp

from headgate.engines.contract import Attributes, NackDelivery, Settle
from headgate.errors import InvalidRequest
from headgate.runtime.handler.context import Attempt
from headgate.runtime.handler.decide_response import REJECT_HEADER, Response, decide_response
from headgate.runtime.handler.decide_retry import Backoff, bounded_reason, delay_after
from headgate.runtime.handler.payloads import CONTENT_TYPE
from headgate.telemetry.tracing import TRACEPARENT, TRACESTATE, current_trace

log = logging.getLogger("headgate.worker")

CONNECT_WITHIN_S = 5.0
IDLE_S = 4.0
BODY_READ_BYTES = 2_048
REPORT_AFTER = 5
NOT_CONNECTED = Backoff(first_s=0.2, factor=2.0, cap_s=5.0)


def checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise InvalidRequest(
            "--http must be the URL of a handler", remedy="write http://127.0.0.1:8080/work", given=url
        )
    return url


class HttpPerformer:
    batch = False
    wants_context = True

    def __init__(
        self, url: str, *, queue: str, connections: int, timeout_s: float, backoff: Backoff, rng: Random
    ) -> None:
        self._url = checked_url(url)
        self._queue = queue
        self._timeout_s = timeout_s
        self._backoff = backoff
        self._rng = rng
        self._draining = asyncio.Event()
        # The run time of a handler is limited together with all messages in flight, so only connecting has a timeout
        # in this module. An idle connection is closed before common servers do it (Node: 5 s), so that no request
        # meets a closing one.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_WITHIN_S)
        connector = aiohttp.TCPConnector(limit=connections, keepalive_timeout=IDLE_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)

    def drain(self) -> None:
        self._draining.set()

    async def close(self) -> None:
        await self._session.close()

    async def perform(self, attempts: Sequence[Attempt]) -> Sequence[Settle]:
        (attempt,) = attempts
        tries = 0
        while True:
            try:
                return (await self._post(attempt),)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                tries += 1
                if tries == REPORT_AFTER:
                    log.warning("the handler cannot be reached", extra={"url": self._url, "error": str(error)})
                self._limit(attempt, math.inf)  # it has not started
                if await self._is_draining_within(max(0.05, NOT_CONNECTED.bound_s(tries) * self._rng.random())):
                    return (NackDelivery(attempt.delivery.receipt, charged=False),)
                self._limit(attempt, CONNECT_WITHIN_S + self._timeout_s)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                return (self._failed(attempt, error),)

    @staticmethod
    def _limit(attempt: Attempt, seconds: float) -> None:
        if attempt.context is not None:
            attempt.context.control.limit(seconds)

    async def _is_draining_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._draining.wait(), seconds)
        except TimeoutError:
            return False
        return True

    async def _post(self, attempt: Attempt) -> Settle:
        headers = headers_of(attempt, self._queue)
        # Not more than once: a request that was sent may have been processed, and a retry by aiohttp would not be
        # counted.
        async with self._session.post(
            self._url, data=attempt.delivery.payload, headers=headers, allow_redirects=False
        ) as answer:
            body = b"" if 200 <= answer.status < 300 else await answer.content.read(BODY_READ_BYTES)
            response = Response(
                answer.status,
                answer.headers.get("Retry-After"),
                answer.headers.get(REJECT_HEADER),
                body.decode(errors="replace"),
            )
        return decide_response(
            response, attempt.delivery, jitter=self._rng.random(), now_s=time.time(), backoff=self._backoff
        )

    def _failed(self, attempt: Attempt, error: Exception) -> NackDelivery:
        if isinstance(error, TimeoutError):
            detail = f"the handler did not answer within {self._timeout_s:g} s"
        else:
            detail = f"no answer from the handler: {type(error).__name__}"
        delay_us = delay_after(self._backoff, attempt.delivery.attempt, self._rng.random())
        return NackDelivery(attempt.delivery.receipt, delay_us, bounded_reason(detail, str(error)))


def headers_of(attempt: Attempt, queue: str) -> dict[str, str]:
    delivery = attempt.delivery
    headers = {
        "Headgate-Queue": queue,
        "Headgate-Message-Id": delivery.message_id,
        "Headgate-Attempt": str(delivery.attempt),
        "Headgate-Fencing-Token": str(delivery.epoch),
        "Content-Type": "application/octet-stream",
    }
    if delivery.group is not None:
        headers["Headgate-Group"] = quote(delivery.group, safe="!#$&'()*+,/:;=?@[]~ ")
    if attempt.context is not None and (deadline := attempt.context.deadline) is not None:
        headers["Headgate-Deadline"] = deadline.isoformat()
    if delivery.attributes:
        headers |= _of_attributes(delivery.attributes)
    trace = current_trace.get()
    if trace is not None:
        headers[TRACEPARENT] = trace.traceparent
        if trace.tracestate is not None:
            headers[TRACESTATE] = trace.tracestate
    return headers


def _of_attributes(attributes: Attributes) -> dict[str, str]:
    """All of them as one JSON object in ASCII, since names of headers keep neither case nor every character."""
    own_headers = {
        name: value if isinstance(value, str) else {"base64": base64.b64encode(value).decode()}
        for name, value in attributes.items()
        if name not in (TRACEPARENT, TRACESTATE)
    }
    headers = {"Headgate-Attributes": json.dumps(own_headers)} if own_headers else {}
    form = attributes.get(CONTENT_TYPE)
    if isinstance(form, str) and form.isascii() and form.isprintable():
        headers["Content-Type"] = form
    return headers
