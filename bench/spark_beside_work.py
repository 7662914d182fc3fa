"""What the consumer of bench-spark's part `beside` is asked for. Values."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bench.contender import Job

OFFERED_PER_S = 1_000.0
AT_ONCE = 20


@dataclass(frozen=True)
class Turn:
    """So long at the rate that is offered; 0: take what is left, as fast as it goes."""

    seconds: float
    leaves: bool = False
    """Whether its lanes are given back afterwards."""

    def job(self) -> Job:
        """As JSON carries it."""
        return asdict(self)


def turn_of(job: Job) -> Turn:
    """The way back."""
    return Turn(job["seconds"], job["leaves"])
