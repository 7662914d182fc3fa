"""Keys: a partition key as bytes and as a token, a clustering key as something that sorts as Cassandra does. Pure.

The token is a hash of our own, not Murmur3: it spreads keys over the ring, and is the same on every machine.
Behaviour that depends on the value of a token, and not only on an order of tokens, is not simulated.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, total_ordering
from typing import Any

from headgate.store.memory.rows import OrderKey
from headgate.store.model.table import Column, Table
from headgate.store.model.types import Type, Value

KEYS_REMEMBERED = 65536


@total_ordering
class Descending:
    """Sorts the other way round."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        self.of = of

    def __lt__(self, other: Descending) -> bool:
        return bool(other.of < self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and self.of == other.of

    def __hash__(self) -> int:
        return hash(self.of)


def _order_of(column: Column, descending: bool) -> Callable[[Any], Any]:
    order = column.type.order
    if not descending:
        return order
    if column.type in (Type.INT, Type.BIGINT, Type.DOUBLE):
        return operator.neg
    return lambda value: Descending(order(value))


@lru_cache(4096)
def clustering_orders(table: Table) -> tuple[Callable[[Any], Any], ...]:
    """For each clustering column, the function that makes its values sortable."""
    return tuple(_order_of(column, column.name in table.descending) for column in table.clustering)


def order_key(table: Table, clustering: Sequence[Value]) -> OrderKey:
    """The sort key of a whole clustering key, or of a prefix of one."""
    return tuple([order(value) for order, value in zip(clustering_orders(table), clustering, strict=False)])


def partition_key(table: Table, values: Sequence[Value]) -> bytes:
    """The bytes of a partition key; those of two tables are equal where the keys are."""
    return _encoded(table, tuple(values))


@lru_cache(KEYS_REMEMBERED)
def _encoded(table: Table, values: tuple[Value, ...]) -> bytes:
    parts = [column.type.encode(value) for column, value in zip(table.partition, values, strict=True)]
    if len(parts) == 1:
        return parts[0]
    return b"".join(len(part).to_bytes(4) + part for part in parts)


@lru_cache(KEYS_REMEMBERED)
def token_of(key: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), signed=True)
