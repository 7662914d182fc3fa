"""The four forms in which a command prints its result: table, JSON, YAML and names.

A command gives one plain document (headgate.cli.documents), the lines of its table, and its names; this module alone
knows the forms. Results go to standard output, progress and errors to standard error. JSON is one document a line, so
that a stream of messages is JSON Lines; YAML of a stream is one list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Document = dict[str, Any] | list[dict[str, Any]]

TABLE: Final = "table"
FORMS: Final = (TABLE, "json", "yaml", "name")
WIDTH: Final = 118


@dataclass(frozen=True)
class Output:
    """One form, chosen by -o."""

    form: str = TABLE

    @property
    def is_table(self) -> bool:
        """Whether a person reads it."""
        return self.form == TABLE

    def show(self, document: Document, *, table: Callable[[], Iterable[str]], names: Iterable[str]) -> None:
        """Print a whole result."""
        self._echo(_yaml(document) if self.form == "yaml" else "", document, table, names)

    def show_item(self, document: dict[str, Any], *, table: Callable[[], Iterable[str]], name: str) -> None:
        """Print one result of a stream."""
        self._echo(_yaml([document]) if self.form == "yaml" else "", document, table, [name])

    def _echo(
        self, yaml_text: str, document: Document, table: Callable[[], Iterable[str]], names: Iterable[str]
    ) -> None:
        match self.form:
            case "json":
                click.echo(json.dumps(document, ensure_ascii=False))
            case "yaml":
                click.echo(yaml_text, nl=False)
            case "name":
                for name in names:
                    click.echo(name)
            case _:
                for line in table():
                    click.echo(line)


def _yaml(document: Document) -> str:
    import yaml

    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=WIDTH)
    return text


def output_option_of(default: str) -> Callable[[Decorated], Decorated]:
    """-o, with another default than a table."""

    def chosen(ctx: click.Context, param: click.Parameter, value: str) -> Output:
        return Output(value)

    return click.option(
        "-o",
        "--output",
        type=click.Choice(FORMS),
        default=default,
        show_default=True,
        callback=chosen,
        help="Output format.",
    )


output_option = output_option_of(TABLE)
"""-o, on every command that prints a result; an Output."""
