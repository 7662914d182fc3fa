"""A connection and the environment variables that describe it agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.servers.cassandra.connection import (
    Connection,
    ContactPoint,
    TlsFiles,
    parse_contact_points,
    parse_switch,
    read_connection,
)
from headgate.errors import InvalidRequest

NAMES = st.text("abcdefghij-0123456789", min_size=1, max_size=12)
PORTS = st.integers(1, 65535)
POINTS = st.builds(ContactPoint, NAMES, PORTS)
FILES = NAMES.map(lambda name: Path("/keys") / name)
WITH_KEY = st.builds(TlsFiles, FILES, FILES, FILES)
ROLES = st.one_of(st.just((None, None)), st.tuples(NAMES, NAMES))


@given(
    st.lists(POINTS, min_size=1, max_size=4),
    NAMES,
    ROLES,
    st.one_of(st.none(), st.builds(TlsFiles, FILES), WITH_KEY),
    NAMES,
)
def test_what_is_given_by_the_environment_is_read_back_whole(
    points: list[ContactPoint], name: str, role: tuple[str | None, str | None], tls: TlsFiles | None, keyspace: str
) -> None:
    connection = Connection(tuple(points), name, *role, tls, keyspace, name)
    assert connection == read_connection(connection.environment())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("db1", [ContactPoint("db1", 9042)]),
        ("db1:9142, db2", [ContactPoint("db1", 9142), ContactPoint("db2", 9042)]),
        ("[::1]:9142,fd00::2", [ContactPoint("::1", 9142), ContactPoint("fd00::2", 9042)]),
        ("db1,", [ContactPoint("db1", 9042)]),
        ("db1:", [ContactPoint("db1", 9042)]),
    ],
)
def test_contact_points_are_read_as_people_write_them(text: str, expected: list[ContactPoint]) -> None:
    assert tuple(expected) == parse_contact_points(text)


@pytest.mark.parametrize("text", ["", " , ", "db1:x", "db1:0", "db1:70000", ":9042"])
def test_a_contact_point_that_names_nothing_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(InvalidRequest, match="host"):
        parse_contact_points(text)


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("1", True), ("No", False), ("", False)])
def test_a_switch_is_read_as_people_write_it(text: str, expected: bool) -> None:
    assert expected == parse_switch("USE_SSL", text)


def test_a_switch_that_is_neither_names_itself() -> None:
    with pytest.raises(InvalidRequest, match="USE_SSL"):
        parse_switch("USE_SSL", "perhaps")


def test_tls_without_an_authority_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="SSL_CA"):
        read_connection({"CONTACT_POINTS": "db1", "USE_SSL": "true"})
