"""The states that a mutator keeps in memory, within a budget. The least recently used one is evicted first, and its
key is remembered, so that it is read back at the next update (attack B7).

It does no I/O, and knows no type. Invariant: a state whose write is pending, or not known to have landed, is pinned,
and never evicted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from headgate.counters.model.decide_windows import TOTAL, Place

STATE_OVERHEAD_BYTES = 300
"""The cost of a state besides its bytes: objects, key, two entries in tables."""

SlotKey = tuple[str, Place]


@dataclass(slots=True, eq=False)
class Slot:
    key: str
    place: Place
    state: Any
    size: int = 0
    pins: int = 0


class Gone:
    """The keys that may have been evicted: a Bloom filter. It forgets none; a false positive costs a read."""

    __slots__ = ("_bits", "_cells", "count")

    def __init__(self, size_bytes: int) -> None:
        self._cells = size_bytes * 8
        self._bits: bytearray | None = None
        self.count = 0

    def _places(self, key: SlotKey) -> tuple[int, int, int]:
        data = f"{key[1][0]}.{key[1][1]}.{key[0]}".encode()
        one, other = crc32(data), crc32(data, 0x9E3779B9) | 1
        return one % self._cells, (one + other) % self._cells, (one + 2 * other) % self._cells

    def add(self, key: SlotKey) -> None:
        if self._bits is None:
            self._bits = bytearray(self._cells // 8)
        for place in self._places(key):
            self._bits[place >> 3] |= 1 << (place & 7)
        self.count += 1

    def __contains__(self, key: SlotKey) -> bool:
        bits = self._bits
        return bits is not None and all(bits[place >> 3] >> (place & 7) & 1 for place in self._places(key))


class Memory:
    def __init__(self, bytes_max: int) -> None:
        self.bytes = 0
        self.culled = 0
        self._bytes_max = bytes_max
        self._slots: OrderedDict[SlotKey, Slot] = OrderedDict()
        self._gone = Gone(max(1024, bytes_max // 16))

    def __len__(self) -> int:
        return len(self._slots)

    def find(self, key: str, place: Place) -> Slot | None:
        return self._slots.get((key, place))

    def may_have_gone(self, key: str, place: Place) -> bool:
        """Whether this mutator may have written to it before: then its own shard has to be read back."""
        return (key, place) in self._gone

    def put(self, key: str, place: Place, state: Any) -> Slot:
        slot = Slot(key, place, state)
        slot.size = STATE_OVERHEAD_BYTES + len(key)
        self._slots[key, place] = slot
        self.bytes += slot.size
        return slot

    def pin(self, slot: Slot, size: int) -> None:
        """It is about to be written, and has that size now; it is the one used last."""
        slot.pins += 1
        grown = size + len(slot.key) + STATE_OVERHEAD_BYTES - slot.size
        slot.size += grown
        self.bytes += grown
        self._slots.move_to_end((slot.key, slot.place))

    def hold(self, slot: Slot) -> None:
        """It is about to be changed: it may not go until it is unpinned."""
        slot.pins += 1

    def hold_all(self, keys: Iterable[str], places: Iterable[Place]) -> list[Slot]:
        slots = [slot for key in keys for place in places if (slot := self._slots.get((key, place))) is not None]
        for slot in slots:
            slot.pins += 1
        return slots

    def unpin(self, slot: Slot) -> None:
        slot.pins -= 1

    def drop(self, slot: Slot) -> None:
        """Let it go; it is read back when it is needed."""
        if self._slots.pop((slot.key, slot.place), None) is not None:
            self.bytes -= slot.size
            self._gone.add((slot.key, slot.place))
            self.culled += 1

    def cull(self) -> None:
        tries = len(self._slots)
        while self.bytes > self._bytes_max and tries:
            tries -= 1
            slot = next(iter(self._slots.values()))
            if slot.pins:
                self._slots.move_to_end((slot.key, slot.place))
            else:
                self.drop(slot)

    def forget_windows(self, now_us: int) -> None:
        """Let go the states of windows that are over: nothing is added to them any more."""
        over = [
            slot
            for slot in self._slots.values()
            if slot.place != TOTAL and slot.place[1] + slot.place[0] <= now_us and not slot.pins
        ]
        for slot in over:
            del self._slots[slot.key, slot.place]
            self.bytes -= slot.size
