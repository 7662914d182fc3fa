"""The arguments of `headgate.apply`: paths and documents, and the name of their manager."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.applying.call import ApplyOutcome, ApplyReport, ApplyResult, checked_owner, read_resources

QUEUE = {
    "apiVersion": "headgate.io/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "emails", "namespace": "shop"},
    "spec": {},
}
TEXT = """
apiVersion: headgate.io/v1beta1
kind: Counter
metadata: {name: page-views, namespace: shop}
spec: {}
---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {name: orders, namespace: shop}
spec: {}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with two resources."""
    made = tmp_path / "resources.yaml"
    made.write_text(TEXT)
    return made


def test_paths_and_documents_are_read_in_their_order(file: Path) -> None:
    assert ["page-views", "orders"] == [each.metadata.name for each in read_resources(str(file))]
    assert ["emails"] == [each.metadata.name for each in read_resources(QUEUE)]
    assert ["emails", "page-views", "orders"] == [
        each.metadata.name for each in read_resources(each for each in (QUEUE, file))
    ]


@pytest.mark.parametrize(
    ("resources", "line"),
    [
        ([], "There is no Queue and no Counter to apply."),
        ([7], "Only paths of YAML files and documents can be applied (given=int); pass a path or a dict"),
        ({**QUEUE, "spec": {"shards": 0}}, "spec.shards"),
    ],
)
def test_what_cannot_be_applied_is_refused_before_anything_is_connected(resources: Any, line: str) -> None:
    with pytest.raises(headgate.InvalidRequest) as caught:
        asyncio.run(headgate.apply(resources, environment={}))
    assert line in str(caught.value)


def test_without_async_the_same_is_refused() -> None:
    with pytest.raises(headgate.InvalidRequest, match="HEADGATE_CONTACT_POINTS is not set"):
        headgate.apply_sync(QUEUE, environment={})


@pytest.mark.parametrize("owner", ["", "a b", "a/b", "x" * 64, "a\n"])
def test_an_owner_is_a_name(owner: str) -> None:
    with pytest.raises(headgate.InvalidRequest, match="An owner is a name"):
        checked_owner(owner)
    assert "cli/headgate" == checked_owner("headgate")


def test_a_report_raises_where_a_resource_was_refused() -> None:
    done = ApplyResult("Queue", "shop/emails", ApplyOutcome.CREATED)
    refused = ApplyResult("Queue", "shop/orders", ApplyOutcome.REFUSED, ("another name manages it",))
    ApplyReport((done,)).check()
    assert (refused,) == ApplyReport((done, refused)).refused
    with pytest.raises(headgate.OperationRefused) as caught:
        ApplyReport((done, refused)).check()
    assert "Resources were refused. (resources=Queue shop/orders: another name manages it)" == str(caught.value)
