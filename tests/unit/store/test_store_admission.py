"""Requests in flight are bounded in number and in bytes, served in order, and never leaked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from headgate.store.cassandra.session import Admission, Handover


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_no_more_requests_than_there_is_room_for() -> None:
    gate = Admission(requests_max=2, bytes_max=100)
    assert [True, True, False] == [gate.try_enter(1) for _ in range(3)]


def test_no_more_bytes_than_there_is_room_for() -> None:
    gate = Admission(requests_max=10, bytes_max=100)
    assert [True, False, True] == [gate.try_enter(60), gate.try_enter(60), gate.try_enter(40)]


def test_what_is_larger_than_all_the_room_goes_alone() -> None:
    gate = Admission(requests_max=10, bytes_max=100)
    assert [True, False] == [gate.try_enter(500), gate.try_enter(1)]
    gate.leave(500)
    assert gate.try_enter(1)


def test_a_process_that_waits_goes_in_turn_and_a_small_one_does_not_overtake_a_large_one() -> None:
    async def scenario() -> None:
        gate, order = Admission(requests_max=10, bytes_max=100), []
        assert gate.try_enter(100)

        async def come(name: str, size: int) -> None:
            assert await gate.enter(size, 10)
            order.append(name)
            gate.leave(size)

        waiting = [asyncio.create_task(come("large", 90)), asyncio.create_task(come("small", 1))]
        await asyncio.sleep(0)
        assert not gate.try_enter(1)
        gate.leave(100)
        await asyncio.gather(*waiting)
        assert ["large", "small"] == order
        assert (0, 0) == (gate.requests, gate.bytes)

    _run(scenario())


def test_a_process_that_gives_up_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        gate = Admission(requests_max=1)
        assert gate.try_enter(1)
        assert not await gate.enter(1, 0.001)
        gone = asyncio.create_task(gate.enter(1, 10))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait([gone])
        gate.leave(1)
        assert gate.try_enter(1)
        assert 1 == gate.requests

    _run(scenario())


def test_a_process_that_is_cancelled_in_the_time_of_being_let_in_gives_the_place_back() -> None:
    async def scenario() -> None:
        gate = Admission(requests_max=1)
        assert gate.try_enter(1)
        gone = asyncio.create_task(gate.enter(1, 10))
        await asyncio.sleep(0)
        gate.leave(1)
        gone.cancel()
        await asyncio.wait([gone])
        assert 0 == gate.requests

    _run(scenario())


def test_many_answers_of_another_thread_need_one_wake_up() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        handover, wakes = Handover(loop), []
        real = loop.call_soon_threadsafe
        loop.call_soon_threadsafe = lambda *args, **options: wakes.append(1) or real(*args, **options)  # type: ignore[func-returns-value,method-assign]
        futures = [loop.create_future() for _ in range(100)]

        def answer() -> None:
            for number, future in enumerate(futures):
                handover.answer(future, number, ValueError() if number == 7 else None)

        thread = threading.Thread(target=answer)
        thread.start()
        thread.join()
        result = await asyncio.gather(*futures, return_exceptions=True)
        assert [0, 1, 2, 3, 4, 5, 6] == result[:7]
        assert isinstance(result[7], ValueError)
        assert list(range(8, 100)) == result[8:]
        assert 1 == len(wakes)

    _run(scenario())


def test_an_answer_to_one_that_left_is_dropped() -> None:
    async def scenario() -> None:
        handover = Handover(asyncio.get_running_loop())
        gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        local: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        gone.cancel()
        handover.answer(gone, 1)
        handover.answer(local, 2)
        assert 2 == await local

    _run(scenario())


def test_an_answer_after_the_loop_has_ended_harms_nobody() -> None:
    loop = asyncio.new_event_loop()
    handover, future = Handover(loop), loop.create_future()
    loop.close()
    handover.answer(future, 1)
