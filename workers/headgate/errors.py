"""The errors of Headgate, as one tree. The class states whose fault it is and what to do next.

    HeadgateError
    ├── InvalidRequest      the author of a resource, a call or an option: it fails again until it is changed
    │   └── NotFound        the queue, counter or object does not exist
    ├── EnvironmentProblem  the machine: a missing program, a taken port, a missing permission, a full disk
    ├── Conflict            another process was first: read again, and retry now
    ├── Unavailable         a server is unavailable or too slow: retry later
    ├── OperationRefused    understood and rejected: a stale receipt, a fence, a limit
    └── Bug                 an invariant of ours is broken: stop

The text is static. The facts are fields, shown after it. An error is one line: the fault, the place, the remedy.
"""

from __future__ import annotations


class HeadgateError(Exception):
    """Something went wrong."""

    def __init__(self, message: str | None = None, /, *, remedy: str | None = None, **facts: object) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0].rstrip(".")
        self.remedy = remedy
        self.facts = facts
        super().__init__(self.message)

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self.facts.items())
        line = f"{self.message} ({shown})" if shown else self.message
        return f"{line}; {self.remedy}" if self.remedy else line


class InvalidRequest(HeadgateError):
    """The request is not valid; change it and try again."""


class NotFound(InvalidRequest):
    """The object does not exist; check its name."""


class EnvironmentProblem(HeadgateError):
    """This machine lacks a requirement."""


class Conflict(HeadgateError):
    """Another process changed it first; read it again and retry."""


class Unavailable(HeadgateError):
    """A server did not answer in time; try again later."""


class OperationRefused(HeadgateError):
    """It was understood, and refused."""


class Bug(HeadgateError):
    """An invariant of Headgate is broken; please report it."""
