"""Handlers that return an awaitable which does their work: behind a sync decorator, of an object, a task."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from headgate.runtime import Reject, handler

REQUEST: ContextVar[str] = ContextVar("request", default="none")


def decorated(function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """An ordinary decorator, which knows nothing of async functions."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        REQUEST.set("set by the decorator")
        return function(*arguments, **named)

    return wrapper


@decorated
async def one(payload: str) -> None:
    """Fails by its payload."""
    await asyncio.sleep(0)
    _fail_by(payload)


@decorated
async def batch(payloads: list[str]) -> list[Exception | None]:
    """Rejects by payload."""
    await asyncio.sleep(0)
    return [Reject("refused") if payload == "reject" else None for payload in payloads]


class Answering:
    """An object whose call returns a coroutine."""

    def __call__(self, payload: str) -> Awaitable[None]:
        return self._handle(payload)

    async def _handle(self, payload: str) -> None:
        await asyncio.sleep(0)
        _fail_by(payload)


answering = Answering()


async def async_and_more(payload: str) -> Awaitable[None]:
    """Async, and returns another awaitable."""
    return asyncio.ensure_future(Answering()(payload))


@handler(batch=True)
async def async_batch_and_more(payloads: list[str]) -> Awaitable[list[Exception | None]]:
    """The same, of a batch."""
    return asyncio.ensure_future(_batch_of(payloads))


async def _batch_of(payloads: list[str]) -> list[Exception | None]:
    await asyncio.sleep(0)
    return [Reject("refused") if payload == "reject" else None for payload in payloads]


def _fail_by(payload: str) -> None:
    if payload == "reject":
        raise Reject("refused")
    if payload == "exit":
        sys.exit(3)
