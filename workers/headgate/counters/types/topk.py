"""`topk`: the items that came most often, and how often, from a few kilobytes (frequent items, 2^10 places).

An item's count lies between `low` and `high`; these differ by at most `error`, which is at most 3.5 / 2^10 = 0.34 %
of the total of all counts, and 0 as long as there are no more than 768 different items. No item with a count above
`error` is missed.

The entries dropped when the places are full depend on the order of merges. The equality of the laws is: the same
total, and of each item ranges that overlap. dump(load(bytes)) = bytes holds.

Body: a frequent-strings sketch of DataSketches (Java: ItemsSketch<String> with ArrayOfStringsSerDe).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.counters.types.contract import Example, Json, is_whole
from headgate.counters.types.sketches import LoadedSketch, Sketch, SketchType, text_item

LG_PLACES = 10
LIMIT = 10
LIMIT_MAX = 1 << LG_PLACES
COUNT_MAX = 2**40


@dataclass(frozen=True)
class Frequent:
    item: str
    count: int
    low: int
    high: int


@dataclass(frozen=True)
class TopKValue:
    items: tuple[Frequent, ...]
    total: int
    """Of all counts, including items that are not listed."""
    error: int
    """An item that is not known came at most so often."""


Update = tuple[str, int]


class TopK(SketchType[Update]):
    name = "topk"

    def __init__(self) -> None:
        super().__init__()
        self._all = self._library.frequent_items_error_type.NO_FALSE_NEGATIVES

    def parse(self, verb: str, arguments: Sequence[Json], at_us: int) -> Update:
        """`add` an item, a string, with its number of occurrences. Default: one."""
        self.require_verb(verb)
        if len(arguments) not in (1, 2):
            raise self.wrong("a string, and its number of occurrences", list(arguments))
        count = arguments[1] if len(arguments) > 1 else 1
        if not isinstance(count, int) or not is_whole(count) or not 1 <= count <= COUNT_MAX:
            raise self.wrong(f"a whole number from 1 to {COUNT_MAX}", count)
        return text_item(self, arguments[0]), count

    def new_sketch(self) -> Sketch:
        return self._library.frequent_strings_sketch(LG_PLACES)

    def read_sketch(self, body: bytes) -> Sketch:
        return self._library.frequent_strings_sketch.deserialize(body)

    def take(self, sketch: Sketch, update: Update) -> None:
        sketch.update(*update)

    def value(self, state: LoadedSketch, question: Mapping[str, Any]) -> TopKValue:
        """`limit`: the number of items. Default: 10."""
        self.require_question(question, "limit")
        limit = question.get("limit", LIMIT)
        if not is_whole(limit) or not 1 <= limit <= LIMIT_MAX:
            raise self.wrong(f"a limit from 1 to {LIMIT_MAX}", limit)
        return TopKValue(self._items(state)[:limit], state.sketch.total_weight, _error(state))

    def _items(self, state: LoadedSketch) -> tuple[Frequent, ...]:
        """All that are known, the most frequent first, by name among equals."""
        items = [Frequent(*each) for each in state.sketch.get_frequent_items(self._all, 0)]
        return tuple(sorted(items, key=lambda each: (-each.count, each.item)))

    def same(self, one: LoadedSketch, other: LoadedSketch) -> bool:
        if one.sketch.total_weight != other.sketch.total_weight:
            return False
        items = {each.item: each for each in self._items(one)}
        there = {each.item: each for each in self._items(other)}
        missing = [Frequent("", 0, 0, _error(state)) for state in (one, other)]
        pairs = [(items.get(item, missing[0]), there.get(item, missing[1])) for item in items.keys() | there.keys()]
        return all(a.low <= b.high and b.low <= a.high for a, b in pairs)

    def read_words(self, words: Sequence[str]) -> list[Json]:
        """The item as it is written."""
        return [*words[:1], *super().read_words(words[1:])]

    def examples(self) -> Sequence[Example]:
        return [Example("add", ("home",)), Example("add", ("cart", 3)), Example("add", ("search", 2))]


def _error(state: LoadedSketch) -> int:
    """How often an item that is not known may have come."""
    return int(state.sketch.get_upper_bound("\x00 no such item"))
