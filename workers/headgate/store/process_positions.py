"""The positions of a real process: from a random number, and from another one in each forked child."""

from __future__ import annotations

import os
import secrets
from weakref import WeakSet

from headgate.store.model.positions import LOW_BITS, Positions

_created: WeakSet[Positions] = WeakSet()


def process_positions() -> Positions:
    """A source of positions that no other process shares."""
    positions = Positions(lambda: secrets.randbits(LOW_BITS))
    _created.add(positions)
    return positions


def _restart_all() -> None:
    for positions in tuple(_created):
        positions.restart()


os.register_at_fork(after_in_child=_restart_all)
