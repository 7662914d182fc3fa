"""The SDK without async is what is generated from the one with it."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable

import pytest

from dev import sync_sdk
from headgate.client import Counter, Message, Queue, SyncCounter, SyncMessage, SyncQueue

REMEDY = "generate it again: .venv/bin/python -m dev.sync_sdk"


def test_the_generated_methods_are_current() -> None:
    assert [] == sync_sdk.read_faults(), REMEDY


@pytest.mark.parametrize(
    ("asynchronous", "waiting", "name"),
    [
        (Queue.put, SyncQueue.put, "put"),
        (Queue.redrive, SyncQueue.redrive, "redrive"),
        (Counter.value, SyncCounter.value, "value"),
        (Message.nack, SyncMessage.nack, "nack"),
    ],
)
def test_a_generated_method_has_the_signature_the_types_and_the_text_of_its_call(
    asynchronous: Callable[..., object], waiting: Callable[..., object], name: str
) -> None:
    assert inspect.signature(asynchronous) == inspect.signature(waiting)
    assert typing.get_type_hints(asynchronous) == typing.get_type_hints(waiting)
    assert inspect.getdoc(asynchronous) == inspect.getdoc(waiting), name


def test_a_changed_call_makes_the_files_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = sync_sdk._methods
    monkeypatch.setattr(sync_sdk, "_methods", lambda source: list(methods(source))[1:])
    assert 2 == len(sync_sdk.read_faults())
