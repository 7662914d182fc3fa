"""Names that pages quote, and whether the code has them: paths, fields, commands, metrics, alerts, reasons.

A word in backquotes that has the form of a name (`camelCase`, `CamelCase`, `snake_case`, `HEADGATE_NAME`) has to
occur in the code, in a table of names that another test holds to the code, or in FOREIGN.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.kit.page_examples import Example, faults_of

ROOT: Final = Path(__file__).parents[2]
CODE: Final = (
    *("workers", "operator", "spark", "charts", "crds", "examples", "dev", "bench", "tests/kit"),
    *("Makefile", "pyproject.toml", "Dockerfile"),
)
TABLES_OF_NAMES: Final = ("docs/chart.md", "docs/configuration.md", "docs/workers.md")
"""Their first cells are metrics and variables; test_worker_docs.py, test_operator_measures.py and
test_configuration_page.py compare them with the code, which builds some of these names from parts."""

FOREIGN: Final = frozenset(
    (
        *("replace_address_first_boot", "join_ring", "paxos_state_purging"),  # Cassandra
        *("honor_labels", "exported_namespace"),  # Prometheus
        *("dependsOn",),  # Flux
        *("post_fork",),  # gunicorn
        *("availableNow",),  # PySpark
        *("worker_limit",),  # kopf
        *("create_autospec", "assert_awaited_once_with"),  # unittest.mock
    )
)
"""Names of other products, which no code of ours uses."""

_FENCED: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_QUOTED: Final = re.compile(r"`([^`\n]+)`")
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_NAME: Final = re.compile(
    r"HEADGATE_\w+|headgate_\w+|[A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+|[a-z]+(?:[A-Z][a-z0-9]+)+|[a-z0-9]+(_[a-z0-9]+)+"
)
_PATH: Final = re.compile(r"(?:workers|operator|spark|charts|crds|examples|dev|bench|tests|docs)/[\w./-]*\w")
_INDENTED_COMMAND: Final = re.compile(r"^    ((?:headgate|kubectl headgate|make) .*)$", re.MULTILINE)
_COMMAND: Final = re.compile(r"(?:kubectl )?headgate [a-z][\w-]*(?! \.\.\.).*")


@cache
def words_of_code() -> frozenset[str]:
    """Every word of every file of code, and of the tables of names."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    words: set[str] = set()
    for name in listed.split():
        words.update(_WORD.findall(Path(name).name))
        if name.startswith(CODE):
            words.update(_WORD.findall((ROOT / name).read_text(encoding="utf-8", errors="ignore")))
    for page in TABLES_OF_NAMES:
        cells = re.findall(r"^\| `([^`]+)`", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE)
        words.update(word for cell in cells for word in _WORD.findall(cell))
        words.update(f"HEADGATE_{word}" for cell in cells for word in _WORD.findall(cell) if word.isupper())
    return frozenset(words)


def missing_names(text: str) -> Iterator[str]:
    """Names and paths in backquotes that the repository does not have."""
    for quoted in _QUOTED.findall(_FENCED.sub("", text)):
        for word in _WORD.findall(quoted):
            if _NAME.fullmatch(word) and word not in words_of_code() and word not in FOREIGN:
                yield f"`{quoted}`: {word}"
        if _PATH.fullmatch(quoted) and "NAME" not in quoted and not (ROOT / quoted).exists():
            yield f"`{quoted}`"


def missing_commands(text: str) -> Iterator[str]:
    """Commands in indented lines, and commands with options in backquotes, that the command line does not take."""
    plain = _FENCED.sub("", text)
    for line in _INDENTED_COMMAND.findall(plain):
        yield from faults_of(Example("page", 0, "sh", (), re.sub(r" > \S+", "", line) + "\n"))
    for quoted in _QUOTED.findall(plain):
        if _COMMAND.fullmatch(quoted):
            yield from (f for f in faults_of(Example("page", 0, "sh", (), f"{quoted}\n")) if _is_of_a_name(f))


def _is_of_a_name(fault: str) -> bool:
    """Whether a fault is of a command or an option that does not exist; prose leaves arguments out."""
    return "No such" in fault
