"""The text that a user sees of an error that went through Spark."""

from __future__ import annotations

import pytest

from headgate_spark.failures import line_of

WRAPPED = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source read: Traceback (most recent call last):
  File "plan_data_source_read.py", line 333, in main
    partitions = reader.partitions()
headgate.errors.NotFound: There is no such queue (queue=shop/mails); did you mean shop/emails?
. SQLSTATE: 38000"""


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (WRAPPED, "There is no such queue (queue=shop/mails); did you mean shop/emails?"),
        ("\n[CANNOT_PARSE] no such thing\nat line 1", "[CANNOT_PARSE] no such thing"),
        ("", "RuntimeError"),
    ],
)
def test_it_is_our_line_or_the_first_one(message: str, line: str) -> None:
    assert line == line_of(RuntimeError(message))
