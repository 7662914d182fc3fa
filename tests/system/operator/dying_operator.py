"""`headgate-operator` that is killed at the first effect that it begins once it has done one.

    HEADGATE_TEST_DEATHS=FILE python -m tests.system.operator.dying_operator --kubeconfig FILE --namespace NAME ...

One life of it does one effect, or as many as run at once; so a row of such lives is killed between any two.
Between the same two it dies twice and no more, by the file of deaths: an effect that nobody can see afterwards
(lanes are made IF NOT EXISTS, and known by the entry that is activated next) is done again in the next life, which
would die there for ever.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from headgate_operator.process.main import main
from headgate_operator.reconcile.apply_plan import PlanApplier
from headgate_operator.reconcile.decision_log import effect_words

DEATHS_EACH = 2
DEATHS = Path(os.environ["HEADGATE_TEST_DEATHS"])

_whole = PlanApplier._one
_done: list[str] = []


def _dies_before(effect: str) -> None:
    """Unless it has died there before, again and again."""
    place = f"{_done[-1]} | {effect}"
    died = Counter(DEATHS.read_text().splitlines()) if DEATHS.exists() else Counter[str]()
    if died[place] < DEATHS_EACH:
        with DEATHS.open("a") as deaths:
            deaths.write(place + "\n")
        os.kill(os.getpid(), signal.SIGKILL)


async def _one_and_no_more(self: PlanApplier, key: Any, effect: Any, *args: Any) -> Any:
    text = f"{key.path}: {effect_words(effect)}"
    if _done:
        _dies_before(text)
    answer = await _whole(self, key, effect, *args)
    _done.append(text)
    return answer


if __name__ == "__main__":
    PlanApplier._one = _one_and_no_more  # type: ignore[method-assign]
    main()
