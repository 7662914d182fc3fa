"""Messages between processes: each takes its time, may be lost, delayed, or stopped by a cut.

It knows endpoints by name and data center, and messages by their kind, and nothing of their meaning. A message is
checked when it is sent and when it arrives: a cut in between loses it, as a broken connection would. Messages of a
process that died meanwhile still arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests.kit.simulated_world.history import History
from tests.kit.simulated_world.loop import LoopDelivery, SimulationLoop

if TYPE_CHECKING:
    from tests.kit.simulated_world.process import Process


@dataclass(frozen=True)
class Weather:
    """How long a message takes when nothing is wrong. One in a hundred is a straggler."""

    near_s: tuple[float, float] = (0.0002, 0.0010)
    far_s: tuple[float, float] = (0.020, 0.030)
    straggler_s: float = 0.010
    stragglers: float = 0.01


@dataclass
class MessageRule:
    """The fault for the next messages of a kind; `left` of them, then the rule is spent."""

    kind: str | None
    source: str | None
    target: str | None
    late_s: float | None
    left: int

    def meets(self, kind: str, source: str, target: str) -> bool:
        """Whether it is about such a message."""
        return (
            self.left > 0
            and self.kind in (None, kind)
            and self.source in (None, source)
            and self.target in (None, target)
        )


class Network:
    """Carries messages in virtual time. `Faults` are switched by name, and noted in the history."""

    def __init__(self, loop: SimulationLoop, history: History, rng: Random, weather: Weather) -> None:
        self._loop = loop
        self._history = history
        self._random = rng.random
        self.weather = weather
        self._cuts: set[tuple[str, str]] = set()
        self._slow: dict[str, float] = {}
        self._rules: list[MessageRule] = []
        self._on_change: list[Callable[[], None]] = []

    def send(self, kind: str, source: Process, target: Process, receive: Callable[..., object], *args: Any) -> None:
        """Have `receive(*args)` called in the target, after a while, unless the message is lost."""
        late_s = self._latency_s(source, target)
        if self._rules or self._cuts or self._slow:
            if (source.name, target.name) in self._cuts:
                return
            late_s += self._slow.get(source.name, 0.0) + self._slow.get(target.name, 0.0)
            for rule in self._rules:
                if rule.meets(kind, source.name, target.name):
                    rule.left -= 1
                    self._rules = [one for one in self._rules if one.left > 0]
                    self._history.note(
                        "network", "lost" if rule.late_s is None else "held", kind, _pair(source, target)
                    )
                    if rule.late_s is None:
                        return
                    late_s += rule.late_s
                    break
        if self._history.traced:
            self._history.note(source.name, "sends", kind, ("to", target.name))
        delivery = LoopDelivery(target.context, receive, args, (source.name, target.name), self._cuts)
        self._loop.post(self._loop._now_s + late_s, delivery)

    def _latency_s(self, source: Process, target: Process) -> float:
        weather = self.weather
        low, high = weather.near_s if source.data_centre == target.data_centre else weather.far_s
        drawn = self._random()
        late_s = low + (high - low) * drawn
        if drawn < weather.stragglers:
            late_s += weather.straggler_s * self._random()
        return late_s

    # ---- faults

    def cut(self, sources: str | Iterable[str], targets: str | Iterable[str], *, one_way: bool = False) -> None:
        """Stop all messages from each source to each target; unless `one_way`, those back as well."""
        for source in _names(sources):
            for target in _names(targets):
                self._cuts.add((source, target))
                if not one_way:
                    self._cuts.add((target, source))
        self._changed("cut", _names(sources), _names(targets), "one way" if one_way else "both ways")

    def heal(self, sources: str | Iterable[str] | None = None, targets: str | Iterable[str] | None = None) -> None:
        """Take back the cuts between these, both ways, or all of them."""
        if sources is None or targets is None:
            self._cuts.clear()
            self._changed("healed")
            return
        for source in _names(sources):
            for target in _names(targets):
                self._cuts.difference_update({(source, target), (target, source)})
        self._changed("healed", _names(sources), _names(targets))

    def slow(self, name: str, seconds: float) -> None:
        """Let each message to and from one endpoint take longer; 0 ends it."""
        self._slow.pop(name, None)
        if seconds:
            self._slow[name] = seconds
        self._changed("slow", name, ("by_s", seconds))

    def lose(
        self, kind: str | None = None, *, source: str | None = None, target: str | None = None, count: int = 1
    ) -> None:
        """Lose the next messages of a kind (any), from a source (any), to a target (any)."""
        self._rules.append(MessageRule(kind, source, target, None, count))

    def delay(
        self,
        kind: str | None = None,
        *,
        by_s: float,
        source: str | None = None,
        target: str | None = None,
        count: int = 1,
    ) -> None:
        """Let the next messages of a kind arrive late, long after their sender has given up on them."""
        self._rules.append(MessageRule(kind, source, target, by_s, count))

    def calm(self) -> None:
        """End all of it: no cut, nothing slow, no message to be lost or held. Messages under way stay late."""
        self._cuts.clear()
        self._slow.clear()
        self._rules.clear()
        self._changed("calm")

    def passes(self, source: str, target: str) -> bool:
        """Whether a message would get through now."""
        return (source, target) not in self._cuts

    def when_links_change(self, callback: Callable[[], None]) -> None:
        """Have a function called after each cut and each healing."""
        self._on_change.append(callback)

    def _changed(self, what: str, *details: Any) -> None:
        self._history.note("network", what, *details)
        for callback in self._on_change:
            callback()


def _names(given: str | Iterable[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _pair(source: Process, target: Process) -> str:
    return f"{source.name}->{target.name}"
