"""Files of resources: each fault is one line, with file, line, document and field."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.api.read.loader import FilesInvalid, load_files, read_files, read_text
from headgate.api.read.parse import ResourceInvalid, check_resource, parse_resource
from headgate.api.read.versions import document_of
from headgate.errors import InvalidRequest
from tests.unit.api.api_cases import ACCEPTED, ROOT, document

HEAD = "apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {name: q}\n"


def lines_of(text: str) -> list[str]:
    return [str(fault) for fault in read_text(text, "f.yaml").faults]


def test_the_examples_are_valid() -> None:
    resources = load_files(sorted((ROOT / "examples").glob("*.yaml")))
    assert {"emails", "emails-dead", "page-views"} <= {resource.metadata.name for resource in resources}


def test_documents_are_read_in_their_order_and_others_are_passed_over() -> None:
    text = f"{HEAD}spec: {{}}\n---\napiVersion: v1\nkind: Secret\n---\n---\n{HEAD.replace('q}', 'r}')}spec: {{}}\n"
    reading = read_text(text, "f.yaml")
    assert [resource.metadata.name for resource in reading.resources] == ["q", "r"]
    assert (reading.faults, reading.passed_over) == ((), 1)


@pytest.mark.parametrize(
    ("spec", "line", "message"),
    [
        ("retension: 14d", 5, 'spec.retension: is unknown; did you mean "retention"?'),
        ("timeline:\n    safety_lag: 1s", 6, 'spec.timeline.safety_lag: is unknown; did you mean "safetyLag"?'),
        (
            "timeline: {lease: {xyz: 1}}",
            5,
            "spec.timeline.lease.xyz: is unknown; possible here: touch, ttl",
        ),
        ("engine: timelin", 5, 'spec.engine: must be timeline, bucket or extent; did you mean "timeline"?'),
        ('shards: "4"', 5, "spec.shards: must be a whole number, without quotes"),
        ("shards: 4.5", 5, "spec.shards: must be a whole number, without quotes"),
        ("shards: 0", 5, "spec.shards: must be at least 1"),
        ("shards: 2000", 5, "spec.shards: must be at most 1024"),
        ("paused: 'no'", 5, "spec.paused: must be true or false, without quotes"),
        ("delay: 60", 5, "spec.delay: must be a duration such as 500ms, 90s, 1h30m or 14d, from 0s to 3650d"),
        ("maxMessageSize: 9Mi", 5, "spec.maxMessageSize: must be a size such as 256Ki, 1Mi or 64M, from 1Ki to 8Mi"),
        ("timeline: yes", 5, "spec.timeline: must hold fields of its own, one a line below it"),
        ("consumers: {}", 5, "spec.consumers: must be a list"),
        ("consumers:\n    - handler: a:b", 6, "spec.consumers[0].name: is required"),
        (
            "engine: extent\n  consumers:\n    - {name: a, handler: a:b}\n    - {name: a, handler: a:b}",
            8,
            "spec.consumers[1].name: a is there twice; each needs its own name",
        ),
        (
            "consumers:\n    - name: a\n      handler: a:b\n      scaling:\n        min: 11",
            9,
            "spec.consumers[0].scaling.min: scaling.min must be at most scaling.max",
        ),
    ],
)
def test_a_fault_names_its_line_its_field_and_what_would_be_right(spec: str, line: int, message: str) -> None:
    assert lines_of(f"{HEAD}spec:\n  {spec}\n") == [f"f.yaml:{line}: document 1, Queue q: {message}"]


def test_every_fault_of_every_document_is_reported_in_the_order_of_the_lines() -> None:
    text = f"{HEAD}spec:\n  shards: 0\n  retention: x\n---\n{HEAD}spec:\n  delay: y\n"
    assert [line.split(" ")[0] for line in lines_of(text)] == ["f.yaml:5:", "f.yaml:6:", "f.yaml:12:"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Queue\n", "f.yaml:1: document 1, Queue without a name: apiVersion: must be headgate.io/v1beta1"),
        (
            "apiVersion: headgate.io/v1beta1\nkind: Queu\n",
            'f.yaml:2: document 1, Queu without a name: kind: must be Queue or Counter; did you mean "Queue"?',
        ),
        ("just a text", "f.yaml:1: document 1: the document: must be a resource: apiVersion, kind, metadata, spec"),
        ("a: 1\na: 2\n", 'f.yaml:2: not YAML: "a" is there twice, first in line 1'),
        ("a: [1\n", "f.yaml:2: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: !!python/object:os.system x", "f.yaml:1: not YAML: could not determine a constructor for the tag"),
        ("a: *b", "f.yaml:1: not YAML: found undefined alias"),
        ("a: &a [*a]", "f.yaml:1: not YAML: is nested too deep for a resource"),
        ("[" * 5000, "f.yaml: not YAML: is nested too deep for a resource"),
        ("[" * 200 + "]" * 200, "f.yaml:1: not YAML: is nested too deep for a resource"),
        (
            "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
            + "".join(
                f"{new}: &{new} [{','.join([f'*{old}'] * 10)}]\n" for old, new in itertools.pairwise("abcdefghi")
            ),
            "f.yaml:6: not YAML: is too large once its aliases are written out",
        ),
    ],
)
def test_what_is_no_resource_at_all_is_one_line(text: str, message: str) -> None:
    (line,) = lines_of(text)
    assert line.startswith(message)


def test_a_missing_spec_or_name_is_reported() -> None:
    assert lines_of(HEAD) == ["f.yaml:1: document 1, Queue q: spec: is required"]
    text = "apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {}\nspec: {}\n"
    assert lines_of(text) == ["f.yaml:3: document 1, Queue without a name: metadata.name: is required"]


def test_a_time_without_quotes_stays_a_text() -> None:
    bulk = "[{name: a, mode: redrive, schedule: '@daily', from: 2026-11-18T09:00:00Z}]"
    (queue,) = read_text(f"{HEAD}spec:\n  bulk: {bulk}\n", "f.yaml").resources
    assert queue.kind == "Queue"
    assert queue.spec.bulk is not None
    assert queue.spec.bulk[0].from_ == "2026-11-18T09:00:00Z"


def test_a_null_is_as_good_as_nothing_as_it_is_to_the_api_server() -> None:
    (queue,) = read_text(f"{HEAD}spec:\n  shards: null\n  timeline:\n  consumers: ~\n", "f.yaml").resources
    assert queue.kind == "Queue"
    assert (queue.spec.shards, queue.spec.timeline, queue.spec.consumers) == (4, None, None)


def test_a_null_in_what_is_passed_on_to_others_stays() -> None:
    """In a strategic-merge patch, a null removes a field."""
    consumers = "[{name: a, handler: 'a:b', template: {spec: {nodeSelector: null}}}]"
    (queue,) = read_text(f"{HEAD}spec:\n  consumers: {consumers}\n", "f.yaml").resources
    assert queue.kind == "Queue"
    assert queue.spec.consumers is not None
    assert queue.spec.consumers[0].template is not None
    assert queue.spec.consumers[0].template.spec == {"nodeSelector": None}
    assert document_of(queue)["spec"]["consumers"][0]["template"]["spec"] == {"nodeSelector": None}


def test_a_resource_that_is_there_twice_is_reported(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(f"{HEAD}spec: {{}}\n")
    (fault,) = read_files(sorted(tmp_path.iterdir())).faults
    assert str(fault).endswith("metadata.name: Queue default/q is there twice; remove one or rename it")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), "is a directory, not a file"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not text in UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_reported(make: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    assert callable(make)
    make(path)
    with pytest.raises(InvalidRequest, match=message):
        load_files([path])


def test_loading_what_is_invalid_raises_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(f"{HEAD}spec: {{shards: 0, delay: x}}\n")
    with pytest.raises(FilesInvalid) as raised:
        load_files([path])
    assert len(raised.value.faults) == 2


def test_parsing_a_resource_gives_it_or_raises_its_faults() -> None:
    assert parse_resource(document("Counter", {})).kind == "Counter"
    with pytest.raises(ResourceInvalid) as raised:
        parse_resource(document("Queue", {"engine": "bucket"}), document("Queue", {}))
    assert [fault.rule for fault in raised.value.faults] == ["queue.engine.fixed"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def places(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every place in a document."""
    yield path
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for step, child in items:
        yield from places(child, (*path, step))


def with_put(node: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """The document with another value at one place."""
    if not path:
        return value
    copied = dict(node) if isinstance(node, dict) else list(node)
    copied[path[0]] = with_put(node[path[0]], path[1:], value)
    return copied


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_whatever_stands_anywhere_in_a_resource_is_judged_and_never_breaks_the_judge(data: st.DataObject) -> None:
    made = document(*data.draw(st.sampled_from(ACCEPTED)))
    broken = with_put(made, data.draw(st.sampled_from(list(places(made)))), data.draw(anything))
    if isinstance(broken, dict):
        check_resource(broken)
        check_resource(broken, made)


@given(st.text(alphabet="ab:-[]{}&*!|>#'\" \n\t1", max_size=40))
def test_whatever_a_file_holds_is_read_or_reported(text: str) -> None:
    assert all(str(fault).startswith("f.yaml") for fault in read_text(text, "f.yaml").faults)
