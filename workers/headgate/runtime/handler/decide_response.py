"""The meaning of an HTTP handler's response for its message. Pure.

2xx: done. 429 and 503: retry after Retry-After (seconds or a date), else after a backoff. Any other response with the
header `Headgate-Reject`, except 2xx, moves the message to the dead-letter queue at once, with the header's value as
the reason. Any other response, including redirects: retry after a backoff.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from headgate.engines.contract import Ack, DeadLetterDelivery, Delivery, NackDelivery, Settle
from headgate.expiry import SECOND_US
from headgate.runtime.handler.decide_retry import DELAY_S_MAX, Backoff, bounded_reason, delay_after

BUSY = (429, 503)
REJECT_HEADER = "Headgate-Reject"


@dataclass(frozen=True)
class Response:
    status: int
    retry_after: str | None = None
    reject: str | None = None
    body: str = ""


def decide_response(
    response: Response, delivery: Delivery, *, jitter: float, now_s: float, backoff: Backoff
) -> Settle:
    """How the message is settled. `now_s` is the time of day, in seconds since 1970."""
    if 200 <= response.status < 300:
        return Ack(delivery.receipt)
    delay_us = delay_after(backoff, delivery.attempt, jitter)
    if response.reject is not None:
        reason = bounded_reason(f"rejected: {response.reject}", response.body)
        return DeadLetterDelivery(delivery.receipt, reason, delay_us)
    reason = bounded_reason(f"the handler answered {response.status}", response.body)
    if response.status in BUSY:
        after_s = retry_after_s(response.retry_after, now_s)
        if after_s is not None:
            return NackDelivery(delivery.receipt, round(after_s * SECOND_US), reason)
    return NackDelivery(delivery.receipt, delay_us, reason)


def retry_after_s(header: str | None, now_s: float) -> float | None:
    """Seconds from now, as RFC 9110 has it: a number of seconds, or a date. None where there is none, or nonsense."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return min(float(text), DELAY_S_MAX)
    try:
        retry_at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if retry_at.tzinfo is None:
        retry_at = retry_at.replace(tzinfo=UTC)
    return min(max(retry_at.timestamp() - now_s, 0.0), DELAY_S_MAX)
