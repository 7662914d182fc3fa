"""The command `python -m dev.servers.cassandra`: fetch, start, stop and show a Cassandra for development.

    fetch     get all that a start needs into the cache (about a minute, once)
    start     start the node of the state directory, or find it running; prints its environment variables
    stop      end it; its data stay
    status    whether it runs, and its environment variables; exit code 3 when it does not

Prints `NAME=value` lines on standard output, all else on standard error, so that a shell can read them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

from dev.servers.cassandra.image import image_archive
from dev.servers.cassandra.learning import find_installation
from dev.servers.cassandra.settings import NodeSettings, Profile, memory_arguments
from dev.servers.debian import unpacked
from dev.servers.docker_engine import PACKAGES
from headgate.errors import HeadgateError, InvalidRequest
from headgate.local.cache import cache_root
from headgate.local.cassandra.own_cassandra import find_kept, start_kept, stop_kept
from headgate.local.progress import print_progress

NOT_RUNNING = 3


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit code."""
    asked = _parser().parse_args(arguments)
    try:
        with redirect_stdout(sys.stderr):
            exit_code = _run(asked)
    except HeadgateError as error:
        print_progress(f"headgate: {error}", to=sys.stderr)
        return 1
    if exit_code is not None:
        for name, value in exit_code.items():
            print_progress(f"{name}={shlex.quote(value)}")
    return NOT_RUNNING if asked.command == "status" and exit_code is None else 0


def _run(asked: argparse.Namespace) -> dict[str, str] | None:
    directory: Path = asked.state_dir
    match asked.command:
        case "fetch":
            print_progress(f"Cassandra's jars are in {find_installation().jars}")
            if asked.with_engine:
                unpacked(*PACKAGES)
                print_progress(f"a container image of them is {image_archive()}")
        case "start":
            jvm = tuple(memory_arguments(NodeSettings(profile=Profile(asked.profile))))
            overrides = _overrides(asked.set)
            return start_kept(directory, address=asked.address, native_port=asked.port, jvm=jvm, overrides=overrides)
        case "stop":
            print_progress("stopped" if stop_kept(directory) else "not running")
        case "status":
            server = find_kept(directory)
            print_progress(
                f"running; state: {directory}" if server is not None else f"not running; state: {directory}"
            )
            return server
    return None


def _overrides(pairs: Sequence[str]) -> dict[str, object]:
    """`name=value` as in cassandra.yaml; a value that reads as JSON is one, any other is text."""
    overrides: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InvalidRequest("invalid setting", remedy="write --set name=value", got=pair)
        try:
            overrides[name] = json.loads(value)
        except ValueError:
            overrides[name] = value
    return overrides


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m dev.servers.cassandra",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("fetch", "start", "stop", "status"))
    parser.add_argument("--state-dir", type=Path, default=cache_root() / "run" / "cassandra", help="data directory")
    parser.add_argument("--address", default="127.0.0.1", help="start: the address of this machine to listen on")
    parser.add_argument("--port", type=int, help="start: the CQL port. Default: a free port")
    parser.add_argument("--profile", choices=[str(profile) for profile in Profile], default=str(Profile.FUNCTIONAL))
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="start: a setting of cassandra.yaml"
    )
    parser.add_argument(
        "--with-engine", action="store_true", help="fetch: also a Docker engine and an image, for tests"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
