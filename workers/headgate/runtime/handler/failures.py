"""A handler's failure as it appears in the dead letter and in the log: the type, the message, the traceback."""

from __future__ import annotations

import traceback
from concurrent.futures import thread
from pathlib import Path
from types import TracebackType

from headgate.runtime.handler.decide_retry import Reject, Retry, bounded_reason

_OURS = (str(Path(__file__).parent.parent), thread.__file__)
"""The worker's own files, and the pool of threads that it runs handlers in."""


def format_failure(error: BaseException) -> str:
    """Bounded: the type and message first, then the end of the traceback from the handler on."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    text = str(error)
    if isinstance(error, Reject):
        return bounded_reason(f"rejected: {text}" if text else "rejected")
    if isinstance(error, Retry):
        return bounded_reason(f"retry requested: {text}" if text else "retry requested")
    lines = traceback.format_exception(kind, error, _from_handler(error.__traceback__))
    return bounded_reason(f"{name}: {text}" if text else name, "".join(lines))


def _from_handler(trace: TracebackType | None) -> TracebackType | None:
    """Without the worker's own frames, which do not help to find the fault."""
    own = trace
    while own is not None and own.tb_frame.f_code.co_filename.startswith(_OURS):
        own = own.tb_next
    return own if own is not None else trace
