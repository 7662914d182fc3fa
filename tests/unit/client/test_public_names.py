"""The names that `import headgate` offers: each has one meaning, and none costs anything before it is used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import headgate
from headgate.engines.contract import DeadLetterDelivery, Delivery
from headgate.runtime.handler.decide_retry import Reject, decide_retry

PUBLIC_MODULES = ("headgate", "headgate.settle", "headgate.runtime")
FOR_HANDLERS = {"REJECT", "Backoff", "Context", "Reject", "Retry", "RetryPolicy", "handler"}
HEAVY = ("aiohttp", "cassandra", "pydantic", "opentelemetry", "asyncio", "headgate.client", "headgate.runtime")


def run_python(program: str) -> str:
    """The output of a new interpreter."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_reject_is_what_a_handler_raises() -> None:
    assert Reject is headgate.Reject
    delivery = Delivery("m1", b"", {}, None, 1, 0, 0, 1, 0, "r")
    settle = decide_retry(
        headgate.RetryPolicy(), headgate.Reject("no address"), delivery, jitter=0, reason="no address"
    )
    assert DeadLetterDelivery("r", "no address") == settle


@pytest.mark.parametrize("name", sorted(FOR_HANDLERS))
def test_what_the_author_of_a_handler_needs_is_at_the_top(name: str) -> None:
    assert name in headgate.__all__
    assert getattr(headgate, name) is getattr(import_module("headgate.runtime"), name)


def test_no_two_public_names_mean_different_things() -> None:
    meanings: dict[str, set[int]] = {}
    for module in map(import_module, PUBLIC_MODULES):
        for name in module.__all__:
            meanings.setdefault(name, set()).add(id(getattr(module, name)))
    assert [] == [name for name, result in meanings.items() if len(result) > 1]


def test_the_settle_commands_are_in_a_module_of_their_own() -> None:
    assert {"Ack", "DeadLetter", "Extend", "Nack", "SettleCommand"} == set(headgate.settle.__all__)
    assert set() == set(headgate.settle.__all__) & set(headgate.__all__)
    assert "r" == headgate.settle.DeadLetter("r").receipt


def test_importing_headgate_imports_nothing_of_it() -> None:
    assert "[]\n" == run_python(
        f"import sys; before = set(sys.modules); import headgate; "
        f"print([name for name in {HEAVY} if name in set(sys.modules) - before])"
    )


def test_the_names_for_handlers_bring_no_server_and_no_driver() -> None:
    program = (
        f"import sys, headgate; [getattr(headgate, name) for name in {sorted(FOR_HANDLERS)}]; "
        "print([name for name in ('aiohttp', 'cassandra', 'headgate.runtime.worker.worker') if name in sys.modules])"
    )
    assert "[]\n" == run_python(program)
