"""The handler of a bulk job is found where people have it, and what is wrong with it is one line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headgate.errors import InvalidRequest
from headgate_spark.jobs.tasks import load


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the job is started, which is on nobody's path; what is imported there is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    for name in ("letters", "broken"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_module_that_lies_where_the_job_is_started_is_found(folder: Path) -> None:
    (folder / "letters.py").write_text(
        "class Mail:\n    @staticmethod\n    def send(messages):\n        return messages\n"
    )
    assert "as it came" == load("letters:Mail.send")("as it came")


@pytest.mark.parametrize(
    ("source", "entry_point", "message"),
    [
        ("def send(:\n", "broken:send", "SyntaxError"),
        ("raise ValueError('no such\\nregion')\n", "broken:send", "ValueError: no such region"),
        ("import no_such_package\n", "broken:send", "No module named 'no_such_package'"),
        ("send = 1\n", "broken:send", "The handler is not a function"),
        ("", "broken:send", "no attribute 'send'"),
        ("", "not_there:send", "No module named 'not_there'"),
    ],
)
def test_a_handler_that_cannot_be_loaded_is_one_line(
    folder: Path, source: str, entry_point: str, message: str
) -> None:
    (folder / "broken.py").write_text(source)
    with pytest.raises(InvalidRequest) as refused:
        load(entry_point)
    assert message in str(refused.value)
    assert entry_point in str(refused.value)
    assert 1 == len(str(refused.value).splitlines())
