"""Which resources a CronJob serves, of several with one schedule."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headgate.maintenance.pass_groups import PassGroup
from headgate.store.catalogue.decide_generation import first
from headgate.store.catalogue.entry import Entry, EntryState, Name, StoragePlace

NAMES_NONE: dict[str, Any] = {}
OWN_SECRET: dict[str, Any] = {"storage": {"connectionSecret": "other-cassandra"}}
OWN_IMAGE: dict[str, Any] = {"gc": {"image": "shop/types:3"}}
OURS = {"HEADGATE_CONNECTION": "headgate-connection", "HEADGATE_IMAGE": "headgate:1"}


def entry(spec: dict[str, Any]) -> Entry:
    """A counter with this spec."""
    name = Name("Counter", "shop", "views")
    place = StoragePlace("dc1", "headgate", "shared")
    return Entry(name, UUID(int=1), "operator/c/u", EntryState.ACTIVE, 1, {"spec": spec}, place, first(1), 0)


@pytest.mark.parametrize(
    ("environment", "spec", "expected"),
    [
        ({}, NAMES_NONE, True),
        ({}, OWN_SECRET, True),
        ({}, OWN_IMAGE, True),
        (OURS, NAMES_NONE, True),
        (OURS, OWN_SECRET, False),
        (OURS, OWN_IMAGE, False),
        ({**OURS, "HEADGATE_CONNECTION": "other-cassandra"}, OWN_SECRET, True),
        ({**OURS, "HEADGATE_CONNECTION": "other-cassandra"}, NAMES_NONE, False),
        ({**OURS, "HEADGATE_IMAGE": "shop/types:3"}, OWN_IMAGE, True),
        ({**OURS, "HEADGATE_IMAGE": "shop/types:3", "HEADGATE_DEFAULT_IMAGE": "headgate:1"}, NAMES_NONE, False),
        ({**OURS, "HEADGATE_DEFAULT_IMAGE": "headgate:1"}, NAMES_NONE, True),
        ({**OURS, "HEADGATE_IMAGE": ""}, OWN_IMAGE, True),
    ],
)
def test_a_group_has_those_that_name_its_secret_and_image_and_in_doubt_one_more(
    environment: dict[str, str], spec: dict[str, Any], expected: bool
) -> None:
    assert expected == PassGroup.of(environment).has(entry(spec), "gc")
