"""JSON of a long answer, parsed piece by piece: between two pieces other tasks of the event loop have a turn.

A list of a thousand objects is some megabytes. Parsed at once it would hold the loop for as long as ten decisions, in
a thread as well, since the parser never releases the interpreter. Of the answer it only knows that it is one object
with long arrays.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final

LONG: Final = 64 * 1024
"""Bytes; what is shorter is parsed at once."""
PIECE: Final = 32 * 1024
"""Letters between two turns."""

_decode: Final = json.JSONDecoder().raw_decode
_skip: Final = re.compile(r"[ \t\n\r]*").match


async def parse(body: bytes) -> Any:
    """The value of the JSON, as json.loads reads it. ValueError if it is none."""
    if len(body) <= LONG:
        return json.loads(body)
    text = body.decode()
    at = _next(text, 0)
    if not text.startswith("{", at):
        return json.loads(text)
    return await _read_object(text, at)


async def _read_object(text: str, at: int) -> dict[str, Any]:
    members: dict[str, Any] = {}
    at = _next(text, at + 1)
    if not text.startswith("}", at):
        while True:
            name, at = _decode(text, at)
            if not isinstance(name, str):
                raise ValueError("an object's key that is no string")
            at = _next(text, _after(text, at, ":"))
            if text.startswith("[", at):
                members[name], at = await _read_array(text, at)
            else:
                members[name], at = _decode(text, at)
            at = _next(text, at)
            if not text.startswith(",", at):
                break
            at = _next(text, at + 1)
    at = _next(text, _after(text, at, "}"))
    if at != len(text):
        raise ValueError("The answer has text after its end")
    return members


async def _read_array(text: str, at: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = rested_at = _next(text, at + 1)
    if text.startswith("]", at):
        return items, at + 1
    while True:
        item, at = _decode(text, at)
        items.append(item)
        at = _next(text, at)
        if not text.startswith(",", at):
            return items, _after(text, at, "]")
        at = _next(text, at + 1)
        if at - rested_at >= PIECE:
            rested_at = at
            await asyncio.sleep(0)


def _next(text: str, at: int) -> int:
    """Where the next letter stands that is no space."""
    space = _skip(text, at)
    return len(text) if space is None else space.end()


def _after(text: str, at: int, character: str) -> int:
    """Behind the letter that has to come next."""
    at = _next(text, at)
    if not text.startswith(character, at):
        raise ValueError(f"no {character} at {at}")
    return at + 1
