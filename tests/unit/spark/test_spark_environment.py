"""Which Cassandra a Spark task uses: by the driver, by its own environment, by the options of the query."""

from __future__ import annotations

import pytest

from headgate.store.cassandra.settings import read_settings
from headgate.store.connection_variables import prefixed
from headgate_spark.process.worker_connection import local_environment, merge_environments, task_environment

DRIVERS = {"CONTACT_POINTS": "c1", "USERNAME": "me", "PASSWORD": "x", "KEYSPACE": "k1"}


def test_a_driver_passes_on_what_counts_and_never_the_password() -> None:
    variables = {"CONTACT_POINTS": "c1", "USERNAME": "me", "KEYSPACE": "k1"}
    assert variables == task_environment(DRIVERS)
    assert prefixed(variables) == task_environment(prefixed(DRIVERS))
    assert prefixed({"CONTACT_POINTS": "c1"}) == task_environment(
        {"USERNAME": "jane", "HEADGATE_CONTACT_POINTS": "c1"}
    )
    assert prefixed(DRIVERS) == local_environment(prefixed(DRIVERS))


@pytest.mark.parametrize(
    ("output", "own", "over", "wanted"),
    [
        ({"CONTACT_POINTS": "c1"}, {"USERNAME": "me", "PASSWORD": "x"}, {}, ("c1", "me", "headgate")),
        ({"HEADGATE_CONTACT_POINTS": "c1"}, {"USERNAME": "jane"}, {}, ("c1", None, "headgate")),
        ({"HEADGATE_CONTACT_POINTS": "c1"}, {"CONTACT_POINTS": "c2"}, {}, ("c2", None, "headgate")),
        ({"CONTACT_POINTS": "c1"}, {"HEADGATE_CONTACT_POINTS": "c2"}, {}, ("c2", None, "headgate")),
        ({}, {"HEADGATE_CONTACT_POINTS": "c2"}, {"CONTACT_POINTS": "c3", "KEYSPACE": "k"}, ("c3", None, "k")),
    ],
)
def test_options_go_before_the_tasks_own_environment_and_that_before_the_drivers(
    output: dict[str, str], own: dict[str, str], over: dict[str, str], wanted: tuple[str, str | None, str]
) -> None:
    result = read_settings(merge_environments(output, own, over))
    assert wanted == (result.contact_points[0].host, result.username, result.keyspace)
