"""How a command of `headgate` ends: its exit code is for scripts, its one line on standard error is for people."""

from __future__ import annotations

from enum import IntEnum

from headgate.errors import HeadgateError, InvalidRequest, NotFound


class ExitCode(IntEnum):
    """The exit codes of all commands, with their meaning for docs/commands.md."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> ExitCode:
        code = int.__new__(cls, value)
        code._value_ = value
        code.meaning = meaning
        return code

    DONE = 0, "The command did what you asked."
    FAILED = 1, "It could not be done now: a server is unavailable, or it was too late. Try again later."
    INVALID = 2, "The request is invalid: an option, a file or a value. Change it before you try again."
    NOT_FOUND = 3, "The queue, counter, message or object does not exist."
    PARTLY_DONE = 4, "Some of it was done. The output shows what was not."
    INTERRUPTED = 130, "Ctrl-C or SIGTERM ended the command."


def exit_code_of(error: HeadgateError) -> ExitCode:
    if isinstance(error, NotFound):
        return ExitCode.NOT_FOUND
    return ExitCode.INVALID if isinstance(error, InvalidRequest) else ExitCode.FAILED


def exit_code_for(done: int, failed: int, *, if_none: ExitCode = ExitCode.FAILED) -> ExitCode:
    """The exit code of a command on several things: `if_none` where all of them failed."""
    if not failed:
        return ExitCode.DONE
    return ExitCode.PARTLY_DONE if done else if_none
