"""`distinct`: the number of distinct items, estimated from a few kilobytes (HyperLogLog, 2^12 registers of 4 bits).

The standard error is 1.04 / sqrt(2^12) = 1.6 %: with a confidence of 99.7 % the truth is within 5 % of the estimate;
`low` and `high` state it for each value. Up to some hundred items it counts nearly exactly. Registers only grow, so
merging is exact: the laws hold to the registers, for any order of items.

Body: an HllSketch of DataSketches, compact.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headgate.counters.types.sketches import Items, ItemType, LoadedSketch, Sketch, SketchType

LG_REGISTERS = 12
MODE_AT, MODE_BITS, MODE_REGISTERS = 7, 3, 2
REGISTERS_AT = 40
"""Their offset in the library's form. Its first byte is the length of the head, in words of 4 bytes."""


class Distinct(ItemType[LoadedSketch], SketchType[Items]):
    name = "distinct"

    def __init__(self) -> None:
        super().__init__()
        self._form = self._library.tgt_hll_type.HLL_4

    def new_sketch(self) -> Sketch:
        return self._library.hll_sketch(LG_REGISTERS, self._form)

    def read_sketch(self, body: bytes) -> Sketch:
        sketch = self._library.hll_sketch.deserialize(body)
        if sketch.lg_config_k != LG_REGISTERS:
            raise ValueError("a sketch of another size")
        return sketch

    def write_sketch(self, sketch: Sketch) -> bytes:
        return bytes(sketch.serialize_compact())

    def take(self, sketch: Sketch, update: Items) -> None:
        for item in update:
            sketch.update(item)

    def merge_all(self, states: Iterable[LoadedSketch]) -> LoadedSketch:
        return LoadedSketch(self._union_of(each.sketch for each in states).get_result(self._form))

    def _union_of(self, sketches: Iterable[Sketch]) -> Any:
        union = self._library.hll_union(LG_REGISTERS)
        for each in sketches:
            union.update(each)
        return union

    def sketch_of(self, state: LoadedSketch) -> Sketch:
        return state.sketch

    def same(self, one: LoadedSketch, other: LoadedSketch) -> bool:
        """The same registers. A sketch that took its items one by one has slightly more information, which merging
        drops."""
        return self._registers(one) == self._registers(other)

    def _registers(self, state: LoadedSketch) -> tuple[int, bytes]:
        """The content of the sketch in one order: while it holds few items their hashes, then its registers."""
        plainest = self._library.tgt_hll_type.HLL_8
        data = bytes(self._union_of([state.sketch]).get_result(plainest).serialize_compact())
        mode = data[MODE_AT] & MODE_BITS
        if mode == MODE_REGISTERS:
            return mode, data[REGISTERS_AT:]
        hashes = data[data[0] * 4 :]
        return mode, b"".join(sorted(hashes[at : at + 4] for at in range(0, len(hashes), 4)))
