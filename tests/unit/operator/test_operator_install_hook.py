"""The chart's short programs: for how long they ask, and what they take for an answer."""

from __future__ import annotations

import pytest

from headgate_operator.cluster.port import Denial, Denied
from headgate_operator.install.hook import (
    REACH_WITHIN_S,
    RIGHTS_WITHIN_S,
    ApiServerUnavailable,
    request_until_answered,
)
from tests.kit.simulated_world import World


class Server:
    """Refuses for a while, then answers."""

    def __init__(self, world: World, denial: Denial, *, until_s: float) -> None:
        self._world = world
        self._denied = Denied(denial, 0, "", "not now")
        self._until_s = until_s
        self.asked = 0

    async def ask(self) -> str | Denied:
        self.asked += 1
        return self._denied if self._world.now_s() < self._until_s else "answered"


def test_rights_that_were_made_just_now_are_waited_for() -> None:
    with World() as world:
        server = Server(world, Denial.FORBIDDEN, until_s=RIGHTS_WITHIN_S - 2)
        assert "answered" == world.run(request_until_answered(server.ask))


def test_a_right_that_never_comes_is_reported_in_the_end() -> None:
    with World() as world:
        server = Server(world, Denial.FORBIDDEN, until_s=1e9)
        with pytest.raises(ApiServerUnavailable, match="check the rights of its account"):
            world.run(request_until_answered(server.ask))
        assert RIGHTS_WITHIN_S <= world.now_s() <= RIGHTS_WITHIN_S + 1


def test_a_server_that_is_unavailable_is_waited_for() -> None:
    with World() as world:
        server = Server(world, Denial.UNKNOWN, until_s=REACH_WITHIN_S - 2)
        assert "answered" == world.run(request_until_answered(server.ask))


@pytest.mark.parametrize("denial", [Denial.INVALID, Denial.MALFORMED, Denial.UNAUTHORIZED])
def test_what_will_be_refused_again_is_asked_once(denial: Denial) -> None:
    with World() as world:
        server = Server(world, denial, until_s=1e9)
        with pytest.raises(ApiServerUnavailable):
            world.run(request_until_answered(server.ask))
        assert 1 == server.asked


def test_that_nothing_is_there_is_an_answer() -> None:
    with World() as world:
        server = Server(world, Denial.NOT_FOUND, until_s=1e9)
        answer = world.run(request_until_answered(server.ask))
        assert isinstance(answer, Denied)
        assert Denial.NOT_FOUND is answer.denial
