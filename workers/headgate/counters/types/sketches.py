"""Sketches: values that are small because they are estimates. Apache DataSketches makes and reads them, so that Java,
C++ and Spark read the bytes as well: a state's body is the sketch as that library serializes it.

The library is an extra: a process that counts with other types does without.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from headgate.counters.types.contract import CounterType, Example, Json, is_whole
from headgate.errors import EnvironmentProblem

Sketch = Any
"""One of the library's; it has no types."""

ITEM_BYTES_MAX = 1_024
ITEMS_AT_ONCE_MAX = 10_000
WHOLE_MAX = 2**63
CONFIDENCE = 0.997
DEVIATIONS = 3
"""How many standard deviations CONFIDENCE is, to the library."""


class SketchesMissing(EnvironmentProblem):
    """This counter type needs Apache DataSketches."""


@dataclass(slots=True, eq=False)
class LoadedSketch:
    """A sketch as a state, and the bytes that it was loaded from, if any. It is dumped unchanged, since the library
    may order the same content differently. A change of the sketch drops the bytes."""

    sketch: Sketch
    data: bytes | None = None


S = TypeVar("S")
U = TypeVar("U")
Items = tuple[int | str, ...]


@dataclass(frozen=True)
class Estimate:
    """How many different items; from `low` to `high` with `confidence`."""

    estimate: float
    low: float
    high: float
    confidence: float = CONFIDENCE


class ItemType(CounterType[S, Items]):
    """A type of distinct items: strings, and whole numbers of 64 bits. The string "1" is another item than the number
    1."""

    is_dated = False
    takes_texts = True

    @abstractmethod
    def sketch_of(self, state: S) -> Sketch:
        """The sketch that estimates."""

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> Items:
        self.require_verb(verb)
        if not 1 <= len(arguments) <= ITEMS_AT_ONCE_MAX:
            raise self.wrong(f"1 to {ITEMS_AT_ONCE_MAX} items", f"{len(arguments)} arguments")
        return tuple(self._item(given) for given in arguments)

    def _item(self, given: Json) -> int | str:
        if isinstance(given, int) and is_whole(given):
            if not -WHOLE_MAX <= given < WHOLE_MAX:
                raise self.wrong("a whole number of 64 bits", given)
            return given
        return text_item(self, given)

    def value(self, state: S, question: Mapping[str, Any]) -> Estimate:
        self.require_question(question)
        sketch = self.sketch_of(state)
        return Estimate(sketch.get_estimate(), sketch.get_lower_bound(DEVIATIONS), sketch.get_upper_bound(DEVIATIONS))

    def examples(self) -> Sequence[Example]:
        return [Example("add", ("ann",)), Example("add", ("bob", "eve")), Example("add", (17,))]


class SketchType(CounterType[LoadedSketch, U]):
    """A type whose state is one sketch of the library, which takes updates and is merged into another of its kind."""

    is_dated = False

    def __init__(self) -> None:
        self._library = library(self.name)

    @abstractmethod
    def new_sketch(self) -> Sketch:
        """An empty one."""

    @abstractmethod
    def read_sketch(self, body: bytes) -> Sketch:
        """The sketch of these bytes; may raise anything for bytes of another type."""

    @abstractmethod
    def take(self, sketch: Sketch, update: U) -> None:
        """Have it take an update."""

    def zero(self) -> LoadedSketch:
        return LoadedSketch(self.new_sketch())

    def apply(self, state: LoadedSketch, update: U) -> LoadedSketch:
        self.take(state.sketch, update)
        state.data = None
        return state

    def merge(self, one: LoadedSketch, other: LoadedSketch) -> LoadedSketch:
        return self.merge_all((one, other))

    def merge_all(self, states: Iterable[LoadedSketch]) -> LoadedSketch:
        merged = self.new_sketch()
        for each in states:
            merged.merge(each.sketch)
        return LoadedSketch(merged)

    def dump_body(self, state: LoadedSketch) -> bytes:
        return self.write_sketch(state.sketch) if state.data is None else state.data

    def write_sketch(self, sketch: Sketch) -> bytes:
        return bytes(sketch.serialize())

    def load_body(self, body: bytes, version: int) -> LoadedSketch:
        return LoadedSketch(self.read_sketch(body), body)


def library(name: str) -> Any:
    try:
        return import_module("datasketches")
    except ImportError as error:
        raise SketchesMissing(
            type=name, cause=" ".join(str(error).split()), remedy="pip install 'headgate[counters]'"
        ) from None


def text_item(kind: CounterType[Any, Any], given: Json) -> str:
    """One text, not empty: the library takes an empty one for none."""
    wanted = "a string that is not empty"
    if given == "":
        raise kind.wrong(wanted, given)
    return kind.text_within(ITEM_BYTES_MAX, given, wanted)
