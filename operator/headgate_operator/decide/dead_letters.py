"""Whether the dead-letter queues that a queue names exist, and none leads back to it.

Pure. While its siblings are unknown, the previous condition stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from headgate.api.resources.queues import QueueResource
from headgate.api.resources.reasons import Reason
from headgate_operator.model.plan import ConditionUpdate, PartialPlan, format_names
from headgate_operator.model.world import DecisionMemory, Nothing, ResourceWorld, Sibling

TYPE: Final = "DeadLetterResolved"


def named_by(queue: QueueResource) -> tuple[str, ...]:
    """The queues that it names for its dead letters, each once."""
    spec = queue.spec
    named = (spec.dead_letter, *(consumer.dead_letter for consumer in spec.consumers or ()))
    return tuple(dict.fromkeys(name for name in named if name))


def decide_dead_letters(world: ResourceWorld, memory: DecisionMemory) -> PartialPlan:
    if world.queue is None:
        return PartialPlan(memory)
    named = named_by(world.queue)
    if not named:
        return PartialPlan(memory, findings=(ConditionUpdate(TYPE, "True", Reason.NO_DEAD_LETTER),))
    if isinstance(world.siblings, Nothing):
        return PartialPlan(memory)
    return PartialPlan(memory, findings=(_finding(world.queue.metadata.name, named, world.siblings),))


def _finding(name: str, named: tuple[str, ...], siblings: Mapping[str, Sibling]) -> ConditionUpdate:
    for each in named:
        way = _way_back(name, each, siblings)
        if way:
            message = f"{' -> '.join((name, *way))}: failed messages would return to this queue; break the cycle"
            return ConditionUpdate(TYPE, "False", Reason.DEAD_LETTER_CYCLE, message)
    missing = [each for each in named if each not in siblings or siblings[each].deleting]
    if missing:
        message = f"there is no queue {format_names(missing)}; until it exists, failed messages stay in this queue"
        return ConditionUpdate(TYPE, "False", Reason.DEAD_LETTER_MISSING, message)
    return ConditionUpdate(TYPE, "True", Reason.DEAD_LETTER_RESOLVED, f"{format_names(named)} is there")


def _way_back(name: str, start: str, siblings: Mapping[str, Sibling]) -> tuple[str, ...]:
    """The queues from one to the one that began, if there is a way; each is visited once."""
    visited = {start}
    ways: deque[tuple[str, ...]] = deque([(start,)])
    while ways:
        way = ways.popleft()
        if way[-1] == name:
            return way
        for following in siblings[way[-1]].dead_letters if way[-1] in siblings else ():
            if following not in visited:
                visited.add(following)
                ways.append((*way, following))
    return ()
