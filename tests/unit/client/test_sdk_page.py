"""The page of the SDK names what there is, and the programs of the how-to are there to be run."""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import headgate
from headgate.client import (
    Counter,
    Headgate,
    Message,
    Queue,
    SyncCounter,
    SyncHeadgate,
    SyncMessage,
    SyncQueue,
)
from headgate.errors import HeadgateError
from tests.kit.public_surface import INTERNAL_MEMBERS as WITHIN

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "python.md").read_text(encoding="utf-8").partition("\n## Reference: every call\n")[2]


def names_on(page: str) -> set[str]:
    """The names in backquotes, up to the first parenthesis."""
    return {word for quoted in re.findall(r"`([^`]+)`", page) for word in re.findall(r"[A-Za-z_]+", quoted)}


@pytest.mark.parametrize(
    "kind", [Headgate, Queue, Counter, Message, SyncHeadgate, SyncQueue, SyncCounter, SyncMessage]
)
def test_the_page_names_every_method(kind: type) -> None:
    public = (
        {name for name in dir(kind) if not name.startswith("_")}
        - WITHIN
        - {"connection", "queue", "message", "counter"}
    )
    assert set() == public - names_on(PAGE)


def test_the_page_names_everything_that_headgate_exports() -> None:
    assert set() == set(headgate.__all__) - names_on(PAGE)


def test_whatever_is_exported_can_be_had() -> None:
    assert [] == [name for name in headgate.__all__ if getattr(headgate, name, None) is None]
    with pytest.raises(AttributeError, match="nothing_of_ours"):
        _ = headgate.nothing_of_ours


@pytest.mark.parametrize(
    ("asynchronous", "waiting"), [(Queue, SyncQueue), (Counter, SyncCounter), (Message, SyncMessage)]
)
def test_without_async_there_is_every_call_that_there_is_with_it(asynchronous: type, waiting: type) -> None:
    own = {name for name in vars(asynchronous) if not name.startswith("_")} - WITHIN
    assert set() == own - set(dir(waiting))


ERROR_ROWS = re.findall(r"^\| `(\w+)` \| `(\w+)` \|", PAGE.partition("## Errors")[2], re.MULTILINE)


def errors_of_the_sdk() -> dict[str, type[HeadgateError]]:
    """Every error of the tree that a module of the data plane defines, by its name."""
    for module in pkgutil.walk_packages(headgate.__path__, "headgate."):
        if module.name.split(".")[1] in ("client", "counters", "engines", "store"):
            import_module(module.name)

    def below(kind: type[HeadgateError]) -> Iterator[type[HeadgateError]]:
        yield kind
        for each in kind.__subclasses__():
            yield from below(each)

    return {each.__name__: each for each in below(HeadgateError) if each.__module__.startswith("headgate.")}


@pytest.mark.parametrize("page", ["python.md", "counters.md"])
def test_every_error_that_a_page_names_is_importable_from_headgate(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    errors = errors_of_the_sdk()
    named = names_on(re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)) & set(errors)
    assert len(named) > 3
    assert [] == sorted(name for name in named if getattr(headgate, name, None) is not errors[name])


def test_every_error_that_headgate_exports_has_a_row_under_the_class_it_has() -> None:
    errors = errors_of_the_sdk()
    exported = {name: errors[name] for name in headgate.__all__ if name in errors}
    tree = {"HeadgateError", *(each.__name__ for each in HeadgateError.__subclasses__())}
    expected = {
        (name, next(base.__name__ for base in each.__mro__[1:] if base.__name__ in tree))
        for name, each in exported.items()
        if name not in tree
    }
    assert expected == set(ERROR_ROWS)
