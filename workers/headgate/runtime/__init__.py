"""The API for the author of a handler: `Context`, `Retry`, `Reject`, and `handler` for options that annotations
cannot express."""

from headgate.runtime.handler.context import Context
from headgate.runtime.handler.decide_retry import REJECT, Backoff, Reject, Retry, RetryPolicy
from headgate.runtime.handler.handlers import handler

__all__ = ["REJECT", "Backoff", "Context", "Reject", "Retry", "RetryPolicy", "handler"]
