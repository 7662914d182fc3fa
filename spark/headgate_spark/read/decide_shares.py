"""The number of messages that a batch of a stream takes of each lane: equal shares, where lanes with less leave their
rest to others.

Pure: `read/stream_reader.py` passes in the backlog of the lanes, and calls again after a share was raised.
"""

from __future__ import annotations

from collections.abc import Sequence


def decide_equal_shares(bound: int, lanes: int) -> list[int]:
    """The same of each, rounded up."""
    return [-(-bound // lanes)] * lanes if lanes else []


def raised_shares(shares: Sequence[int], available: Sequence[int], bound: int) -> list[int] | None:
    """The amount beyond their share that lanes with a full share are asked for, since others have less; None where
    nothing is left to share, or nobody has more."""
    left = bound - sum(map(min, available, shares))
    whole = sum(map(int.__ge__, available, shares))
    if left <= 0 or not whole:
        return None
    more = -(-left // whole)
    return [share + more if has >= share else share for share, has in zip(shares, available, strict=True)]
