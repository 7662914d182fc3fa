"""The requests to the consumer of bench-spark's part `beside`. Values."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bench.contender import Job

OFFERED_PER_S = 1_000.0
AT_ONCE = 20


@dataclass(frozen=True)
class Turn:
    """The duration at the given rate; 0: take the rest, as fast as possible."""

    seconds: float
    leaves: bool = False
    """Whether its lanes are released afterwards."""

    def job(self) -> Job:
        """As JSON carries it."""
        return asdict(self)


def turn_of(job: Job) -> Turn:
    """The way back."""
    return Turn(job["seconds"], job["leaves"])
