"""Documents across versions: what one does not know, it passes over in reading and carries on in writing."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.api.read.parse import parse_resource
from headgate.api.read.versions import carry_unknown, document_of, known_part, resource_of
from headgate.applying.desired_state import PlacementDefaults, allowed_change, wanted_of
from headgate.errors import InvalidRequest
from headgate.store.catalogue.entry import StoragePlace

QUEUE: dict[str, Any] = {
    "apiVersion": "headgate.io/v1beta1",
    "kind": "Queue",
    "metadata": {"name": "emails", "namespace": "shop", "labels": {"a": "b"}, "uid": "123"},
    "spec": {"shards": 6, "consumers": [{"name": "mailer", "image": "i", "handler": "a.b:c"}]},
}


def newer() -> dict[str, Any]:
    """A document that a later release might have written."""
    document = document_of(parse_resource(QUEUE))
    document["spec"]["priority"] = {"levels": 3}
    document["spec"]["repair"]["eagerness"] = "high"
    document["spec"]["consumers"][0]["warmup"] = "5s"
    return document


def test_a_document_has_its_defaults_written_out_and_nothing_of_kubernetes() -> None:
    document = document_of(parse_resource(QUEUE))
    assert {"name": "emails", "namespace": "shop"} == document["metadata"]
    assert ("30s", "timeline", 6) == tuple(document["spec"][key] for key in ("visibilityTimeout", "engine", "shards"))
    assert "status" not in document


def test_what_was_written_is_read_back_the_same() -> None:
    resource = parse_resource(QUEUE)
    assert document_of(resource) == document_of(resource_of(document_of(resource)))


def test_a_newer_document_is_read_without_what_is_not_known() -> None:
    assert document_of(parse_resource(QUEUE)) == known_part(newer())
    assert 6 == resource_of(newer()).spec.shards  # type: ignore[union-attr]


def test_a_change_by_an_older_release_keeps_what_it_does_not_know() -> None:
    wanted = document_of(parse_resource({**QUEUE, "spec": {**QUEUE["spec"], "shards": 8}}))
    written = carry_unknown(newer(), wanted)
    assert 8 == written["spec"]["shards"]
    assert {"levels": 3} == written["spec"]["priority"]
    assert "high" == written["spec"]["repair"]["eagerness"]
    assert "5s" == written["spec"]["consumers"][0]["warmup"]


def test_what_goes_takes_its_unknown_fields_with_it() -> None:
    wanted = document_of(parse_resource({**QUEUE, "spec": {"shards": 6}}))
    assert "consumers" not in carry_unknown(newer(), wanted)["spec"]


def test_a_kind_of_the_future_is_distinguished_from_a_broken_one() -> None:
    with pytest.raises(InvalidRequest, match="does not know"):
        resource_of({"kind": "Topic"})


def test_a_fixed_field_is_refused_by_the_same_rule_as_the_api_servers() -> None:
    standing = document_of(parse_resource(QUEUE))
    wanted = document_of(parse_resource({**QUEUE, "spec": {"engine": "bucket"}}))
    with pytest.raises(InvalidRequest, match=r"spec\.engine: engine is fixed"):
        allowed_change(standing, wanted)


def test_storage_is_what_the_resource_states_else_what_the_connection_states() -> None:
    surroundings = PlacementDefaults("headgate", "dc1", 2)
    plain = wanted_of(parse_resource(QUEUE), surroundings)
    chosen = wanted_of(
        parse_resource({**QUEUE, "spec": {"storage": {"keyspace": "shop", "tables": "shared", "replication": 5}}}),
        surroundings,
    )
    assert (StoragePlace("dc1", "headgate", "dedicated"), 2) == (plain.place, plain.replication)
    assert (StoragePlace("dc1", "shop", "shared"), 5) == (chosen.place, chosen.replication)
    assert "queue/shop/emails" == str(plain.name)
