"""One value that changes while a process runs, shared by everything that reads it at use."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Live(Generic[T]):
    """Holds the value of now. Its owner sets it once; readers keep the cell, never a copy."""

    __slots__ = ("now",)

    def __init__(self, value: T) -> None:
        self.now = value

    def set(self, value: T) -> None:
        self.now = value
