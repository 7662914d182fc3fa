"""Text of the repository as blocks of lines: comments and strings of Python by its tokens, any other file whole.

A block keeps the line number of each of its lines, so that a finding has its place also where a sentence wraps.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

URL = re.compile(r"https?://[^\s)\"'>]+")
_PLACEHOLDER = re.compile(r"\$?\{[^{}\s]*\}")
_ESCAPED = re.compile(r"\\[ntr]")
_MARKER = re.compile(r"^[ \t]*(#+!?|//+|--|>|\{\{-?\s*/\*)(?=\s|$)", re.MULTILINE)
_PREFIX = re.compile(r"""^([A-Za-z]*)('''|\"\"\"|'|")""")


@dataclass(frozen=True)
class Block:
    """Lines that are read as one text; the spaces of `text` may stand for markup."""

    lines: tuple[tuple[int, str], ...]

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(line for _, line in self.lines)

    def line_at(self, offset: int) -> int:
        """The number of the line that holds this offset of `text`."""
        index = self.text.count("\n", 0, offset)
        return self.lines[index][0]


def read_blocks(path: Path) -> Iterator[Block]:
    """All blocks of a file."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from python_blocks(text)
    else:
        yield whole_block(text)


def whole_block(text: str) -> Block:
    """A file that is text from end to end; comment markers, addresses and template fields are blanked."""
    text = _MARKER.sub(lambda match: " " * len(match.group()), blank_fields(text))
    return Block(tuple(enumerate(text.splitlines(), 1)))


def python_blocks(source: str) -> Iterator[Block]:
    """Comments of consecutive lines, and strings that stand next to each other, as one block each."""
    lines: list[tuple[int, str]] = []
    kind = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT):
            continue
        is_next = bool(lines) and token.type == kind and token.start[0] <= lines[-1][0] + 1
        if lines and not is_next:
            yield Block(tuple(lines))
            lines = []
        kind = token.type
        if token.type == tokenize.COMMENT:
            lines.append((token.start[0], blank_fields(token.string.lstrip("#"))))
        elif token.type == tokenize.STRING:
            text = string_text(token.string)
            lines += [(token.start[0] + index, line) for index, line in enumerate(text.split("\n"))]
    if lines:
        yield Block(tuple(lines))


def string_text(literal: str) -> str:
    """The text of a literal, with its lines as they are in the source and its fields blanked."""
    match = _PREFIX.match(literal)
    if match is None:
        return ""
    prefix, quotes = match.group(1).lower(), match.group(2)
    text = literal[match.end() : -len(quotes)]
    if "r" not in prefix:
        text = _ESCAPED.sub("  ", text)
    return blank_fields(blank_expressions(text) if "f" in prefix else text)


def blank_expressions(text: str) -> str:
    """An f-string without its expressions; each of them leaves an `x`."""
    kept: list[str] = []
    depth = 0
    index = 0
    while index < len(text):
        sign = text[index]
        if depth == 0 and text[index : index + 2] in ("{{", "}}"):
            kept.append("  ")
            index += 2
            continue
        if sign == "{":
            kept.append("x" if depth == 0 else "")
            depth += 1
        elif sign == "}":
            depth = max(0, depth - 1)
        elif depth == 0 or sign == "\n":
            kept.append(sign)
        index += 1
    return "".join(kept)


def blank_fields(text: str) -> str:
    """A text without addresses and without the fields of a template."""
    return _PLACEHOLDER.sub("x", URL.sub("x", text))
