"""Figures in the status: how old they may be, how often they are written, and what reading them costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from headgate.engines.summary.decide_figures import Figures
from headgate.engines.summary.rows import figures_statement, slice_of
from headgate.store.catalogue.tables import SUMMARY
from headgate.store.model.statements import Select
from headgate.store.store import NotEnoughReplicas
from headgate_operator.model.kinds import QUEUE
from headgate_operator.model.names import Key
from headgate_operator.model.world import UNKNOWN
from headgate_operator.observe.queue_stats import KNOWN_S, SLICES, TOGETHER, TURN_S, FigureBoard, FollowedQueue
from tests.kit.simulated_store import SimulatedStore
from tests.kit.simulated_world import World
from tests.simulation.operator.operator_scene import Running, Scene, condition, queue_text, scene_of

T = TypeVar("T")
WRITE_EVERY_S = 5.0
ON_THE_WAY_S = 0.05
SHOWN_S = WRITE_EVERY_S + TURN_S
"""So old figures may be in a status, just before the next write."""


def play(scenario: Callable[[Scene], Coroutine[Any, Any, T]]) -> T:
    with World(1) as world:
        return world.run(scenario(scene_of(world)))


def are_ready(scene: Scene, names: list[str]) -> bool:
    return all(condition(scene.find(QUEUE, "shop", name)) == ("True", "Reconciled") for name in names)


async def owner(scene: Scene, began_s: float) -> None:
    """An owner of both lanes behind which one message more waits each second: the backlog dates its report."""
    process = scene.world.process("owner")
    store = SimulatedStore(scene.ring, process)
    entry = await scene.entry(Key("Queue", "shop", "emails"))
    assert entry is not None
    writer = process.uuid()
    while True:
        now_us = process.clock.wall_us()
        figures = Figures(backlog=round(scene.world.now_s() - began_s), lanes=2, rate=1.0)
        row = figures_statement(entry.id, writer, figures, at_us=now_us, stamp_us=now_us)
        await process.start(store.write(row))
        await asyncio.sleep(1)


def test_a_status_is_written_every_five_seconds_at_most_and_what_it_reports_is_hardly_older() -> None:
    async def scenario(scene: Scene) -> None:
        scene.start_operator()
        scene.apply(queue_text())
        await scene.until(lambda: are_ready(scene, ["emails"]))
        began_s = scene.world.now_s()
        written_s: list[float] = []
        reports: list[int] = []

        def note(written: Any) -> None:
            backlog = (written.document.get("status") or {}).get("backlog")
            if written.kind is QUEUE and backlog and backlog != (reports or [0])[-1]:
                written_s.append(scene.world.now_s())
                reports.append(backlog)

        scene.api.server.when_written(note)
        working = asyncio.get_running_loop().create_task(owner(scene, began_s))
        await asyncio.sleep(120)
        working.cancel()
        pauses = [later - earlier for earlier, later in pairwise(written_s)]
        ages = [until_s - began_s - each for until_s, each in zip(written_s[1:], reports, strict=False)]
        assert len(reports) > 15
        assert min(pauses) >= WRITE_EVERY_S - ON_THE_WAY_S
        assert max(ages) <= SHOWN_S + ON_THE_WAY_S + 1.0  # which is how often an owner reports

    play(scenario)


def test_reading_figures_costs_the_same_whatever_the_number_of_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    read = SimulatedStore.read
    slices: list[float] = []

    async def counted(self: SimulatedStore, statement: Select, **options: Any) -> Any:
        if statement.shape.table is SUMMARY:
            slices.append(1)
        return await read(self, statement, **options)

    monkeypatch.setattr(SimulatedStore, "read", counted)

    def reads_a_minute(count: int) -> int:
        async def scenario(scene: Scene) -> int:
            scene.start_operator()
            names = [f"q{number}" for number in range(count)]
            for name in names:
                scene.apply(queue_text(name, "{shards: 1, storage: {tables: shared}}"))
            await scene.until(lambda: are_ready(scene, names), 120)
            await asyncio.sleep(30)
            slices.clear()
            await asyncio.sleep(60)
            return len(slices)

        return play(scenario)

    turns = 60 / TURN_S
    assert reads_a_minute(2) <= (turns + 1) * 2
    assert turns * 10 < reads_a_minute(40) <= (turns + 1) * SLICES


def test_slices_are_asked_for_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    together = SimulatedStore.read_together
    sizes: list[int] = []

    async def counted(self: SimulatedStore, statements: Sequence[Select], **options: Any) -> Any:
        sizes.append(len(statements))
        return await together(self, statements, **options)

    monkeypatch.setattr(SimulatedStore, "read_together", counted)

    async def scenario(scene: Scene) -> None:
        await followed(scene, 40)
        sizes.clear()
        await asyncio.sleep(60)

    play(scenario)
    assert len(sizes) <= 60 / TURN_S * SLICES / TOGETHER + 1
    assert TOGETHER == max(sizes)


def test_a_slice_that_cannot_be_read_keeps_no_other_from_being_known(monkeypatch: pytest.MonkeyPatch) -> None:
    read = SimulatedStore.read
    lost: set[int] = set()

    async def without_one(self: SimulatedStore, statement: Select, **options: Any) -> Any:
        if statement.shape.table is SUMMARY and statement.values[0] in lost:
            raise NotEnoughReplicas(needed=2, alive=1)
        return await read(self, statement, **options)

    async def scenario(scene: Scene) -> set[int]:
        running = await followed(scene, 40)
        assert running.operator is not None
        board = running.operator.board
        lost.add(slice_of(next(iter(board.all())).entry.id))  # one that has a queue
        monkeypatch.setattr(SimulatedStore, "read", without_one)
        await asyncio.sleep(KNOWN_S + TURN_S)
        now_us = running.process.clock.wall_us()
        return {slice_of(each.entry.id) for each in board.all() if board.of(each.key, now_us) is UNKNOWN}

    result = play(scenario)
    assert lost == result


def test_figures_of_one_queue_that_cannot_be_judged_keep_no_other_from_being_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = FigureBoard._judge

    def fails_at_one(self: FigureBoard, followed: FollowedQueue, *values: Any, **options: Any) -> None:
        if followed.key.name == "q7":
            raise ValueError("a row that nobody wrote")
        judge(self, followed, *values, **options)

    async def scenario(scene: Scene) -> set[str]:
        running = await followed(scene, 40)
        assert running.operator is not None
        board = running.operator.board
        for each in board.all():
            each.has_nothing = False
        monkeypatch.setattr(FigureBoard, "_judge", fails_at_one)
        await asyncio.sleep(KNOWN_S + TURN_S)
        now_us = running.process.clock.wall_us()
        return {each.key.name for each in board.all() if board.of(each.key, now_us) is UNKNOWN}

    assert {"q7"} == play(scenario)


async def followed(scene: Scene, count: int) -> Running:
    """An operator that follows this number of queues, of all slices."""
    running = scene.start_operator()
    names = [f"q{number}" for number in range(count)]
    for name in names:
        scene.apply(queue_text(name, "{shards: 1, storage: {tables: shared}}"))
    await scene.until(lambda: are_ready(scene, names), 120)
    await asyncio.sleep(30)
    return running
