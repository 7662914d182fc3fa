"""The SDK without async has the calls of the one with it: the same signatures, types and texts."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable

import pytest

from headgate.client import Counter, Headgate, Message, Queue, SyncCounter, SyncHeadgate, SyncMessage, SyncQueue


@pytest.mark.parametrize(
    ("asynchronous", "waiting", "name"),
    [
        (Queue.put, SyncQueue.put, "put"),
        (Queue.redrive, SyncQueue.redrive, "redrive"),
        (Counter.value, SyncCounter.value, "value"),
        (Message.nack, SyncMessage.nack, "nack"),
    ],
)
def test_a_waiting_call_has_the_signature_the_types_and_the_text_of_its_call(
    asynchronous: Callable[..., object], waiting: Callable[..., object], name: str
) -> None:
    assert inspect.signature(asynchronous) == inspect.signature(waiting)
    assert typing.get_type_hints(asynchronous) == typing.get_type_hints(waiting)
    assert inspect.getdoc(asynchronous) == inspect.getdoc(waiting), name


@pytest.mark.parametrize(
    ("asynchronous", "waiting"),
    [
        (Headgate.queue, SyncHeadgate.queue),
        (Headgate.counter, SyncHeadgate.counter),
        (Queue.put_many, SyncQueue.put_many),
        (Queue.put_each, SyncQueue.put_each),
        (Queue.add_to_batch, SyncQueue.add_to_batch),
        (Queue.receive, SyncQueue.receive),
        (Queue.ack, SyncQueue.ack),
        (Counter.token, SyncCounter.token),
        (Counter.scan, SyncCounter.scan),
    ],
    ids=lambda call: call.__qualname__,
)
def test_a_call_that_is_written_by_hand_has_the_parameters_of_its_call(
    asynchronous: Callable[..., object], waiting: Callable[..., object]
) -> None:
    assert parameters_of(asynchronous) == parameters_of(waiting)


def parameters_of(call: Callable[..., object]) -> list[tuple[str, object, object]]:
    """The name, the kind and the default of each."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(call).parameters.values()]
