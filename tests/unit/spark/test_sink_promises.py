"""The sinks keep the promises of the resource."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

from headgate.api.resources.bulk import Sink

ROOT = Path(__file__).parents[3]
FORMATS = get_args(Sink.model_fields["format"].annotation)
PROMISES = ("exactly once", "at least once")


def promises_of_the_code() -> dict[str, str]:
    """By the table at the head of sinks.py, which is read as text: Spark need not be there."""
    source = (ROOT / "spark/headgate_spark/jobs/sinks.py").read_text(encoding="utf-8")
    table = ast.get_docstring(ast.parse(source)) or ""
    rows = [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.count("|") == 4]
    return {name: row[2] for row in rows for name in re.findall(r"\w+", row[1]) if name in FORMATS}


def promises_of_the_resource() -> dict[str, str]:
    """By the description: each sentence names its formats, then its promise."""
    description = Sink.model_json_schema()["properties"]["format"]["description"]
    return {
        name: promise
        for sentence in description.split(".")
        for promise in PROMISES
        if promise in sentence
        for name in re.findall(r"\w+", sentence.partition(promise)[0])
        if name in FORMATS
    }


@pytest.mark.parametrize("name", FORMATS)
def test_the_description_of_a_sink_promises_what_the_sink_keeps(name: str) -> None:
    assert promises_of_the_code()[name] == promises_of_the_resource()[name]
