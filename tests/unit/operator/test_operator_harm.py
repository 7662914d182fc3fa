"""A fault of one key, or of one background task, harms no other and ends no process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from headgate.command_line.exit_codes import ExitCode
from headgate.engines.contract import LaneReport
from headgate.errors import Unavailable
from headgate.process.background_tasks import CALM_S, PAUSE_S_MIN
from headgate_operator.informers.event_ingest import EventIngest
from headgate_operator.informers.object_cache import ObjectCache
from headgate_operator.informers.work_queue import RETRY_S, Class, WorkQueue
from headgate_operator.model.names import Key
from headgate_operator.model.world import QueueLoad
from headgate_operator.observe.lane_health import Health
from headgate_operator.observe.world_builder import Observer, Sources
from headgate_operator.process import main as process
from headgate_operator.process.wiring import supervised
from headgate_operator.reconcile.reconciler import BUG_PAUSE_S, Reconciler
from tests.kit.loop_turns import turns_meanwhile
from tests.kit.operator_world import NOW_US, SETTINGS, resource_document
from tests.kit.simulated_world import World

ILL, WELL = Key("Queue", "shop", "ill"), Key("Queue", "shop", "well")


def run(work: Coroutine[Any, Any, None]) -> None:
    """In virtual time."""
    with World(1) as world:
        world.run(work)


class Observing:
    """One reconciler alone; of the key that is ill nothing can be observed at first."""

    def __init__(self, error: BaseException) -> None:
        self.queue = WorkQueue(rng=Random(1))
        self.error: BaseException | None = error
        self.observed: list[Key] = []

    async def resource(self, key: Key, *_: Any) -> Any:
        self.observed.append(key)
        if key == ILL and self.error is not None:
            raise self.error
        raise Unavailable

    async def play(self, scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
        reconciler = Reconciler(
            self.queue,
            cast(Any, self),
            cast(Any, None),
            cast(Any, None),
            cast(Any, None),
            now_us=lambda: NOW_US,
            forget=lambda _: None,
        )
        working = asyncio.get_running_loop().create_task(reconciler.run(reconcilers=1, reserved=0))
        try:
            await scenario()
            assert not working.done()
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


def test_an_error_while_a_failure_is_noted_ends_no_reconciler_and_loses_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observing = Observing(RuntimeError("a bug"))

    def not_noted(_key: Key) -> float:
        monkeypatch.undo()
        raise AttributeError("a handle without a time")

    async def scenario() -> None:
        monkeypatch.setattr(observing.queue, "retry", not_noted)
        observing.queue.add(ILL, Class.NEW)
        await asyncio.sleep(BUG_PAUSE_S / 2)
        observing.queue.add(WELL, Class.NEW)
        assert [ILL] == observing.observed
        await asyncio.sleep(BUG_PAUSE_S)
        assert {ILL, WELL} == set(observing.observed[1:])

    run(observing.play(scenario))


def test_a_wait_that_somebody_else_cancelled_ends_no_reconciler_and_is_tried_again() -> None:
    observing = Observing(asyncio.CancelledError())

    async def scenario() -> None:
        observing.queue.add(ILL, Class.NEW)
        await asyncio.sleep(0.1)
        assert 1 == observing.queue.failures(ILL)
        observing.queue.add(WELL, Class.NEW)
        await asyncio.sleep(RETRY_S * 1.3)
        assert {ILL, WELL} == set(observing.observed[1:])

    run(observing.play(scenario))


def test_what_continues_beside_is_restarted_after_pauses_that_double_until_it_goes_well() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began_s: list[float] = []

        async def work() -> None:
            began_s.append(loop.time())
            if len(began_s) == 4:
                await asyncio.sleep(CALM_S)
            raise ValueError

        going = loop.create_task(supervised({"a check": work})["a check"])
        await asyncio.sleep(CALM_S + 9 * PAUSE_S_MIN)
        going.cancel()
        with suppress(asyncio.CancelledError):
            await going
        pauses = [later - earlier for earlier, later in pairwise(began_s)]
        assert [PAUSE_S_MIN, 2 * PAUSE_S_MIN, 4 * PAUSE_S_MIN, CALM_S + PAUSE_S_MIN] == pytest.approx(pauses)

    run(scenario())


def test_what_continues_beside_outlives_a_wait_that_was_cancelled_and_ends_when_it_is_cancelled_itself() -> None:
    async def scenario() -> None:
        begun = 0

        async def work() -> None:
            nonlocal begun
            begun += 1
            if begun == 1:
                raise asyncio.CancelledError
            await asyncio.Event().wait()

        going = asyncio.get_running_loop().create_task(supervised({"a check": work})["a check"])
        await asyncio.sleep(10 * PAUSE_S_MIN)
        assert (2, False) == (begun, going.done())
        going.cancel()
        with suppress(asyncio.CancelledError):
            await going
        assert going.cancelled()

    run(scenario())


class Followed:
    """A queue that is followed, and waits."""

    has_nothing = False
    lanes = 1
    figures = QueueLoad(at_us=1, awake=True, counted=3)

    def __init__(self, key: Key) -> None:
        self.key = key
        self.inspector = self

    async def inspect(self) -> list[LaneReport]:
        if self.key == ILL:
            raise ValueError("a lane that cannot be read")
        return [LaneReport("1/0", 1, leased=True, unprocessed=False, suspicious=False, due_us=0)]


def test_a_check_that_fails_at_one_queue_is_taken_of_the_others() -> None:
    async def scenario() -> None:
        board = SimpleNamespace(all=lambda: (Followed(ILL), Followed(WELL)))
        health = Health(cast(Any, board), lambda *_: None)
        await health.turn()
        assert [False, True] == [getattr(health.of(key, 1), "leased", None) == 1 for key in (ILL, WELL)]

    run(scenario())


def documents(count: int) -> list[dict[str, Any]]:
    made = [resource_document("Queue", {"shards": 1}, name=f"q{number}") for number in range(count)]
    for number, document in enumerate(made):
        document["metadata"] |= {"uid": f"uid-{number}", "resourceVersion": "1"}
    return made


def test_an_object_that_cannot_be_taken_in_keeps_no_other_from_being_heard_of() -> None:
    async def scenario() -> None:
        objects = ObjectCache()
        intake = EventIngest(objects, WorkQueue(rng=Random(1)))
        first, ill, last = documents(3)
        ill["metadata"]["generation"] = "no number"
        for document in (first, ill, last):
            intake.changed(document, listed=True)
        assert ["q0", "q2"] == objects.names_in("Queue", "shop")

    run(scenario())


def test_while_a_namespace_s_resources_are_parsed_others_have_their_turn() -> None:
    count = 30

    async def scenario() -> None:
        objects = ObjectCache()
        for document in documents(count):
            objects.update(document)

        async def nothing(*_: Any) -> None: ...

        async def own(_: str) -> bool:
            return True

        sources = SimpleNamespace(
            cache=objects,
            store=SimpleNamespace(is_active=lambda *_: None),
            connections=SimpleNamespace(source=nothing, has_own=own, admits=lambda _: True),
            secrets=SimpleNamespace(known=lambda *_: SimpleNamespace(document=None)),
        )
        observer = Observer(cast(Sources, sources), SETTINGS, now_us=lambda: NOW_US)
        checked_value = cast(Any, SimpleNamespace(foreign={}, checked=set()))
        with turns_meanwhile() as turns:
            world = await observer.namespace(Key("Namespace", "shop", "shop"), checked_value, {})
        assert (True, True) == (world.wants_workers, turns.count >= count)

    run(scenario())


def test_what_ended_tasks_that_run_together_is_one_line_and_a_bug_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "log_to", lambda **_: None)

    def ended_by(error: Exception) -> Any:
        async def ends(_given: Any) -> None:
            async with asyncio.TaskGroup() as outer:
                outer.create_task(inner())

        async def inner() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(fails())

        async def fails() -> None:
            raise error

        monkeypatch.setattr(process, "run", ends)
        return CliRunner().invoke(process.main, [])

    report, bug = ended_by(Unavailable("The kopf framework has ended by itself")), ended_by(KeyError("a bug"))
    lines = report.output.strip().splitlines()
    assert (ExitCode.FAILED, ["The kopf framework has ended by itself"]) == (report.exit_code, lines)
    assert isinstance(bug.exception, ExceptionGroup)
