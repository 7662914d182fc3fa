"""The API for the author of a handler: `Context`, `Retry`, `Reject`, and `handler` for options that annotations
cannot express."""

from headgate.runtime.context import Context
from headgate.runtime.decide_retry import REJECT, Backoff, Reject, Retry, RetryPolicy
from headgate.runtime.handlers import handler

__all__ = ["REJECT", "Backoff", "Context", "Reject", "Retry", "RetryPolicy", "handler"]
