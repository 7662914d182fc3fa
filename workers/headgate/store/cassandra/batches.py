"""Messages in a batch that the application builds and sends itself. A batch that the server would reject, or apply in
part, is reported before it is sent. The prose is "A message in the application's own batch" in
docs/internals/protocols/timeline.md.

It takes a `BatchStatement` of the Python driver, or an object like it, and adds CQL text to it: a statement prepared
on our connection is unknown on the application's.

Invariants: a rejected batch was not changed. Facts that cannot be read are not judged: sizes are of the values alone,
and the table of a prepared statement is known only where the server returns its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.errors import HeadgateError, InvalidRequest
from headgate.store.cassandra.store import CassandraStore
from headgate.store.model.consistency import Consistency
from headgate.store.model.cql import insert_text
from headgate.store.model.statements import Insert

KIB = 1024
FAIL_BYTES = 50 * KIB
"""The server's default."""
GC_GRACE_S_MIN = 3 * 3600
ASK_WITHIN_S = 2.0
KNOWN_MAX = 10_000
LOCAL_QUORUM = 6
TOO_WEAK = {0: "ANY", 1: "ONE", 2: "TWO", 3: "THREE", 8: "SERIAL", 9: "LOCAL_SERIAL", 10: "LOCAL_ONE"}
"""By their numbers in the protocol, since a batch stores these."""

_UNITS = {"B": 1, "": KIB, "KB": KIB, "KIB": KIB, "MIB": KIB**2, "GIB": KIB**3}
_STRING = re.compile(r"'(?:[^']|'')*'")
_LITERAL = re.compile(
    r"(?P<text>'(?:[^']|'')*')|(?P<blob>\b0[xX][0-9a-fA-F]*)"
    r"|(?P<uuid>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b)|(?P<number>(?<![\w\"])-?\d+(?:\.\d+)?\b)"
)
_TABLE = re.compile(
    r"^\s*(?:INSERT\s+INTO|UPDATE|DELETE\b.*?\bFROM)\s+(?:(\"[^\"]+\"|\w+)\s*\.\s*)?(\"[^\"]+\"|\w+)", re.I | re.S
)
_CONDITION = re.compile(r"\bIF\s+(?:NOT\s+EXISTS|EXISTS|\S+\s*(?:=|!=|<|>|\bIN\b))", re.I)


class BatchUnfit(InvalidRequest):
    """A message cannot be added to this batch."""


@dataclass(frozen=True)
class _Text:
    """The text of a statement, and the keyspace that it was prepared in; without a text, neither is known."""

    text: str | None
    keyspace: str | None = None


@dataclass(frozen=True)
class _Part:
    """One statement of a batch: its text, or the id under which it was prepared."""

    what: str | bytes
    size: int


class CassandraBatches:
    """The server's facts about batches, cached: its limit, prepared texts, and gc_grace of tables."""

    def __init__(self, store: CassandraStore) -> None:
        self._store = store
        self._fail_bytes: int | None = None
        self._texts: dict[bytes, _Text] = {}
        self._gc_grace_s: dict[tuple[str, str], int] = {}

    async def learn(self, batch: Any, tables: Iterable[str] = ()) -> None:
        """Query the server for the facts about this batch. Rejects tables with a short gc_grace, and IF."""
        check_kind(batch)
        if self._fail_bytes is None:
            self._fail_bytes = await self._read_fail_bytes()
        wanted = [_split(name) for name in tables]
        for part in _parts_of(batch):
            known = _Text(part.what) if isinstance(part.what, str) else await self._text_of(part.what)
            if known.text is not None:
                _refuse_condition(known.text)
                table = table_of(known.text, known.keyspace or getattr(batch, "keyspace", None))
                wanted += [] if table is None else [table]
        for keyspace, name in dict.fromkeys(wanted):
            gc_grace_s = await self._gc_grace_of(keyspace, name)
            if gc_grace_s is not None and gc_grace_s < GC_GRACE_S_MIN:
                raise BatchUnfit(
                    "A table in the batch has gc_grace below 3 h, so later replays would be dropped",
                    remedy="raise its gc_grace_seconds to 10800 or more",
                    table=f"{keyspace}.{name}",
                    gc_grace_s=gc_grace_s,
                )

    async def _ask(self, text: str, values: tuple[Any, ...], *, at: Any = None) -> Sequence[Any]:
        """An empty answer where the role lacks the permission, or no server answers: then the facts are unknown."""
        try:
            return await self._store.cql(text, values, consistency=Consistency.ONE, within_s=ASK_WITHIN_S, at=at)
        except HeadgateError:
            return ()

    async def _read_fail_bytes(self) -> int:
        names = ("batch_size_fail_threshold", "batch_size_fail_threshold_in_kb")
        rows = await self._ask("SELECT name, value FROM system_views.settings WHERE name IN (%s, %s)", names)
        limits = [bytes_of(str(row.value)) for row in rows if row.value]
        return min((limit for limit in limits if limit is not None), default=FAIL_BYTES)

    async def _text_of(self, prepared: bytes) -> _Text:
        """Each node keeps a list of its own: each is queried once."""
        if prepared not in self._texts:
            if len(self._texts) >= KNOWN_MAX:
                self._texts.clear()
            self._texts[prepared] = _Text(None)
            for node in self._store.coordinators():
                asked = "SELECT query_string, logged_keyspace FROM system.prepared_statements WHERE prepared_id = %s"
                rows = await self._ask(asked, (prepared,), at=node)
                if rows:
                    self._texts[prepared] = _Text(str(rows[0].query_string), rows[0].logged_keyspace)
                    break
        return self._texts[prepared]

    async def _gc_grace_of(self, keyspace: str, name: str) -> int | None:
        key = (keyspace, name)
        if key in self._gc_grace_s:
            return self._gc_grace_s[key]
        asked = "SELECT gc_grace_seconds FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
        rows = await self._ask(asked, key)
        seconds = int(rows[0].gc_grace_seconds) if rows else None
        if seconds is not None and seconds >= GC_GRACE_S_MIN:  # another one may be repaired, or created
            if len(self._gc_grace_s) >= KNOWN_MAX:
                self._gc_grace_s.clear()
            self._gc_grace_s[key] = seconds
        return seconds

    def add(self, batch: Any, keyspace: str, statements: Sequence[Insert]) -> None:
        """Add these, if the batch can take them. One without a consistency of its own gets LOCAL_QUORUM."""
        check_kind(batch)
        self._check_size(batch, sum(map(_size_of, statements)))
        if getattr(batch, "consistency_level", None) is None:
            batch.consistency_level = LOCAL_QUORUM
        for statement in statements:
            text, values = insert_text(keyspace, statement)
            batch.add(text, values)

    def check(self, batch: Any) -> None:
        """Once more, right before it is sent: more may have been added since."""
        check_kind(batch)
        for part in _parts_of(batch):
            text = part.what if isinstance(part.what, str) else self._texts.get(part.what, _Text(None)).text
            if text is not None:
                _refuse_condition(text)
        self._check_size(batch)

    def _check_size(self, batch: Any, added: int = 0) -> None:
        size = sum(part.size for part in _parts_of(batch)) + added
        limit = self._fail_bytes or FAIL_BYTES
        if size > limit:
            raise BatchUnfit(
                "The server would refuse a batch of this size",
                remedy="store large data elsewhere and put only its key, or raise batch_size_fail_threshold",
                size=size,
                limit=limit,
            )


def check_kind(batch: Any) -> None:
    """Reject a batch that is not logged, or would be sent in a way that can lose a message."""
    if not callable(getattr(batch, "add", None)) or not hasattr(batch, "batch_type"):
        raise BatchUnfit("This is not a batch", remedy="pass a BatchStatement()", given=type(batch).__name__)
    if str(batch.batch_type) != "LOGGED":
        raise BatchUnfit(
            "A batch that is not LOGGED may be applied in part",
            remedy="use BatchStatement(), which is logged",
            type=batch.batch_type,
        )
    if getattr(batch, "timestamp", None) is not None:
        raise BatchUnfit(
            "A batch with one timestamp for all its statements cannot hold a message, whose rows have their own",
            remedy="set timestamps on your own statements",
        )
    level = getattr(batch, "consistency_level", None)
    if level in TOO_WEAK:
        raise BatchUnfit(
            "A batch below quorum consistency may arrive after its message was due",
            remedy="set its consistency_level to LOCAL_QUORUM, or do not set it",
            given=TOO_WEAK[level],
        )


def _parts_of(batch: Any) -> Iterator[_Part]:
    """Its statements as the driver keeps them; none of a batch that keeps them otherwise."""
    for prepared, what, values in getattr(batch, "_statements_and_parameters", ()):
        if prepared:
            yield _Part(bytes(what), sum(len(value) for value in values if isinstance(value, bytes | bytearray)))
        else:
            yield _Part(str(what), size_of_text(str(what)))


def size_of_text(text: str) -> int:
    sizes: dict[str, Callable[[str], int]] = {
        "text": lambda literal: len(literal.encode()) - 2,
        "blob": lambda literal: len(literal) // 2 - 1,
        "uuid": lambda _: 16,
        "number": lambda _: 8,
    }
    return sum(sizes[match.lastgroup or ""](match[0]) for match in _LITERAL.finditer(text))


def table_of(text: str, keyspace: str | None) -> tuple[str, str] | None:
    """Keyspace and table of a statement's write, where they can be determined."""
    match = _TABLE.match(text)
    if match is None:
        return None
    named = _plain(match[1]) if match[1] else keyspace
    return None if named is None else (named, _plain(match[2]))


def bytes_of(limit: str) -> int | None:
    """A limit as the server's settings write it: `50KiB`, or `50` of the older name. None: no limit."""
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", limit.strip())
    return int(match[1]) * _UNITS.get(match[2].upper(), 1) if match else None


def _refuse_condition(text: str) -> None:
    if _CONDITION.search(_STRING.sub("''", text)):
        raise BatchUnfit(
            "A batch with conditions (IF) stays in one partition, and a message needs another",
            remedy="evaluate the condition first, then write both in a batch without conditions",
        )


def _split(name: str) -> tuple[str, str]:
    keyspace, dot, table = name.partition(".")
    if not dot:
        raise BatchUnfit("A table name needs its keyspace", remedy="write shop.orders", given=name)
    return _plain(keyspace), _plain(table)


def _plain(name: str) -> str:
    """As it is in the schema: without quotes, or in lower case."""
    return name[1:-1] if name.startswith('"') else name.lower()


def _size_of(statement: Insert) -> int:
    pairs = zip(statement.shape.value_columns, statement.values, strict=True)
    return sum(len(column.type.encode(value)) for column, value in pairs if value is not None)
