"""How many messages a batch of a stream takes of each lane: equal shares, and what lanes with less leave to others.

Pure: what waits in the lanes is told by `stream_reader.py`, which asks again where a share was raised.
"""

from __future__ import annotations

from collections.abc import Sequence


def shares_of_equal(bound: int, lanes: int) -> list[int]:
    """The same of each, rounded up."""
    return [-(-bound // lanes)] * lanes if lanes else []


def raised_shares(shares: Sequence[int], found: Sequence[int], bound: int) -> list[int] | None:
    """What lanes whose share was found whole are asked for beyond it, since others have less; None where nothing is
    left to share, or nobody has more."""
    left = bound - sum(map(min, found, shares))
    whole = sum(map(int.__ge__, found, shares))
    if left <= 0 or not whole:
        return None
    more = -(-left // whole)
    return [share + more if has >= share else share for share, has in zip(shares, found, strict=True)]
