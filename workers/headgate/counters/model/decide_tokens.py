"""Updates with a token: until when they are taken, when their minute is folded, and into which shard. Pure.

    token's minute          close                                     E(m)
     |--------|--- window ---|                                          |
        accepted until close - 2 skew | folded from close + 2 skew

E(m) follows from the minute alone, and from nothing that a resource could change: two folders write the same shard
(attack B3). It is later than every close, so that a token acknowledged after a collector's read cannot belong to a
minute that this collector considered folded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.counters.model.decide_shards import mutator_id
from headgate.errors import InvalidRequest, OperationRefused
from headgate.expiry import SECOND_US

MINUTE_S = 60
MINUTE_US = MINUTE_S * SECOND_US
TOKEN_WINDOW_US_MAX = 86_400_000_000
"""The longest window that a resource can set (headgate.api.resources.counters)."""
NAME_CHARACTERS_MAX = 200
KEPT_US = 3_600_000_000
"""How long the rows of a folded minute stay: a reader that started before may still need them."""


class TokenInvalid(InvalidRequest):
    """This is no token of an update."""


class TokenTooOld(OperationRefused):
    """The token's window has passed: it is no longer known whether the update was counted."""


class TokenAhead(OperationRefused):
    """The token is from the future: the clock that made it is not within maxClockSkew of this one."""


@dataclass(frozen=True, slots=True)
class Token:
    """The permanent name of one update: the second of its first attempt, and the caller's name for it."""

    second: int
    name: str

    @classmethod
    def parse(cls, text: str) -> Token:
        second, dash, name = text.partition("-")
        if not dash or not second.isascii() or not second.isdigit() or len(second) != 10:
            raise TokenInvalid(given=text[:60], remedy="pass the token that was made for the first attempt")
        return cls(int(second), name).checked()

    def checked(self) -> Token:
        if not 0 < len(self.name) <= NAME_CHARACTERS_MAX or not 0 <= self.second < 10**10:
            raise TokenInvalid(
                "A token's name has 1 to 200 characters", given=self.name[:60], characters=len(self.name)
            )
        return self

    @property
    def minute(self) -> int:
        return self.second // MINUTE_S

    @property
    def time_us(self) -> int:
        """The time at which its update is dated, whatever process sends it."""
        return self.second * SECOND_US

    def __str__(self) -> str:
        return f"{self.second:010d}-{self.name}"


def close_us(minute: int, window_us: int) -> int:
    return (minute + 1) * MINUTE_US + window_us


def silent_after_us(minute: int, window_us: int, skew_us: int) -> int:
    """From this time on no update of that minute is acknowledged (attack B5)."""
    return close_us(minute, window_us) - 2 * skew_us


def check_token(token: Token, *, now_us: int, window_us: int, skew_us: int) -> None:
    if now_us >= silent_after_us(token.minute, window_us, skew_us):
        raise TokenTooOld(token=token, window_s=window_us / SECOND_US)
    if token.time_us > now_us + skew_us:
        raise TokenAhead(token=token)


def decide_last_foldable(now_us: int, window_us: int, skew_us: int) -> int:
    """The last minute of which nothing is acknowledged any more, by any acknowledging process's clock."""
    return (now_us - window_us - 2 * skew_us) // MINUTE_US - 1


def fold_end_us(minute: int) -> int:
    """E(m): the end of the mutator that folds a minute."""
    return (minute + 1) * MINUTE_US + TOKEN_WINDOW_US_MAX


def fold_id(minute: int) -> bytes:
    return mutator_id(fold_end_us(minute), 0)


def fold_stamp_us(minute: int) -> int:
    """The timestamp of its writes: below that of any batch that could collect them."""
    return fold_end_us(minute) - 1


def first_unfolded_end_us(tokened: int | None, folded_before: int | None) -> int | None:
    """E of the first minute that may hold acknowledged updates and is not folded; None if there is none.

    `tokened` comes from the deciding read: a later token belongs to a minute that closes after it. `folded_before`
    comes from a read that ended before that read started: only then are all shards up to it in it."""
    if tokened is None or (folded_before is not None and tokened <= folded_before):
        return None
    return fold_end_us(folded_before + 1 if folded_before is not None else 0)


def removable(folded_us: int | None, *, now_us: int, skew_us: int) -> bool:
    """Whether the rows of a folded minute can be deleted: no reader that started before the fold still reads."""
    return folded_us is not None and now_us >= folded_us + KEPT_US + skew_us


def latest(known: Iterable[int | None]) -> int | None:
    return max((each for each in known if each is not None), default=None)
