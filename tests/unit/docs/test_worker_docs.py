"""The worker's pages are complete: every option, every metric, and examples that are handlers."""

from __future__ import annotations

import asyncio
import inspect
import re
import types
from pathlib import Path

import click
import pytest

from headgate.cli.worker import worker
from headgate.runtime.handler.handlers import understand
from headgate.runtime.startup.worker_process import WorkerOptions, WorkerProcess
from headgate.telemetry.graphite import Graphite, GraphiteSettings
from tests.kit.worker_queue import FaultyQueue

DOCS = Path(__file__).parents[3] / "docs"
HOW_TO, REFERENCE = (DOCS / "workers.md").read_text(encoding="utf-8").split("\n## Reference: ")


def rows_after(mark: str) -> list[str]:
    """The first cells of the table behind a mark."""
    table = REFERENCE.partition(f"<!-- {mark}")[2].partition("\n\n")[0]
    return re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)


def test_every_option_is_in_the_reference() -> None:
    assert [each.opts[0] for each in worker.params if isinstance(each, click.Option)] == rows_after("options")


def test_every_metric_is_in_the_reference() -> None:
    async def output() -> list[str]:
        process = WorkerProcess(WorkerOptions("shop/emails"), None, lambda: asyncio.sleep(0, FaultyQueue()))
        process.register_readings(FaultyQueue())
        return [sample.name for sample in process.registry.samples()]

    names = asyncio.run(output())
    assert set(names) == set(rows_after("metrics"))


def test_graphite_counts_what_the_reference_states() -> None:
    process = WorkerProcess(WorkerOptions("shop/emails"), None, lambda: asyncio.sleep(0, FaultyQueue()))
    graphite = Graphite(GraphiteSettings("g"), process.registry)
    assert (0, 0) == (graphite.sent.value, graphite.dropped.value)
    names = {sample.name for sample in process.registry.samples() if "graphite" in sample.name}
    assert names == set(re.findall(r"headgate_graphite_\w+", REFERENCE))


BLOCKS = re.findall(r"^```python\n(.*?)^```", HOW_TO, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_examples_are_handlers(number: int) -> None:
    module = types.ModuleType(f"example_{number}")
    exec(compile(BLOCKS[number], f"workers.md block {number}", "exec"), module.__dict__)  # noqa: S102  our own page
    functions = [
        each for each in vars(module).values() if inspect.isfunction(each) and each.__module__ == module.__name__
    ]
    assert understand(functions[0], "page:example").name


def test_the_batch_of_the_page_answers_for_each() -> None:
    (block,) = [block for block in BLOCKS if "def index" in block]
    names: dict[str, object] = {}
    exec(block, names)  # noqa: S102  our own page
    index = names["index"]
    assert callable(index)
    good, bad = asyncio.run(index([{"url": "x"}, {}]))
    assert (None, "no url") == (good, str(bad))
