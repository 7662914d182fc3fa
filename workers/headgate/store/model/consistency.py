"""How many replicas have to answer. The names are Cassandra's; the numbers of the protocol stay in the driver."""

from __future__ import annotations

from enum import Enum


class Consistency(Enum):
    """For reads and plain writes. Columns that are written by LWT and read for a decision are read SERIAL."""

    ONE = "ONE"
    LOCAL_QUORUM = "LOCAL_QUORUM"
    QUORUM = "QUORUM"
    EACH_QUORUM = "EACH_QUORUM"
    ALL = "ALL"
    SERIAL = "SERIAL"
    """A read at the table's own serial level (rule R3: the two levels are never mixed on a table)."""


class SerialLevel(Enum):
    """The serial level of a table: of all its LWTs and of all its serial reads."""

    LOCAL_SERIAL = "LOCAL_SERIAL"
    SERIAL = "SERIAL"
