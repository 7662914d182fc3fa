"""The page of the SDK names what there is, and the programs of the how-to are there to be run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock
from penstock.client import (
    Counter,
    Message,
    Penstock,
    Queue,
    SyncCounter,
    SyncMessage,
    SyncPenstock,
    SyncQueue,
)

PAGE = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text(encoding="utf-8")
WITHIN = {"require_usable", "freshen", "generations_of", "batches", "now_us", "end", "close", "found", "ended"}
WITHIN |= {"bound", "receive_deliveries", "settings_changed", "dead_loops"}
"""Public to the other files of the SDK and to the worker alone."""


def names_on(page: str) -> set[str]:
    """What stands in backquotes, up to its first parenthesis."""
    return {word for quoted in re.findall(r"`([^`]+)`", page) for word in re.findall(r"[A-Za-z_]+", quoted)}


@pytest.mark.parametrize(
    "kind", [Penstock, Queue, Counter, Message, SyncPenstock, SyncQueue, SyncCounter, SyncMessage]
)
def test_the_page_names_every_method(kind: type) -> None:
    public = (
        {name for name in dir(kind) if not name.startswith("_")}
        - WITHIN
        - {"connection", "queue", "message", "counter"}
    )
    assert set() == public - names_on(PAGE)


def test_the_page_names_everything_that_penstock_exports() -> None:
    assert set() == set(penstock.__all__) - names_on(PAGE)


def test_whatever_is_exported_can_be_had() -> None:
    assert [] == [name for name in penstock.__all__ if getattr(penstock, name, None) is None]
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = penstock.nothing_of_ours


@pytest.mark.parametrize(
    ("asynchronous", "waiting"), [(Queue, SyncQueue), (Counter, SyncCounter), (Message, SyncMessage)]
)
def test_without_async_there_is_every_call_that_there_is_with_it(asynchronous: type, waiting: type) -> None:
    own = (
        {name for name in vars(asynchronous) if not name.startswith("_")}
        - WITHIN
        - {"entry", "engine", "standing", "kind", "handle"}
    )
    assert set() == own - set(dir(waiting))
