"""What is left to do in the store for one resource, as steps: the same for `penstock apply` and for the operator.

Pure: it is told what is wanted and what was found, and names the first steps that are missing, in their order; who
performs them (perform_steps.py) looks again afterwards, and asks again, until there are none. Each step says all of
what it makes, and can be performed twice, by two at once, and after a crash: it is an LWT, or worded IF NOT EXISTS.

Invariants: nothing is named that depends on the answer of an earlier step; lanes come before whoever could hear of
them (before `Activate`, before `Announce`); a table that was noted is never made again; nothing of an entry of
somebody else's is changed, but by `Adopt`, which names whom it was seen to belong to; rows and tables go only once
the entry says `deleting`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.errors import PenstockError, Refused
from penstock.store.catalogue_entry import Document, Entry, Name, Place
from penstock.store.cql import create_keyspace_cql, create_table_cql, drop_table_cql
from penstock.store.decide_generation import Generation
from penstock.store.drift import Drift
from penstock.store.table import Keyspace, Table

TABLES_MAX = 300
"""Of all users in a cluster: each costs every node memory, and past a few hundred the cluster suffers."""


# ---- steps


@dataclass(frozen=True)
class CreateKeyspace:
    """Make a keyspace; one that is there stays as it is."""

    keyspace: Keyspace

    @property
    def cql(self) -> str:
        """The statement."""
        return create_keyspace_cql(self.keyspace)


@dataclass(frozen=True)
class CreateTable:
    """Make a table under its id, which follows from its name."""

    keyspace: str
    table: Table

    @property
    def cql(self) -> str:
        """The statement."""
        return create_table_cql(self.keyspace, self.table)


@dataclass(frozen=True)
class NoteTables:
    """Wait until every node serves these tables, then remember that they were made, so that none is made again."""

    keyspace: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class MendDrift:
    """Add a column that is missing, set an option that is off."""

    keyspace: str
    drift: Drift

    @property
    def cql(self) -> str:
        """The statement."""
        return self.drift.cql or ""


@dataclass(frozen=True)
class DeclareEntry:
    """Make the entry, or write this document into the one that stands, if it is this owner's."""

    name: Name
    owner: str
    document: Document = field(hash=False)
    place: Place
    shards: int


@dataclass(frozen=True)
class MakeLanes:
    """Make what a generation of shards needs before anybody uses it."""

    engine: str
    entry: Entry
    generation: Generation


@dataclass(frozen=True)
class Activate:
    """Say that all of it is there: from now on it takes puts."""

    entry: Entry


@dataclass(frozen=True)
class Announce:
    """Tell everybody of the next generation, if the one before it is still this."""

    entry: Entry
    number: int
    shards: int
    skew_us: int


@dataclass(frozen=True)
class MakeSure:
    """Write from when on nobody writes to the generation before the announced one (rule R6)."""

    entry: Entry
    skew_us: int


@dataclass(frozen=True)
class Turn:
    """Let the announced generation be the current one, now that nobody writes to the one before."""

    entry: Entry
    skew_us: int


@dataclass(frozen=True)
class Adopt:
    """Let this owner have an entry that belonged to another, if it still does, and write his document into it."""

    entry: Entry
    """As it was seen: its owner is the one that gives it up."""
    owner: str
    document: Document = field(hash=False)


@dataclass(frozen=True)
class Retain:
    """Its resource is gone, and all of it stays: puts and receives are refused from now on."""

    entry: Entry


@dataclass(frozen=True)
class MarkDeleting:
    """Its tables and rows are about to go: puts and receives are refused from now on."""

    entry: Entry


@dataclass(frozen=True)
class DropTable:
    """Drop a table of a creation of its own; the note that it was made stays."""

    keyspace: str
    name: str

    @property
    def cql(self) -> str:
        """The statement."""
        return drop_table_cql(self.keyspace, self.name)


@dataclass(frozen=True)
class ForgetRows:
    """Remove what this creation keeps in shared tables and what would not go by itself; messages expire."""

    engine: str
    entry: Entry


@dataclass(frozen=True)
class Forget:
    """The name is free; the id is never used again."""

    entry: Entry


SchemaStep = CreateKeyspace | CreateTable | MendDrift | DropTable
"""Those that are one statement each."""
EntryStep = DeclareEntry | Activate | Announce | MakeSure | Turn | Adopt | Retain | MarkDeleting | Forget
"""Those that change the entry, by LWT."""
Step = SchemaStep | EntryStep | NoteTables | MakeLanes | ForgetRows


# ---- what is told


@dataclass(frozen=True)
class Found:
    """What Cassandra has of one resource, as it was read."""

    entry: Entry | None = None
    """None where there is none, or only one that is gone."""
    keyspace_there: bool = True
    """Whether the keyspace of its tables is there."""
    there: frozenset[str] = frozenset()
    """The tables of that keyspace."""
    noted: frozenset[str] = frozenset()
    """The tables that were ever made in it."""
    drifts: tuple[Drift, ...] = ()
    """Of those of its tables that are there."""
    tables_total: int = 0
    """Of all users of the cluster."""


@dataclass(frozen=True)
class Decided:
    """The steps to take now; when there are none, why it is not as wanted, if it is not."""

    steps: tuple[Step, ...] = ()
    stopped: PenstockError | None = None
    """What its author or somebody else has to do first; or a change of shards that has to be over first."""
    by_hand: tuple[Drift, ...] = ()
    """Differences that only a person can mend: nothing goes on before."""
    carried: bool = True
    """Whether this release has its engine; of another only the entry is made."""
    again_at_us: int | None = None
    """When there will be something to do, if nothing else changes."""


class TooManyTables(Refused):
    """Dedicated tables would bring the cluster past the bound."""


class StorageElsewhere(Refused):
    """Its home data centre is not the one that this connection uses (rule R5)."""
