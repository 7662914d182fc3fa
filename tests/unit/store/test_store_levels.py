"""Rule R3 on the wire: serial reads and LWTs of a table go out at the table's own serial level and at no other."""

from __future__ import annotations

import pytest

from headgate.store.cassandra.binding import COMMIT_LEVELS, LEVELS, SERIAL_LEVELS, read_level
from headgate.store.model.consistency import Consistency, SerialLevel
from headgate.store.model.table import Column, Table
from headgate.store.model.types import Type

ON_THE_WIRE = {"ONE": 1, "QUORUM": 4, "ALL": 5, "LOCAL_QUORUM": 6, "EACH_QUORUM": 7, "SERIAL": 8, "LOCAL_SERIAL": 9}
"""The numbers of Cassandra's protocol, written here a second time on purpose."""


def table(level: SerialLevel) -> Table:
    """A table of that serial level."""
    return Table("lanes", "a test", (Column("id", Type.INT),), serial=level)


@pytest.mark.parametrize("level", list(SerialLevel))
def test_a_serial_read_goes_out_at_the_tables_own_level(level: SerialLevel) -> None:
    assert ON_THE_WIRE[level.value] == read_level(table(level), Consistency.SERIAL)
    assert ON_THE_WIRE[level.value] == SERIAL_LEVELS[level]


@pytest.mark.parametrize("consistency", [each for each in Consistency if each is not Consistency.SERIAL])
def test_any_other_read_goes_out_at_the_level_that_it_names(consistency: Consistency) -> None:
    assert ON_THE_WIRE[consistency.value] == read_level(table(SerialLevel.SERIAL), consistency)
    assert ON_THE_WIRE[consistency.value] == LEVELS[consistency]


def test_an_applied_lwt_is_learnt_where_a_plain_quorum_read_sees_it() -> None:
    assert ON_THE_WIRE["LOCAL_QUORUM"] == COMMIT_LEVELS[SerialLevel.LOCAL_SERIAL]
    assert ON_THE_WIRE["QUORUM"] == COMMIT_LEVELS[SerialLevel.SERIAL]
