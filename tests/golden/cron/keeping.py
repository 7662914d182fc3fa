"""The golden file of schedules: how each line is made, and how the file is read.

`next_times.tsv` holds a start, a schedule and the next time at which Kubernetes runs it. The schedules and starts are
random with a fixed seed, and `CRON.accepts` takes each of them. The next times come from robfig/cron v3.0.1, the
library of Kubernetes' CronJob controller: `go/` runs it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

from headgate.api.values.cron import CRON

FOLDER: Final = Path(__file__).parent
FILE: Final = FOLDER / "next_times.tsv"
COUNT: Final = 4_000
SEED: Final = 20_261_120
NEVER: Final = "never"
FIRST: Final = datetime(2026, 1, 1, tzinfo=UTC)
DAYS_MAX: Final = 3 * 366
TIME: Final = "%Y-%m-%dT%H:%M:%SZ"

_MACROS: Final = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final[tuple[tuple[int, int, tuple[str, ...]], ...]] = (
    (0, 59, ()),
    (0, 23, ()),
    (1, 31, ()),
    (1, 12, _MONTHS),
    (0, 6, _DAYS),
)


def build_cases() -> list[tuple[str, str]]:
    """The starts and schedules: the same each time."""
    rng = Random(SEED)
    cases: list[tuple[str, str]] = []
    while len(cases) < COUNT:
        schedule = _build_schedule(rng)
        if CRON.accepts(schedule):
            start = FIRST + timedelta(minutes=rng.randrange(DAYS_MAX * 24 * 60))
            cases.append((start.strftime(TIME), schedule))
    return cases


def ask_robfig(cases: list[tuple[str, str]]) -> list[str]:
    """The next time of each case; needs Go, and its module once."""
    asked = "".join(f"{start}\t{schedule}\n" for start, schedule in cases)
    ran = subprocess.run(
        ["go", "run", "."], cwd=FOLDER / "go", input=asked, capture_output=True, text=True, check=True
    )
    return ran.stdout.splitlines()


def format_lines(cases: list[tuple[str, str]], next_times: list[str]) -> str:
    """The text of the golden file."""
    lines = zip(cases, next_times, strict=True)
    return "".join(f"{start}\t{next_time}\t{schedule}\n" for (start, schedule), next_time in lines)


def read_cases() -> Iterator[tuple[datetime, str, datetime | None]]:
    """Start, schedule and next time of each line; None where the schedule never comes."""
    for line in FILE.read_text(encoding="ascii").splitlines():
        start, next_time, schedule = line.split("\t")
        yield (
            datetime.fromisoformat(start),
            schedule,
            None if next_time == NEVER else datetime.fromisoformat(next_time),
        )


def _build_schedule(rng: Random) -> str:
    if rng.random() < 0.01:
        return rng.choice(_MACROS)
    return " ".join(_build_field(rng, *bounds) for bounds in _FIELDS)


def _build_field(rng: Random, first: int, last: int, names: tuple[str, ...]) -> str:
    entries = 1 if rng.random() < 0.75 else rng.randint(2, 3)
    return ",".join(_build_entry(rng, first, last, names) for _ in range(entries))


def _build_entry(rng: Random, first: int, last: int, names: tuple[str, ...]) -> str:
    begin = rng.randint(first, last)
    end = rng.randint(begin, last)
    span = rng.choices(
        ("*", "?", _format_value(rng, begin, first, names), _build_range(rng, begin, end, first, names)),
        weights=(40, 8, 32, 20),
    )[0]
    step = f"/{rng.choice((1, 2, 3, 5, 7, 10, 15))}" if rng.random() < 0.3 else ""
    return span + step


def _format_value(rng: Random, value: int, first: int, names: tuple[str, ...]) -> str:
    if not names or rng.random() < 0.5:
        return str(value)
    name = names[value - first]
    return name.upper() if rng.random() < 0.2 else name


def _build_range(rng: Random, begin: int, end: int, first: int, names: tuple[str, ...]) -> str:
    if not names or rng.random() < 0.5:
        return f"{begin}-{end}"
    return f"{names[begin - first]}-{names[end - first]}"
