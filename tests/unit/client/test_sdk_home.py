"""The home of a connection is known for sure, without asking the system."""

from __future__ import annotations

import asyncio
import os
import threading

from headgate.client.catalogue.opened import Home


async def begun() -> Home:
    """One of the loop that runs."""
    return Home(asyncio.get_running_loop())


def test_it_is_at_home_on_its_own_loop_and_nowhere_else() -> None:
    async def asked(home: Home) -> bool:
        return home.is_same_loop()

    loop = asyncio.new_event_loop()
    home = loop.run_until_complete(begun())
    assert loop.run_until_complete(asked(home))
    assert not home.is_same_loop(), "no loop runs"
    assert not asyncio.run(asked(home)), "another loop of the same thread"
    loop.close()


def test_another_thread_is_not_its_home_while_its_loop_runs() -> None:
    matches: list[bool] = []

    async def work() -> None:
        home = await begun()
        other = threading.Thread(target=lambda: matches.append(home.is_same_loop()))
        other.start()
        await asyncio.to_thread(other.join)
        matches.append(home.is_same_loop())

    asyncio.run(work())
    assert [False, True] == matches


def test_a_child_of_its_process_is_not_its_home_even_within_the_same_loop() -> None:
    async def work() -> int:
        home = await begun()
        child = os.fork()
        if child == 0:
            os._exit(home.is_same_loop())
        _, status = os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at once, and nothing else runs here
        assert home.is_same_loop()
        return os.waitstatus_to_exitcode(status)

    assert 0 == asyncio.run(work())
