"""The data that a version leaves behind, and whether this tree reads them: CRDs, tables, catalogue documents, bytes.

A file `<version>.yaml` is written once, when its version is released (`python -m tests.golden.stored --write`), and
never again: it stands for what users have stored. The tree must read the newest three.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml

from headgate.api.read.parse import parse_resource
from headgate.api.read.versions import document_of, resource_of
from headgate.counters.model.decide_shards import tally_cell, tally_of
from headgate.counters.types.registry import type_of
from headgate.engines.lanes.balance.decide_dual_owners import HeldLanes, LaneClaim, decode_held, encode_held
from headgate.engines.lanes.log import settle_log_format
from headgate.engines.packed_row import PackedRun, pack, unpack
from headgate.engines.receipts import read_receipt, receipts_of
from headgate.engines.registry import ENGINE_MODULES, tables_of
from headgate.engines.timeline.read.passed_rows import decode_passed, encode_passed
from headgate.engines.timeline.read.source import pack_reservation, unpack_reservation
from headgate.store.catalogue.tables import CATALOGUE_TABLES, EARLIER_ENTRIES
from headgate.store.model.drift import Kind, columns_of
from headgate.store.model.table import Table

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[2]
READ_BACK = 3
"""This version and the two before it."""
CREATION = UUID("11111111-2222-4333-8444-555555555555")
SECRET = b"secret"
HELD, RECEIPT = "Lanes that a member holds: with an address", "A receipt: with a lane"
SETTLE_LOG = "The settle log: with a reason"
"""Later versions of a format stand beside the first."""
CLAIM = LaneClaim((1, 2), 7, 5_000_000)
SPECS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "plain queue": ("Queue", {}),
    "rich queue": (
        "Queue",
        {
            "shards": 6,
            "deadLetter": "emails-dead",
            "timeline": {"part": "10s", "lease": {"ttl": "5s", "touch": "1s"}},
            "consumers": [
                {"name": "mailer", "image": "m:1", "handler": "a:b", "scaling": {"min": 0, "max": 6, "lag": "10s"}}
            ],
            "repair": {"schedule": "*/10 * * * *"},
            "storage": {"tables": "shared", "keyspace": "shop"},
            "deletionPolicy": "Delete",
        },
    ),
    "queue of each engine's settings": ("Queue", {"engine": "extent", "extent": {"mode": "CP", "fifo": True}}),
    "plain counter": ("Counter", {}),
    "rich counter": ("Counter", {"type": "quantiles", "windows": ["1m", "1h"], "gc": {"after": "48h"}}),
}


def version_of(name: str) -> tuple[int, ...]:
    """A version as numbers."""
    return tuple(int(part) for part in name.split("."))


def this_version() -> str:
    """That of the tree."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


_CLASS = re.compile(r"\b[A-Z]\w*\(")
KEPT = sorted(FOLDER.glob("*.yaml"), key=lambda path: version_of(path.stem))


# ---- what is left behind


def left_behind() -> dict[str, Any]:
    """All that this tree stores, in one document."""
    resources = {name: _resource(kind, spec) for name, (kind, spec) in SPECS.items()}
    return {
        "crds": {name: schema_of(name) for name in ("queues", "counters")},
        "tables": {table.name: _table(table) for table in all_tables()},
        "documents": {name: document_of(parse_resource(one)) for name, one in resources.items()},
        "bytes": {name: {"stored": cell.hex(), "reads": READERS[name](cell)} for name, cell in _cells().items()},
    }


def schema_of(plural: str) -> dict[str, Any]:
    """The schema of the spec in the CRD."""
    crd = yaml.safe_load((ROOT / "crds" / f"{plural}.headgate.io.yaml").read_text())
    (version,) = crd["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return _without_prose(schema)


def all_tables() -> tuple[Table, ...]:
    """Tables of the catalogue, with the one that was there before, and of each supported engine; those of one
    creation under its name."""
    reports: tuple[Table, ...] = (*CATALOGUE_TABLES, EARLIER_ENTRIES)
    for engine in sorted(ENGINE_MODULES):
        kind, spec = ("Counter", {}) if engine == "counter" else ("Queue", {"engine": engine})
        for storage in ("dedicated", "shared"):
            resource = parse_resource(_resource(kind, {**spec, "storage": {"tables": storage}}))
            reports += tables_of(resource, CREATION) or ()
    return reports


def _resource(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": "emails", "namespace": "shop"}
    return {"apiVersion": "headgate.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}


def _without_prose(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _without_prose(value) for key, value in node.items() if key not in ("description", "message")}
    return [_without_prose(each) for each in node] if isinstance(node, list) else node


def _table(table: Table) -> dict[str, str]:
    return {name: str(column) for name, column in columns_of(table).items()}


def _cells() -> dict[str, bytes]:
    due = [UUID("c2aa2e00-c3a0-11f0-8000-000000000001"), UUID("c2aa2e0a-c3a0-11f0-8000-000000000002")]
    facts = {
        b"\x00\x01" + due[0].bytes: settle_log_format.RowFacts(
            settled=0b1011,
            tried={2: settle_log_format.Tried(7, 3, 2, 5_000_000)},
            moved={4: settle_log_format.Moved(7, 3, 1, due[1].bytes, "unreadable")},
        )
    }
    run = PackedRun([1_000_000] * 2, [2_000_000, 3_000_000], [b"ab", b"c"], [1, 1], [b'{"a":"b"}', b""], [b"g", b""])
    cells = {
        "The packed row": pack(run),
        SETTLE_LOG: settle_log_format.encode(facts, epoch=7, piece=3),
        "Passed rows": encode_passed(due),
        "A range reservation": pack_reservation(CREATION, due[0], due[1], 5_000_000),
        HELD: encode_held(HeldLanes((CLAIM,), "10.0.0.7:4711", 9_000_000)),
        RECEIPT: receipts_of(CREATION, SECRET).of_row((1, 2), 7, 3, b"row", count=5).text(4).encode(),
    }
    for name, (verb, *arguments) in COUNTED.items():
        kind = type_of(name)
        state = kind.apply(kind.zero(), kind.parse(verb, arguments, 1_700_000_000_000_000))
        cells[f"States of counters: {name}"] = kind.dump(state)
    cells["States of counters: a tally"] = tally_cell(5_000_000, cells["States of counters: sum"])
    return cells


COUNTED: Mapping[str, tuple[Any, ...]] = {
    "sum": ("add", 300),
    "product": ("add", "-1.05"),
    "minmax": ("add", 2.5, "w"),
    "moments": ("add", 0.5),
    "distinct": ("add", "a", "b"),
    "audience": ("add", "a", "b"),
    "quantiles": ("add", 1.5),
    "topk": ("add", "a", 3),
    "set": ("add", "b", "a"),
    "register": ("set", {"b": 1}),
}


def _state(name: str) -> Callable[[bytes], str]:
    def read(cell: bytes) -> str:
        kind = type_of(name)
        return str(kind.value(kind.load(cell), {}))

    return read


def _run(run: PackedRun) -> str:
    columns = ((name, getattr(run, name)) for name in PackedRun.__dataclass_fields__)
    values = {name: value if value is None or isinstance(value, bytes) else list(value) for name, value in columns}
    return str(values)


def _tally(cell: bytes) -> str:
    tally = tally_of(cell)
    return f"{tally.through_us} {_state('sum')(tally.state)}"


READERS: Mapping[str, Callable[[bytes], str]] = {
    "The packed row": lambda cell: _run(unpack(cell)),
    "The settle log": lambda cell: str(settle_log_format.decode(cell)).replace(", reason=''", ""),
    SETTLE_LOG: lambda cell: str(settle_log_format.decode(cell)),
    "Passed rows": lambda cell: str(sorted(map(str, decode_passed(cell)))),
    "A range reservation": lambda cell: str(unpack_reservation(cell)),
    "Lanes that a member holds": lambda cell: str(decode_held(cell).lanes),
    HELD: lambda cell: str(decode_held(cell)),
    "A receipt": lambda cell: str(read_receipt(cell.decode(), queue=CREATION, secret=SECRET)),
    RECEIPT: lambda cell: str(read_receipt(cell.decode(), queue=CREATION, secret=SECRET)),
    **{f"States of counters: {name}": _state(name) for name in COUNTED},
    "States of counters: a tally": _tally,
}


# ---- whether it is still read


def unread(kept: Mapping[str, Any]) -> Iterator[str]:
    """Data that a version has stored and this tree cannot read, or reads differently."""
    for name, schema in kept["crds"].items():
        yield from (f"{name}: {what}" for what in narrowed(schema, schema_of(name), "spec"))
    tables = {table.name: table for table in all_tables()}
    for name, table in kept["tables"].items():
        yield from _unmendable(name, table, tables.get(name))
    for name, document in kept["documents"].items():
        result = document_of(resource_of(document))
        yield from (f"document {name}: {what}" for what in _lost(document, result, ""))
    for name, cell in kept["bytes"].items():
        read = READERS[name](bytes.fromhex(cell["stored"])) if name in READERS else "nothing: its reader is gone"
        if _CLASS.sub("(", str(read)) != _CLASS.sub("(", str(cell["reads"])):  # what a class is called is not stored
            yield f"{name}: {cell['reads']} is read as {read}"


def narrowed(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    """Values that a schema accepted and its successor does not."""
    if old.get("type") != new.get("type"):
        yield f"{path} was {old.get('type')}, is {new.get('type')}"
    for name, child in old.get("properties", {}).items():
        if name not in new.get("properties", {}):
            yield f"{path}.{name} is gone"
        else:
            yield from narrowed(child, new["properties"][name], f"{path}.{name}")
    if "items" in old:
        yield from narrowed(old["items"], new.get("items", {}), f"{path}[]")
    if isinstance(old.get("additionalProperties"), Mapping):
        yield from narrowed(old["additionalProperties"], new.get("additionalProperties", {}), f"{path}.*")
    yield from (
        f"{path}.{name} is required now" for name in set(new.get("required", ())) - set(old.get("required", ()))
    )
    if "enum" in new:
        yield from (
            f"{path}: {value} is gone" for value in old.get("enum", ["any value"]) if value not in new["enum"]
        )
    for bound in ("maximum", "maxLength", "maxItems", "maxProperties"):
        if bound in new and new[bound] < old.get(bound, float("inf")):
            yield f"{path}: {bound} was {old.get(bound)}, is {new[bound]}"
    for bound in ("minimum", "minLength", "minItems", "minProperties"):
        if bound in new and new[bound] > old.get(bound, float("-inf")):
            yield f"{path}: {bound} was {old.get(bound)}, is {new[bound]}"


def _unmendable(name: str, kept: Mapping[str, str], table: Table | None) -> Iterator[str]:
    """Tables are only ever added to: by columns that are not of the key."""
    if table is None:
        yield f"table {name}: nobody knows it any more"
        return
    now = _table(table)
    yield from (f"table {name}: column {column} is gone" for column in kept if column not in now)
    for column, report in columns_of(table).items():
        if column in kept and kept[column] != now[column]:
            yield f"table {name}: column {column} was {kept[column]}, is {now[column]}"
        if column not in kept and report.kind in (Kind.PARTITION, Kind.CLUSTERING):
            yield f"table {name}: column {column} is new in the key"


def _lost(old: Any, new: Any, path: str) -> Iterator[str]:
    """Values of a document that are lost."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key, value in old.items():
            yield from _lost(value, new.get(key), f"{path}.{key}")
    elif old != new:
        yield f"{path} was {old}, is {new}"
