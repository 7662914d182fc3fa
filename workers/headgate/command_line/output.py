"""The four forms in which a command prints its result (table, JSON, YAML and names), and the cells of its tables.

A command gives one plain document (headgate.cli.documents), the lines of its table, and its names; this module alone
knows the forms. Results go to standard output, progress and errors to standard error. JSON is one document a line, so
that a stream of messages is JSON Lines; YAML of a stream is one list.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Document = dict[str, Any] | list[dict[str, Any]]

TABLE: Final = "table"
FORMS: Final = (TABLE, "json", "yaml", "name")
WIDTH: Final = 118
PAYLOAD_CHARACTERS: Final = 200


@dataclass(frozen=True)
class Output:
    """One form, chosen by -o."""

    form: str = TABLE

    @property
    def is_table(self) -> bool:
        return self.form == TABLE

    def show(self, document: Document, *, table: Callable[[], Iterable[str]], names: Iterable[str]) -> None:
        match self.form:
            case "json":
                click.echo(json.dumps(document, ensure_ascii=False))
            case "yaml":
                import yaml

                click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=WIDTH), nl=False)
            case "name":
                for name in names:
                    click.echo(name)
            case _:
                for line in table():
                    click.echo(line)

    def show_item(self, document: dict[str, Any], *, line: str | None, name: str) -> None:
        of_form = [document] if self.form == "yaml" else document
        self.show(of_form, table=lambda: [] if line is None else [line], names=[name])


def output_option_of(default: str) -> Callable[[Decorated], Decorated]:
    """-o, with another default than a table."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMS),
        default=default,
        show_default=True,
        callback=lambda _ctx, _param, form: Output(form),
        help="Output format.",
    )


output_option = output_option_of(TABLE)
"""-o, on every command that prints a result; an Output."""


# ---- what a person reads


def format_payload(payload: bytes, characters: int = PAYLOAD_CHARACTERS) -> str:
    """A payload in one line: as text where it is one, else as base64, cut where it is long."""
    try:
        text = payload.decode()
        text = text if text.isprintable() else repr(text)[1:-1]
    except UnicodeDecodeError:
        text = "base64:" + base64.b64encode(payload[: characters * 3 // 4]).decode()
    return text if len(text) <= characters else text[: characters - 1] + "…"


def format_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Columns below their heads; numbers to the right."""
    lines = [[*heads], *([str(cell) for cell in row] for row in rows)]
    columns = []
    for head, *cells in zip(*lines, strict=True):
        width = max(map(len, (head, *cells)))
        is_number = bool(cells) and all(
            each.lstrip("-").replace(".", "", 1).isdigit() or each == "-" for each in cells
        )
        columns.append([each.rjust(width) if is_number else each.ljust(width) for each in (head, *cells)])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def format_resource(kind: str, namespace: str, name: str) -> str:
    """A resource of either kind, for `-o name`: `queue/shop/emails`."""
    return f"{kind.lower()}/{namespace}/{name}"
