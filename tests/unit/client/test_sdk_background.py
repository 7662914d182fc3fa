"""A loop in the background: work from any thread, and no wait without end."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading

import pytest

from headgate.client.catalogue.opened import WrongProcess
from headgate.client.sync.background import BackgroundLoop, WouldDeadlock
from headgate.errors import Bug


async def double(number: int) -> int:
    """Some work."""
    await asyncio.sleep(0)
    return 2 * number


def test_any_thread_gets_its_own_result() -> None:
    background = BackgroundLoop("test")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert [2 * n for n in range(50)] == list(pool.map(lambda n: background.run(double(n)), range(50)))
    background.stop()


def test_what_the_work_raises_is_raised_to_one_that_asked_for_it() -> None:
    background = BackgroundLoop("test")

    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        background.run(fail())
    background.stop()


def test_work_that_would_wait_for_itself_is_refused() -> None:
    background = BackgroundLoop("test")

    async def within() -> int:
        return background.run(double(1))

    with pytest.raises(WouldDeadlock):
        background.run(within())
    background.stop()


def test_at_its_end_tasks_get_their_turn_and_its_thread_is_gone() -> None:
    background = BackgroundLoop("test")
    ended = threading.Event()

    async def begin() -> None:
        async def forever() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        background.kept = asyncio.get_running_loop().create_task(forever())  # type: ignore[attr-defined]  # so it lives
        await asyncio.sleep(0)

    background.run(begin())
    background.stop()
    assert ended.is_set()
    assert "test" not in {thread.name for thread in threading.enumerate()}
    with pytest.raises(Bug, match="ended"):
        background.run(double(1))
    background.stop()


def test_a_child_of_a_fork_is_refused_instead_of_waiting_for_ever() -> None:
    background = BackgroundLoop("test")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            background.run(double(1))
        except WrongProcess as refused:
            os.write(write, str(refused).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as report:
        assert report.read().startswith("A connection does not survive a fork")
    os.waitpid(child, 0)
    assert 4 == background.run(double(2))
    background.stop()
