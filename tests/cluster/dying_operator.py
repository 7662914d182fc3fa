"""`penstock-operator` that is killed at the first effect that it begins once it has done one.

    python -m tests.cluster.dying_operator --kubeconfig FILE --namespace NAME ...

One life of it does one effect, or as many as go on at once; so a row of such lives is killed between any two.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from penstock_operator.perform import Performer
from penstock_operator.process import main

_whole = Performer._one
_done: list[object] = []


async def _one_and_no_more(self: Performer, *args: Any) -> Any:
    if _done:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = await _whole(self, *args)
    _done.append(args)
    return answer


if __name__ == "__main__":
    Performer._one = _one_and_no_more  # type: ignore[method-assign]
    main()
