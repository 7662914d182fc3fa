"""The generation of a due time, and the shard of a group: the same from every process. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Protocol

from headgate.errors import Bug


class WrittenGeneration(Protocol):
    """A generation, as far as a place depends on it."""

    @property
    def number(self) -> int:
        """Which one."""
        ...

    @property
    def shards(self) -> int:
        """How many shards it has."""
        ...

    @property
    def from_us(self) -> int:
        """Due times from this one on belong to it."""
        ...


def generation_at(generations: Iterable[WrittenGeneration], due_us: int) -> WrittenGeneration:
    """The generation of a due time: the latest that has started by then."""
    latest = None
    for generation in generations:
        if generation.from_us <= due_us and (latest is None or generation.number > latest.number):
            latest = generation
    if latest is None:
        raise Bug("No generation of the queue has started", due_us=due_us)
    return latest


def decide_shard(group: bytes, shards: int) -> int:
    """The shard of a group: the same from every process, with any hash seed."""
    return int.from_bytes(blake2b(group, digest_size=8).digest(), "big") % shards
