"""What a handler's author needs: `Context`, `Retry`, `Reject`, and `handler` for what annotations do not say."""

from headgate.runtime.context import Context
from headgate.runtime.decide_retry import REJECT, Backoff, Reject, Retry, RetryPolicy
from headgate.runtime.handlers import handler

__all__ = ["REJECT", "Backoff", "Context", "Reject", "Retry", "RetryPolicy", "handler"]
