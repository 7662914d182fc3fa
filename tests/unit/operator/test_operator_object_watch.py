"""Watches of our own: how often a server is asked that ends what it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Any, cast

from headgate_operator.cluster.port import ListPage, WatchEvent
from headgate_operator.informers.object_watch import PAUSE_S_MAX, SHORT_S, ObjectWatch
from headgate_operator.model.kinds import QUEUE
from tests.kit.simulated_world import World


class Ending:
    """A server whose watches end after this time, as they should."""

    def __init__(self, after_s: float) -> None:
        self.after_s = after_s
        self.lists = self.watches = 0

    async def list(self, *_: Any, **__: Any) -> ListPage:
        self.lists += 1
        return ListPage((), "1")

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[WatchEvent]:
        self.watches += 1
        await asyncio.sleep(self.after_s)
        for change in ():
            yield change


class Listener:
    def listed(self, *_: Any) -> None: ...

    def changed(self, _: Any) -> None: ...

    def deleted(self, _: Any) -> None: ...


def asked(server: Ending, for_s: float) -> Ending:
    """The server, after this time with a watch of ours."""

    async def work() -> None:
        watch = ObjectWatch(cast(Any, server), QUEUE, Listener(), rng=Random(1))
        following = asyncio.get_running_loop().create_task(watch.run())
        await asyncio.sleep(for_s)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following

    with World(1) as world:
        world.run(work())
    return server


def test_watches_that_are_ended_at_once_are_restarted_more_and_more_seldom() -> None:
    server = asked(Ending(0.01), 600)
    assert (1, True) == (server.lists, 10 <= server.watches <= 600 / PAUSE_S_MAX / 0.8 + 8)


def test_a_watch_that_has_lasted_is_restarted_at_once() -> None:
    assert 600 / SHORT_S <= asked(Ending(SHORT_S), 600).watches
