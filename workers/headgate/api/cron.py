"""When something runs: the schedules that a Kubernetes CronJob accepts, checked before one is made.

Five fields (minute, hour, day of month, month, day of week), each `*`, a number, a name where there are names, a
range, a step, or a list of these; or `@hourly` and its like. PATTERN holds every number to its field's range. That a
range does not run backwards (`30-10`, `fri-mon`) BACKWARD finds: a pattern too, since CEL that takes texts apart is
refused as too costly.
"""

from __future__ import annotations

from typing import Final

from headgate.api.patterns import matches

LENGTH_MAX: Final = 100
RULE_TEXT: Final = (
    'must be a cron schedule of five fields, such as "*/5 * * * *" or "0 2 * * mon-fri", or @hourly, @daily'
)

_MONTHS: Final = "jan feb mar apr may jun jul aug sep oct nov dec"
_DAYS: Final = "sun mon tue wed thu fri sat"


def _field(number: str, names: str = "") -> str:
    one = f"({number}|{names.replace(' ', '|')})" if names else f"({number})"
    entry = rf"([*?]|{one}(-{one})?)(/[1-9][0-9]?)?"
    return f"{entry}(,{entry})*"


PATTERN: Final = (
    "^(@(yearly|annually|monthly|weekly|daily|midnight|hourly)|(?i:"
    + " +".join(
        (
            _field("[0-5]?[0-9]"),
            _field("[01]?[0-9]|2[0-3]"),
            _field("0?[1-9]|[12][0-9]|3[01]"),
            _field("0?[1-9]|1[0-2]", _MONTHS),
            _field("[0-6]", _DAYS),
        )
    )
    + "))$"
)


def _backward() -> str:
    """Matches a range that ends before it begins, or that mixes a number and a name, whose order nobody sees."""
    numbers = [f"0?{first}-0?[0-{first - 1}]" for first in range(1, 10)]
    numbers += ["[1-9][0-9]-0?[0-9]", *(f"{tens}[0-9]-[1-{tens - 1}][0-9]" for tens in range(2, 6))]
    numbers += [f"{tens}{first}-{tens}[0-{first - 1}]" for tens in range(1, 6) for first in range(1, 10)]
    names = [
        f"{last}-({'|'.join(order[:index])})"
        for order in (_MONTHS.split(), _DAYS.split())
        for index, last in enumerate(order)
        if index
    ]
    return f"(?i:(^|[ ,])({'|'.join(numbers + names)}|[0-9]+-[a-z]+|[a-z]+-[0-9]+)($|[ ,/]))"


BACKWARD: Final = _backward()
CEL: Final = f"self.matches('{PATTERN}') && !self.matches('{BACKWARD}')"

WRONG: Final = (
    "every day",
    "60 * * * *",
    "* * *",
    "30-10 * * * *",
    "0 0 * * fri-mon",
    "0 0 * * 1-fri",
    "*/0 * * * *",
)


def accepts(text: str) -> bool:
    """Whether a CronJob would take this schedule."""
    return len(text) <= LENGTH_MAX and matches(PATTERN, text) and not matches(BACKWARD, text)
