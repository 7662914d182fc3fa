"""How commands show things to people: payloads, tables. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

PAYLOAD_CHARACTERS = 200


def payload_line(payload: bytes, characters: int = PAYLOAD_CHARACTERS) -> str:
    """A payload in one line: as text where it is one, else as base64, cut where it is long."""
    try:
        text = payload.decode()
        text = text if text.isprintable() else repr(text)[1:-1]
    except UnicodeDecodeError:
        text = "base64:" + base64.b64encode(payload[: characters * 3 // 4]).decode()
    return text if len(text) <= characters else text[: characters - 1] + "…"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Columns below their heads; numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(head), *(len(row[at]) for row in cells), 0) for at, head in enumerate(heads)]
    right = [
        bool(cells) and all(row[at].lstrip("-").replace(".", "", 1).isdigit() or row[at] == "-" for row in cells)
        for at in range(len(heads))
    ]

    def line(row: Sequence[str]) -> str:
        made = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        )
        return "  ".join(made).rstrip()

    return [line(heads), *map(line, cells)]


def resource_name(kind: str, namespace: str, name: str) -> str:
    """A resource of either kind, for `-o name`: `queue/shop/emails`."""
    return f"{kind.lower()}/{namespace}/{name}"
