"""`headgate counter`: add to a counter, and look at what it holds."""

from __future__ import annotations

import base64
import heapq
import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TextIO

import click

from headgate.cli.queues import MOMENT, connection_options, on_connection
from headgate.cli.showing import table
from headgate.client.connection import Headgate
from headgate.client.counter import Counter, CounterState
from headgate.counters.types.contract import QuestionInvalid, plain
from headgate.errors import SpecError, Surroundings

ORDERED_BY = ("estimate", "number", "count", "total")
"""Which field of a value tells how great it is, where it has more than one."""
HOWS = {"or": "__or__", "and": "__and__", "not": "__sub__"}


@click.group("counter", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Add to counters, and look at what they hold. A counter is named NAMESPACE/NAME."""


@command.command("add", context_settings={"ignore_unknown_options": True})
@click.argument("counter")
@click.argument("key")
@click.argument("words", nargs=-1, metavar="[ARGUMENT]...")
@click.option("--verb", help="What to do instead of adding: `remove` from a set. A register is set.")
@click.option("--json", "as_json", is_flag=True, help='The arguments are JSON: 5, "text", {"a": 1}.')
@click.option("--once", is_flag=True, help="Make a token and print it, so that a repetition counts once.")
@click.option("--token", help="The token of an earlier attempt: if that was counted, this is not.")
@connection_options
def add(counter: str, key: str, words: tuple[str, ...], **options: Any) -> None:
    """Add to KEY: `add shop/page-views home 3`. Without an argument a sum grows by 1."""
    if options["once"] and options["token"] is not None:
        raise SpecError("--once makes a token, and one is given", remedy="give one of --once and --token")

    async def work(connection: Headgate) -> None:
        found = await connection.counter(counter)
        arguments = [_json(word) for word in words] if options["as_json"] else found.kind.read_words(words)
        token = options["token"]
        if options["once"]:
            token = found.token()
            click.echo(f"token {token}", err=True)
        await found.update(options["verb"] or found.kind.verbs[0], key, *arguments, token=token)

    on_connection(options, work)


@command.command("get")
@click.argument("counter")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--since", type=MOMENT, help="Only what was counted from then on; for counters with windows.")
@click.option("--until", type=MOMENT, help="Only what was counted before.")
@click.option(
    "--ask", multiple=True, metavar="NAME=JSON", help="What the type answers to: ranks=[0.5,0.99], limit=20."
)
@connection_options
def get(counter: str, keys: tuple[str, ...], **options: Any) -> None:
    """Print the value of each KEY: a line a key, JSON where it is more than a number or a text."""
    question = _question(options["ask"])

    async def work(connection: Headgate) -> None:
        found = await connection.counter(counter)
        for key in keys:
            value = await found.value(key, since=options["since"], until=options["until"], **question)
            click.echo(_shown(value) if len(keys) == 1 else f"{key}\t{_shown(value)}")

    on_connection(options, work)


@command.command("top")
@click.argument("counter")
@click.argument("key", required=False)
@click.option("--limit", default=10, show_default=True, type=click.IntRange(1, 10_000), help="At most so many.")
@connection_options
def top(counter: str, key: str | None, limit: int, **options: Any) -> None:
    """The keys with the greatest values, from a look at all of them; or, of type topk, the items that came most often
    under KEY."""

    async def work(connection: Headgate) -> None:
        found = await connection.counter(counter)
        for line in await (_top_items(found, key, limit) if key is not None else _top_keys(found, limit)):
            click.echo(line)

    on_connection(options, work)


async def _top_items(counter: Counter, key: str, limit: int) -> list[str]:
    try:
        value = await counter.value(key, limit=limit)
    except QuestionInvalid:
        raise SpecError(
            "only of type topk a key has items", type=counter.kind.name, remedy="leave the key out to compare keys"
        ) from None
    rows = [(each.item, each.count, each.low, each.high) for each in value.items]
    return table(("ITEM", "COUNT", "LOW", "HIGH"), rows)


async def _top_keys(counter: Counter, limit: int) -> list[str]:
    """No more than so many keys are kept at a time."""
    best: list[tuple[Any, str, Any]] = []
    async for key, state in counter.scan():
        value = state.value()
        item = (_greatness(counter, value), key, value)
        if len(best) < limit:
            heapq.heappush(best, item)
        elif item[:2] > best[0][:2]:
            heapq.heapreplace(best, item)
    best.sort(key=lambda each: each[:2], reverse=True)
    return table(("KEY", "VALUE"), [(key, _shown(value)) for _, key, value in best])


def _greatness(counter: Counter, value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    if isinstance(value, list):
        return len(value)
    for name in ORDERED_BY:
        if getattr(value, name, None) is not None:
            return getattr(value, name)
    raise SpecError("values of this type have no order", type=counter.kind.name)


@command.command("merge")
@click.argument("counter")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--with", "others", nargs=2, multiple=True, metavar="COUNTER KEY", help="And this key of another one.")
@click.option(
    "--how",
    type=click.Choice(list(HOWS)),
    default="or",
    show_default=True,
    help="or: all together, for every type. Of audiences also and: who is in each; not: who is in the first alone.",
)
@click.option("--ask", multiple=True, metavar="NAME=JSON", help="As of `get`.")
@connection_options
def merge(counter: str, keys: tuple[str, ...], others: tuple[tuple[str, str], ...], how: str, **options: Any) -> None:
    """Print the value of several keys together, of one counter or of several of one type. Nothing is changed."""
    places = [*((counter, key) for key in keys), *others]
    if not places:
        raise SpecError("there is nothing to merge", remedy="name keys, or --with COUNTER KEY")
    question = _question(options["ask"])

    async def work(connection: Headgate) -> None:
        found: CounterState | None = None
        for name, key in places:
            state = await (await connection.counter(name)).state(key)
            found = state if found is None else getattr(found, HOWS[how])(state)
        assert found is not None  # noqa: S101  there is at least one place
        click.echo(_shown(found.value(**question)))

    on_connection(options, work)


@command.command("export")
@click.argument("counter")
@click.option("--output", type=click.Path(path_type=Path), help="A file to write to. Unset: standard output.")
@click.option("--states", is_flag=True, help="With each state, as base64.")
@connection_options
def export(counter: str, output: Path | None, *, states: bool, **options: Any) -> None:
    """Print every key and its value, a JSON object a line. A key's value is of the moment in which it is read."""

    async def work(connection: Headgate) -> None:
        found = await connection.counter(counter)
        with _opened(output) as file:
            async for key, state in found.scan():
                line = {"key": key, "value": plain(state.value())}
                if states:
                    line["state"] = base64.b64encode(state.dump()).decode()
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    on_connection(options, work)


def _opened(output: Path | None) -> Any:
    if output is None:
        return nullcontext(sys.stdout)
    try:
        file: TextIO = output.open("w", encoding="utf-8")
    except OSError as error:
        raise Surroundings("the file can not be written", file=output, said=error.strerror) from None
    return file


def _question(asked: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for each in asked:
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier():
            raise SpecError("--ask is NAME=JSON", given=each)
        found[name] = _json(value)
    return found


def _json(word: str) -> Any:
    try:
        return json.loads(word)
    except ValueError:
        raise SpecError("this is no JSON", given=word[:80], remedy='a text is written "so"') from None


def _shown(value: Any) -> str:
    told = plain(value)
    if isinstance(told, str | int | float) and not isinstance(told, bool):
        return str(told)
    return json.dumps(told, ensure_ascii=False)
