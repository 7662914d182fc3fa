"""`make dev`: a queue and its worker on this machine, from a checkout and an empty cache.

Needs Python, Java 17 and Maven. Standard library alone: it checks these, installs this tree by uv while Maven fetches
Cassandra's jars, and becomes `headgate dev` on the first example. Nothing of it needs Linux.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from dev.environment import ROOT, RUN, require_environment, require_python
from headgate.errors import EnvironmentProblem, HeadgateError
from headgate.local.cassandra.installation import find_java, jars, require_maven
from headgate.local.progress import print_progress
from headgate.store.connection_variables import connection_variables

EXAMPLE = "examples/dev/emails.yaml"
PAYLOAD = '{"to": "you@example.org"}'


def list_missing() -> list[EnvironmentProblem]:
    """What this machine lacks, all of it, in the order in which a person installs it."""
    checks: list[Callable[[], object]] = [require_python]
    if not has_own_cassandra():
        checks += [find_java, require_maven]
    missing = []
    for check in checks:
        try:
            check()
        except EnvironmentProblem as error:
            missing.append(error)
    return missing


def require_programs() -> None:
    """Refuse with the first of what is missing."""
    for each in list_missing():
        raise each


def has_own_cassandra() -> bool:
    """Whether the environment names a Cassandra, which is then used."""
    return "CONTACT_POINTS" in connection_variables(os.environ)


def prepare() -> None:
    """All that the first run fetches, side by side: packages by uv, and jars by Maven."""
    works: list[Callable[[], object]] = [lambda: require_environment(RUN)]
    if not has_own_cassandra():
        works.append(jars)
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()


def build_command(*, until_handled: bool) -> list[str]:
    """The command that `make dev` becomes. Pure."""
    ending = ["--until-handled"] if until_handled else []
    return [RUN.python, "-m", "headgate.cli.main", "dev", EXAMPLE, "--put", PAYLOAD, *ending]


def main(arguments: Sequence[str]) -> int:
    """Check, prepare, run; a mistake is one line."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.run_local")
    parser.add_argument("--until-handled", action="store_true", help="end when the first message is handled")
    asked = parser.parse_args(arguments)
    try:
        missing = list_missing()
        for each in missing:
            print_progress(f"headgate: {each}", to=sys.stderr)
        if missing:
            return 1
        prepare()
    except HeadgateError as error:
        print_progress(f"headgate: {error}", to=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    os.chdir(ROOT)
    command = build_command(until_handled=asked.until_handled)
    os.execv(command[0], command)  # noqa: S606 - so that Ctrl-C and the exit code are those of the stack
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
