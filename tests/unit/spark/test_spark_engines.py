"""Spark finds its part of an engine by the name in the queue's entry, and refuses a queue that it cannot read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.engines.registry import ENGINE_MODULES
from headgate.store.catalogue.entry import Name
from headgate_spark.engines.registry import EngineNotRead, spark_engine
from headgate_spark.engines.timeline.entry import ENGINE


def queue(engine: str) -> Any:
    """A queue of that engine, as the SDK opened it."""
    entry = SimpleNamespace(name=Name("Queue", "shop", "emails"), spec={"engine": engine})
    return SimpleNamespace(name="shop/emails", entry=entry)


def test_an_engine_is_found_by_its_name() -> None:
    assert ENGINE is spark_engine(queue("timeline"))


def test_an_engine_that_spark_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINE_MODULES, "extent", "tests.kit.example_engine")
    with pytest.raises(EngineNotRead, match=r"queue=shop/emails, engine=extent, read=timeline\)"):
        spark_engine(queue("extent"))


@pytest.mark.parametrize("name", ["contract", "registry", "counter", "None", "timeline.entry"])
def test_another_module_beside_the_engines_is_no_engine(name: str) -> None:
    with pytest.raises(EngineNotRead):
        spark_engine(queue(name))
