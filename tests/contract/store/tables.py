"""The tables of the contract suite: few, shared by all cases, each case in partitions of its own."""

from __future__ import annotations

from headgate.store.model.table import Column, Table, WrittenBy
from headgate.store.model.types import Type

LWT = WrittenBy.LWT

PARTITION = (Column("p", Type.TEXT),)
ATTEMPT = Column("attempt", Type.UUID, LWT)

LOG = Table(
    "contract_log",
    "rows written plainly, with cells that all rows of a partition share",
    PARTITION,
    (Column("c", Type.INT),),
    (
        Column("v", Type.TEXT),
        Column("n", Type.INT),
        Column("s", Type.TEXT, static=True),
        Column("t", Type.INT, static=True),
    ),
)

TIES = Table(
    "contract_ties",
    "a cell of each type",
    PARTITION,
    (Column("c", Type.INT),),
    tuple(Column(f"a_{kind.name.lower()}", kind) for kind in Type),
)

PAIRS = Table(
    "contract_pairs",
    "rows ordered by two columns",
    PARTITION,
    (Column("a", Type.INT), Column("b", Type.INT)),
    (Column("v", Type.TEXT),),
)

TURNED = Table(
    "contract_turned",
    "rows ordered by a column upwards and by another downwards",
    PARTITION,
    (Column("a", Type.INT), Column("b", Type.TEXT)),
    (Column("v", Type.INT),),
    descending=frozenset({"b"}),
)

COMPOSITE = Table(
    "contract_composite",
    "a partition key of two columns, and one row a partition",
    (Column("queue", Type.UUID), Column("shard", Type.INT)),
    (),
    (Column("v", Type.TEXT),),
)

FADING = Table(
    "contract_fading",
    "rows that expire by default",
    PARTITION,
    (Column("c", Type.INT),),
    (Column("v", Type.TEXT),),
    default_ttl_s=3,
)

SCANNED = Table(
    "contract_scanned",
    "keys to be found",
    PARTITION,
    (Column("c", Type.INT),),
    (Column("v", Type.TEXT),),
)

LANES = Table(
    "contract_lanes",
    "rows made and changed by LWT",
    PARTITION,
    (Column("c", Type.INT),),
    (
        Column("lock", Type.UUID, LWT),
        Column("epoch", Type.INT, LWT),
        Column("stop", Type.BIGINT, LWT),
        Column("name", Type.TEXT, LWT),
        ATTEMPT,
    ),
    rows=LWT,
    attempt="attempt",
)

MESSAGES = Table(
    "contract_messages",
    "rows made plainly, with cells that belong to LWT",
    PARTITION,
    (Column("c", Type.INT),),
    (Column("payload", Type.BLOB), Column("version", Type.INT, LWT), ATTEMPT),
    attempt="attempt",
)

HEADS = Table(
    "contract_heads",
    "a head that all rows of a partition share, changed by LWT together with them",
    PARTITION,
    (Column("c", Type.INT),),
    (
        Column("head", Type.INT, LWT, static=True),
        Column("state", Type.TEXT, LWT),
        Column("attempt", Type.UUID, LWT, static=True),
    ),
    rows=LWT,
    attempt="attempt",
)

ORDERED_TYPES = (Type.BIGINT, Type.INT, Type.DOUBLE, Type.TEXT, Type.BLOB, Type.UUID, Type.TIMEUUID, Type.BOOLEAN)
ORDERED = {
    kind: Table(f"contract_by_{kind.name.lower()}", "rows ordered by a type", PARTITION, (Column("c", kind),))
    for kind in ORDERED_TYPES
}

ALL_TABLES = (
    *(LOG, TIES, PAIRS, TURNED, COMPOSITE, FADING, SCANNED, LANES, MESSAGES, HEADS),
    *ORDERED.values(),
)
