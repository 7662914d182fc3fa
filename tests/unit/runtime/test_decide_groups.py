"""Groups of crash suspects: which messages run together, and which of them a death is charged to."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from headgate.runtime.isolation.decide_groups import GROUP_MAX, GroupQueue, SuspectGroup, decide_after_death


class Run:
    """Works off a queue of numbers, of which the killers end their process; the draws decide what ends before."""

    def __init__(self, numbers: range, killers: set[int], data: st.DataObject, *, used: bool = False) -> None:
        self.waiting: GroupQueue[int] = GroupQueue()
        self.killers = killers
        self.answered: list[int] = []
        self.charged: list[int] = []
        self.deaths = 0
        self._ran_before = int(used)
        self._data = data
        for number in numbers:
            self.waiting.add(number)
        while (group := self.waiting.take()) is not None:
            self._run(group)

    def _run(self, group: SuspectGroup[int]) -> None:
        ran = 0 if group.is_alone else self._ran_before
        assert 1 <= len(group.members) <= GROUP_MAX
        assert not set(group.members) & {*self.answered, *self.charged}, "a message runs again that was settled"
        killers = [number for number in group.members if number in self.killers]
        if not killers:
            self.answered += group.members
            self._ran_before = ran + len(group.members)
            return
        # A killer has begun, and any others; of the innocent ones that have, any are answered before the death.
        begun = [n for n in group.members if n == killers[0] or self._data.draw(st.booleans(), label=f"{n} begun")]
        ended = [n for n in begun if n not in killers and self._data.draw(st.booleans(), label=f"{n} ended")]
        self.answered += ended
        self.deaths += 1
        assert self.deaths <= 40 * len(self.killers), "it does not end"
        left = [number for number in begun if number not in ended]
        waiting = [number for number in group.members if number not in begun]
        after = decide_after_death(left, waiting, ran=ran + len(begun))
        self._ran_before = 0
        if after.charged is not None:
            self.charged.append(after.charged)
        assert sorted([*left, *waiting]) == sorted(
            [number for each in after.groups for number in each.members]
            + ([] if after.charged is None else [after.charged])
        )
        self.waiting.put_back(after.groups)


@given(st.data(), st.integers(1, GROUP_MAX))
def test_one_that_kills_is_charged_after_a_logarithm_of_deaths_and_nothing_else_is(
    data: st.DataObject, count: int
) -> None:
    killer = data.draw(st.integers(0, count - 1), label="killer")
    run = Run(range(count), {killer}, data)
    assert [killer] == run.charged
    assert run.deaths <= math.ceil(math.log2(count)) + 1
    assert sorted(run.answered) == [number for number in range(count) if number != killer]


@given(st.data(), st.integers(1, 4 * GROUP_MAX), st.booleans())
def test_all_that_kill_are_charged_once_and_all_others_are_answered_once(
    data: st.DataObject, count: int, used: bool
) -> None:
    killers = data.draw(st.sets(st.integers(0, count - 1), max_size=8), label="killers")
    run = Run(range(count), killers, data, used=used)
    assert sorted(killers) == sorted(run.charged)
    assert sorted(run.answered) == [number for number in range(count) if number not in killers]


def test_one_message_in_a_process_that_ran_another_is_not_charged_before_it_ran_alone() -> None:
    again = decide_after_death(["x"], [], ran=2)
    assert (None, (SuspectGroup(("x",), is_alone=True),)) == (again.charged, again.groups)
    assert "x" == decide_after_death(["x"], [], ran=1).charged


def test_halves_of_a_death_run_before_new_messages_and_those_that_had_not_begun_stay_together() -> None:
    waiting: GroupQueue[int] = GroupQueue()
    for number in range(9, 9 + GROUP_MAX + 1):
        waiting.add(number)
    waiting.put_back(decide_after_death([1, 2, 3], [4, 5, 6, 7], ran=3).groups)
    taken = [group.members for _ in range(5) if (group := waiting.take()) is not None]
    new = tuple(range(9, 9 + GROUP_MAX))
    assert [(1, 2), (3,), (4, 5, 6, 7), new, (9 + GROUP_MAX,)] == taken
    assert waiting.take() is None
