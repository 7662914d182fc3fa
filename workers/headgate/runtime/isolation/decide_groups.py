"""Which crash suspects run together in one child process, and which of them its death concerns.

A group runs at full concurrency, and each message is settled as soon as its handler ends. Where the process dies, the
messages that had begun and were not answered are halved, and each half runs as a group, without a charge. Only a
message that ended a process in which nothing else ran is charged. So one that kills among n messages costs at most
ceil(log2 n) + 1 processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

GROUP_MAX = 16
CHILDREN_MAX = 4
"""Processes for crash suspects, of which there are many after the death of a worker with a backlog."""


@dataclass(frozen=True)
class SuspectGroup(Generic[T]):
    members: tuple[T, ...]
    is_alone: bool = False
    """Whether it is one message that needs a process in which nothing ran before."""


@dataclass(frozen=True)
class AfterDeath(Generic[T]):
    charged: T | None
    groups: tuple[SuspectGroup[T], ...]
    """They run next, without a charge."""


def decide_after_death(begun: Sequence[T], waiting: Sequence[T], *, ran: int) -> AfterDeath[T]:
    """A process died with these unanswered, after `ran` messages had begun in it. The waiting ones had not begun, so
    they are not the cause and are not halved."""
    rest = (SuspectGroup(tuple(waiting)),) if waiting else ()
    if len(begun) == 1 and ran == 1:
        return AfterDeath(begun[0], rest)
    middle = (len(begun) + 1) // 2
    halves = (tuple(begun[:middle]), tuple(begun[middle:]))
    return AfterDeath(None, (*(SuspectGroup(half, is_alone=len(half) == 1) for half in halves if half), *rest))


class GroupQueue(Generic[T]):
    """Messages that wait for a process: groups of earlier deaths first, then the others in their order."""

    def __init__(self) -> None:
        self._groups: deque[SuspectGroup[T]] = deque()
        self._single: deque[T] = deque()

    def add(self, member: T) -> None:
        self._single.append(member)

    def put_back(self, groups: Iterable[SuspectGroup[T]]) -> None:
        self._groups.extend(groups)

    def take(self) -> SuspectGroup[T] | None:
        """The group that runs next; None where nothing waits."""
        if self._groups:
            return self._groups.popleft()
        members = tuple(self._single.popleft() for _ in range(min(GROUP_MAX, len(self._single))))
        return SuspectGroup(members) if members else None

    def take_all(self) -> list[T]:
        members = [member for group in self._groups for member in group.members] + list(self._single)
        self._groups.clear()
        self._single.clear()
        return members
