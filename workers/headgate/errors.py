"""The errors of Headgate, as one tree. The class tells whose fault it is and what to do next.

    HeadgateError
    ├── SpecError      the author of a resource, a call or an option: it will fail again until it is changed
    │   └── NotFound   the queue, counter or object that is named does not exist
    ├── Surroundings   the machine: a program missing, a port taken, no right, no room
    ├── Conflict       somebody else was first: look again, and try again now
    ├── Unavailable    a server is away or too slow: try again later
    ├── Refused        understood, and the answer is no: a stale receipt, a fence, a bound
    └── Bug            an invariant of ours is broken: stop

The text is static; the facts are fields, shown after it. An error is one line: what is wrong, where, what to do.
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


class SpecError(HeadgateError):
    """What was asked for is not valid; change it and try again."""


class NotFound(SpecError):
    """The object does not exist; check its name."""


class Surroundings(HeadgateError):
    """This machine lacks something that is needed here."""


class Conflict(HeadgateError):
    """Somebody else changed it first; look again and try again."""


class Unavailable(HeadgateError):
    """A server did not answer in time; try again later."""


class Refused(HeadgateError):
    """It was understood, and refused."""


class Bug(HeadgateError):
    """An invariant of Headgate is broken; please report it."""
