"""The names that `import penstock` offers: each has one meaning, and none costs anything before it is used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

import penstock
from penstock.runtime.decide_retry import Reject, judge_failure

PUBLIC_MODULES = ("penstock", "penstock.settle", "penstock.runtime")
FOR_HANDLERS = {"REJECT", "Backoff", "Context", "Reject", "Retry", "RetryPolicy", "handler"}
HEAVY = ("aiohttp", "cassandra", "pydantic", "opentelemetry", "asyncio", "penstock.client", "penstock.runtime")


def run_python(program: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_reject_is_what_a_handler_raises() -> None:
    assert Reject is penstock.Reject
    verdict = judge_failure(
        penstock.RetryPolicy(), penstock.Reject("no address"), attempt=1, chance=0, told="no address"
    )
    assert "Never" == type(verdict).__name__


@pytest.mark.parametrize("name", sorted(FOR_HANDLERS))
def test_what_the_author_of_a_handler_needs_is_at_the_top(name: str) -> None:
    assert name in penstock.__all__
    assert getattr(penstock, name) is getattr(import_module("penstock.runtime"), name)


def test_no_two_public_names_mean_different_things() -> None:
    meanings: dict[str, set[int]] = {}
    for module in map(import_module, PUBLIC_MODULES):
        for name in module.__all__:
            meanings.setdefault(name, set()).add(id(getattr(module, name)))
    assert [] == [name for name, found in meanings.items() if len(found) > 1]


def test_the_settle_commands_are_in_a_module_of_their_own() -> None:
    assert {"Ack", "DeadLetter", "Extend", "Nack"} == set(penstock.settle.__all__)
    assert set() == set(penstock.settle.__all__) & set(penstock.__all__)
    assert "r" == penstock.settle.DeadLetter("r").receipt


def test_importing_penstock_imports_nothing_of_it() -> None:
    assert "[]\n" == run_python(
        f"import sys; before = set(sys.modules); import penstock; "
        f"print([name for name in {HEAVY} if name in set(sys.modules) - before])"
    )


def test_the_names_for_handlers_bring_no_server_and_no_driver() -> None:
    program = (
        f"import sys, penstock; [getattr(penstock, name) for name in {sorted(FOR_HANDLERS)}]; "
        "print([name for name in ('aiohttp', 'cassandra', 'penstock.runtime.worker') if name in sys.modules])"
    )
    assert "[]\n" == run_python(program)
