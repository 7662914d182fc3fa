"""`headgate counter`: add to a counter, and read its values."""

from __future__ import annotations

import base64
import heapq
import json
from datetime import datetime
from typing import Any, Final, NamedTuple

import click

from headgate.client.connection import Headgate
from headgate.client.counter import Counter, CounterState
from headgate.command_line.arguments import (
    Group,
    counter_argument,
    limit_option,
    namespace_option,
    since_option,
    until_option,
)
from headgate.command_line.connection import run_connected
from headgate.command_line.output import Output, format_table, output_option, output_option_of
from headgate.counters.types.contract import QuestionInvalid, plain
from headgate.errors import InvalidRequest

LIMIT_MAX: Final = 10_000
ORDERED_BY: Final = ("estimate", "number", "count", "total")
"""The field of a value by which keys are ordered, where it has more than one."""
HOWS: Final = {"or": "__or__", "and": "__and__", "not": "__sub__"}

parameter_option = click.option(
    "--param", "parameters", multiple=True, metavar="NAME=JSON", help="Parameter of the value, such as limit=20."
)


@click.group("counter", cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def counter_group() -> None:
    """Add to counters and read them."""


@counter_group.command("list")
@namespace_option
@output_option
def list_counters(namespace: str | None, output: Output) -> None:
    """List counters."""
    names = sorted(run_connected(lambda connection: connection.counters(namespace)))
    output.show([{"name": name} for name in names], table=lambda: names or ["no counters"], names=names)


@counter_group.command("add", context_settings={"ignore_unknown_options": True})
@counter_argument
@click.argument("key")
@click.argument("words", nargs=-1, metavar="[VALUE]...")
@click.option("--verb", help="Other action, such as remove.")
@click.option("--json-values", is_flag=True, help="Values as JSON, such as 5 or [1, 2].")
@click.option("--new-token", is_flag=True, help="Make an idempotency token, print it.")
@click.option("--token", help="Idempotency token of an earlier attempt.")
def add(counter: str, key: str, words: tuple[str, ...], **options: Any) -> None:
    """Add to a key.

    For example `headgate counter add shop/page-views home 3`. Without a value a sum grows by 1. With a token, the
    same update counts once, also if it is repeated.
    """
    if options["new_token"] and options["token"] is not None:
        raise InvalidRequest("--new-token and --token exclude each other", remedy="give one of them")

    async def work(connection: Headgate) -> None:
        opened = await connection.counter(counter)
        values = [_json(word) for word in words] if options["json_values"] else opened.kind.read_words(words)
        token = options["token"]
        if options["new_token"]:
            token = opened.token()
            click.echo(f"token {token}", err=True)
        await opened.update(options["verb"] or opened.kind.verbs[0], key, *values, token=token)

    run_connected(work)


@counter_group.command("get")
@counter_argument
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@since_option
@until_option
@parameter_option
@output_option
def get(
    *,
    counter: str,
    keys: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    parameters: tuple[str, ...],
    output: Output,
) -> None:
    """Print the value of keys.

    --since and --until select updates by time, for counters with windows.
    """
    question = _question(parameters)

    async def work(connection: Headgate) -> list[_Row]:
        opened = await connection.counter(counter)
        return [_Row(key, await opened.value(key, since=since, until=until, **question)) for key in keys]

    rows = run_connected(work)
    for row in rows:
        line = format_value(row.value) if len(rows) == 1 else f"{row.key}\t{format_value(row.value)}"
        output.show_item(row.document(), line=line, name=row.name)


@counter_group.command("top")
@counter_argument
@click.argument("key", required=False)
@limit_option(maximum=LIMIT_MAX)
@output_option
def top(counter: str, key: str | None, limit: int, output: Output) -> None:
    """Show the keys with the greatest values.

    All keys are read. For a counter of type topk and a KEY: the most frequent items of the key.
    """

    async def work(connection: Headgate) -> tuple[list[_Row], list[str]]:
        opened = await connection.counter(counter)
        if key is not None:
            return await _top_items(opened, key, limit)
        rows = await _top_keys(opened, limit)
        return rows, format_table(("key", "value"), [(row.key, format_value(row.value)) for row in rows])

    rows, lines = run_connected(work)
    output.show([row.document() for row in rows], table=lambda: lines, names=[row.name for row in rows])


class _Row(NamedTuple):
    key: str | None
    value: Any

    @property
    def name(self) -> str:
        return "" if self.key is None else self.key

    def document(self) -> dict[str, Any]:
        return {"key": self.key, "value": plain(self.value)}


async def _top_items(counter: Counter, key: str, limit: int) -> tuple[list[_Row], list[str]]:
    try:
        value = await counter.value(key, limit=limit)
    except QuestionInvalid:
        raise InvalidRequest(
            "Only keys of type topk have items", type=counter.kind.name, remedy="omit the key to compare keys"
        ) from None
    rows = [(each.item, each.count, each.low, each.high) for each in value.items]
    items = [_Row(str(item), {"count": count, "low": low, "high": high}) for item, count, low, high in rows]
    return items, format_table(("item", "count", "low", "high"), rows)


async def _top_keys(counter: Counter, limit: int) -> list[_Row]:
    """At most `limit` keys are in memory at a time."""
    best: list[tuple[Any, str, Any]] = []
    async for key, state in counter.scan():
        value = state.value()
        item = (_greatness(counter, value), key, value)
        if len(best) < limit:
            heapq.heappush(best, item)
        elif item[:2] > best[0][:2]:
            heapq.heapreplace(best, item)
    best.sort(key=lambda each: each[:2], reverse=True)
    return [_Row(key, value) for _, key, value in best]


def _greatness(counter: Counter, value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    if isinstance(value, list):
        return len(value)
    for name in ORDERED_BY:
        if getattr(value, name, None) is not None:
            return getattr(value, name)
    raise InvalidRequest("Values of this type have no order", type=counter.kind.name)


@counter_group.command("merge")
@counter_argument
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option(
    "--with", "others", nargs=2, multiple=True, metavar="COUNTER KEY", help="Also a key of another counter."
)
@click.option(
    "--how", type=click.Choice(list(HOWS)), default="or", show_default=True, help="Operation on the values."
)
@parameter_option
@output_option
def merge(
    *,
    counter: str,
    keys: tuple[str, ...],
    others: tuple[tuple[str, str], ...],
    how: str,
    parameters: tuple[str, ...],
    output: Output,
) -> None:
    """Print the value of several keys together.

    The keys are of one counter or of several of one type. Nothing is changed. `--how or` combines everything, for
    every type. For sets, `and` is what all have in common, and `not` is what only the first has.
    """
    places = [*((counter, key) for key in keys), *others]
    if not places:
        raise InvalidRequest("A merge needs keys", remedy="name keys, or give --with COUNTER KEY")
    question = _question(parameters)

    async def work(connection: Headgate) -> Any:
        merged: CounterState | None = None
        for name, key in places:
            state = await (await connection.counter(name)).state(key)
            merged = state if merged is None else getattr(merged, HOWS[how])(state)
        assert merged is not None  # noqa: S101  there is at least one place
        return merged.value(**question)

    value = run_connected(work)
    output.show(_Row(None, value).document(), table=lambda: [format_value(value)], names=[key for _, key in places])


@counter_group.command("export")
@counter_argument
@click.option("--states", is_flag=True, help="Also each state, as base64.")
@output_option_of("json")
def export(counter: str, *, states: bool, output: Output) -> None:
    """Print every key and its value.

    One JSON object per line. A value is as of the time at which its key is read.
    """

    async def work(connection: Headgate) -> None:
        opened = await connection.counter(counter)
        async for key, state in opened.scan():
            row = _Row(key, state.value())
            document = row.document()
            if states:
                document["state"] = base64.b64encode(state.dump()).decode()
            line = f"{key}\t{format_value(row.value)}"
            output.show_item(document, line=line, name=key)

    run_connected(work)


def _question(parameters: tuple[str, ...]) -> dict[str, Any]:
    question = {}
    for each in parameters:
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidRequest("--param is NAME=JSON", given=each)
        question[name] = _json(value)
    return question


def _json(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        raise InvalidRequest("The value is not JSON", given=word[:80], remedy='write a text as "text"') from None


def format_value(value: Any) -> str:
    """A value in a line: JSON where it is more than a number or a text."""
    simple = plain(value)
    if isinstance(simple, str | int | float) and not isinstance(simple, bool):
        return str(simple)
    return json.dumps(simple, ensure_ascii=False)
