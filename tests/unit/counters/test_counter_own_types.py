"""A counter type of a user's own: found by its entry point, held against the laws, refused in one line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from headgate.counters.types.contract import CounterType, Example, Json, plain
from headgate.counters.types.laws import broken_law
from headgate.counters.types.registry import GROUP, OURS, TypeBroken, TypeUnknown, load_own, type_of
from headgate.counters.types.sketches import SketchesMissing, library

ROOT = Path(__file__).parents[3]


class Longest(CounterType[str, str]):
    """The longest text, the first in order among equals: as a user would write it."""

    name = "acme/longest"
    is_dated = False

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> str:
        """`add` a text."""
        self.require_verb(verb)
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise self.wrong("one text", list(arguments))
        return arguments[0]

    def zero(self) -> str:
        return ""

    def apply(self, state: str, update: str) -> str:
        return self.merge(state, update)

    def merge(self, one: str, other: str) -> str:
        return min(one, other, key=lambda each: (-len(each), each))

    def value(self, state: str, question: Mapping[str, Any]) -> str:
        self.require_question(question)
        return state

    def dump_body(self, state: str) -> bytes:
        return state.encode()

    def load_body(self, body: bytes, version: int) -> str:
        return body.decode()

    def examples(self) -> Sequence[Example]:
        return [Example("add", (text,)) for text in ("tea", "to", "milk", "rice")]


class OrderMatters(Longest):
    """The last one merged wins."""

    def merge(self, one: str, other: str) -> str:
        return other or one


class ZeroCounts(Longest):
    """A merge with nothing gives nothing."""

    def apply(self, state: str, update: str) -> str:
        return super().merge(state, update)

    def merge(self, one: str, other: str) -> str:
        return super().merge(one, other) if one and other else ""


class Forgets(Longest):
    """Its bytes hold the first letter alone."""

    def same(self, one: str, other: str) -> bool:
        return one == other

    def dump_body(self, state: str) -> bytes:
        return state[:1].encode()


class Raises(Longest):
    """It cannot merge."""

    def merge(self, one: str, other: str) -> str:
        raise KeyError(other)


class Shows(Longest):
    """It gives no examples to hold it against."""

    def examples(self) -> Sequence[Example]:
        return []


class Shares(CounterType[list[int], int]):
    """All numbers; merge gives back one of its own states."""

    name = "acme/shares"

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> int:
        """`add` a number."""
        return int(str(arguments[0]))

    def zero(self) -> list[int]:
        return []

    def apply(self, state: list[int], update: int) -> list[int]:
        state.append(update)
        state.sort()
        return state

    def merge(self, one: list[int], other: list[int]) -> list[int]:
        if not other:
            return one
        one += other
        return sorted(one)

    def value(self, state: list[int], question: Mapping[str, Any]) -> int:
        return len(state)

    def dump_body(self, state: list[int]) -> bytes:
        return ",".join(map(str, state)).encode()

    def load_body(self, body: bytes, version: int) -> list[int]:
        return [int(each) for each in body.decode().split(",") if each]

    def examples(self) -> Sequence[Example]:
        return [Example("add", (number,)) for number in (1, 2, 3)]


def announced(name: str, what: str) -> list[EntryPoint]:
    """An entry point to something in this file."""
    return [EntryPoint(name, f"{__name__}:{what}", GROUP)]


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry point imports this file by its name."""
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])


def test_a_type_of_ones_own_is_found_and_used_as_ours_are() -> None:
    result = load_own("acme/longest", announced("acme/longest", "Longest"))
    state = result.zero()
    for text in ("tea", "biscuits", "milk"):
        state = result.apply(state, result.parse("add", [text], 0))
    assert "biscuits" == plain(result.value(result.load(result.dump(state)), {}))


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (OrderMatters, "merge is commutative: merge(a, b) = merge(b, a)"),
        (ZeroCounts, "zero is neutral: merge(a, zero) = a"),
        (Forgets, "load(dump(a)) = a"),
        (Raises, "raised KeyError: 'tea'"),
        (Shows, "at least 3 examples are required, covering every verb"),
        (Shares, "merge changes neither of its states"),
    ],
)
def test_a_type_that_breaks_a_law_is_reported_which(kind: Callable[[], CounterType[Any, Any]], law: str) -> None:
    assert law == broken_law(kind())


def test_a_broken_type_is_refused_in_one_line_that_names_it() -> None:
    with pytest.raises(TypeBroken) as refused:
        load_own("acme/longest", announced("acme/longest", "OrderMatters"))
    assert "The counter type breaks a law of its contract (type=acme/longest" in str(refused.value)
    assert "law=merge is commutative" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "what", "message"),
    [
        ("acme/longest", "ObjectNotFound", "cannot be imported"),
        ("acme/longest", "ROOT", "is not a CounterType"),
        ("acme/other", "Longest", "name differs from its entry point's"),
    ],
)
def test_an_entry_point_that_leads_nowhere_is_reported(name: str, what: str, message: str) -> None:
    with pytest.raises(TypeBroken, match=message):
        load_own(name, announced(name, what))


def test_an_unknown_type_states_which_there_are_or_how_to_bring_one() -> None:
    with pytest.raises(TypeUnknown, match=r"did you mean sum\?"):
        load_own("sums", [])
    with pytest.raises(TypeUnknown, match=r"available: audience, distinct, minmax"):
        load_own("nothing-like-it", [])
    with pytest.raises(TypeUnknown, match=r"registers it under the entry point group headgate\.counter_types"):
        load_own("acme/median", announced("acme/longest", "Longest"))


def test_every_file_of_a_type_holds_the_type_of_its_name() -> None:
    assert sorted(OURS) == [type_of(name).name for name in sorted(OURS)]


def test_without_the_library_of_sketches_all_else_works_and_one_line_names_what_to_install() -> None:
    program = (
        "import sys; sys.modules['datasketches'] = None\n"
        "import headgate\n"
        "from headgate.counters.types.registry import type_of\n"
        "assert 'numpy' not in sys.modules\n"
        "assert 3 == type_of('sum').apply(1, 2)\n"
        "type_of('distinct')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"PYTHONPATH": "workers"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    last = done.stderr.splitlines()[-1]
    assert 1 == done.returncode
    assert last.startswith("headgate.counters.types.sketches.SketchesMissing: This counter type needs Apache")
    assert "pip install 'headgate[counters]'" in last
    assert issubclass(SketchesMissing, Exception)
    assert library("distinct") is sys.modules["datasketches"]
