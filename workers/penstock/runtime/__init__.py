"""What a handler's author needs: `Context`, `Retry`, `Reject`, and `handler` for what annotations do not say."""

from penstock.runtime.context import Context
from penstock.runtime.decide_retry import REJECT, Backoff, Reject, Retry, RetryPolicy
from penstock.runtime.handlers import handler

__all__ = ["REJECT", "Backoff", "Context", "Reject", "Retry", "RetryPolicy", "handler"]
