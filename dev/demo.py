"""`make demo` and `make down`: a Kubernetes, a Cassandra, and the examples on both; then exactly that ended again.

Standard library alone until the virtual environment is there, which is one of the first things it makes. What was
started, and what was there before, stands in a file, so that `down` ends the one and leaves the other.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from dev import environment
from dev.cluster import lifecycle
from dev.cluster.choice import Choice, decide_source
from dev.cluster.kubectl import Kubectl
from dev.cluster.state import DEFAULT_NAME, Cluster, read_cluster
from dev.cluster.surroundings import look_around
from penstock.errors import PenstockError, Surroundings
from penstock.testing.cache import cache_root
from penstock.testing.cassandra.archive import find_installation
from penstock.testing.cassandra.connection import read_connection
from penstock.testing.cassandra.kept import start_kept, stop_kept
from penstock.testing.progress import duration, say, step

ROOT = Path(__file__).resolve().parent.parent
CRDS = ROOT / "crds"
EXAMPLES = ROOT / "examples"
VENV = ROOT / ".venv"
MESSAGE_WITHIN_S = 60


@dataclass(frozen=True)
class Begun:
    """What this demo started, and so what `down` ends."""

    cluster_started: bool
    cassandra_started: bool
    crds_made: bool

    @staticmethod
    def file() -> Path:
        """Where it is kept."""
        return cache_root() / "run" / "demo.json"

    def keep(self) -> None:
        """For the command that ends it."""
        self.file().parent.mkdir(parents=True, exist_ok=True)
        self.file().write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls) -> Begun | None:
        """What an earlier `up` has kept."""
        return cls(**json.loads(cls.file().read_text())) if cls.file().exists() else None


def cassandra_directory() -> Path:
    """The demo's own node, data and all; gone with `down`."""
    return cache_root() / "run" / "demo-cassandra"


def up(context: str | None) -> None:
    """All of it, telling what it does."""
    started = time.monotonic()
    before = Begun.read()
    choice = decide_source(look_around(context, None))
    tell_plan(choice)
    had_cluster = read_cluster(DEFAULT_NAME) is not None and not (before and before.cluster_started)
    Begun(not had_cluster, False, False).keep()
    side_by_side(
        (make_environment, "the virtual environment"),
        (fetch_cassandra, "Cassandra"),
        (lambda: build_cluster(context), "Kubernetes"),
    )
    cluster = lifecycle.up(DEFAULT_NAME, context=context)
    kubectl = lifecycle.client(cluster)
    connection, our_cassandra = start_cassandra(cluster)
    had_crds = bool(kubectl.run("get", "crd", "-o", "name", "--ignore-not-found", "queues.penstock.io").strip())
    crds_made = not had_crds or bool(before and before.crds_made)
    Begun(not had_cluster, our_cassandra, crds_made).keep()
    apply_resources(kubectl)
    apply_catalogue(connection)
    put_a_message(connection)
    tell_ending(cluster, kubectl, connection, time.monotonic() - started)


def down() -> None:
    """End what `up` started, in the opposite order; what was there before stays."""
    begun = Begun.read()
    if begun is None:
        say("nothing to end: no demo was started here")
        return
    cluster = read_cluster(DEFAULT_NAME)
    if cluster is not None and not begun.cluster_started:
        remove_resources(lifecycle.client(cluster), crds=begun.crds_made)
    if stop_kept(cassandra_directory()):
        say("Cassandra: ended")
    shutil.rmtree(cassandra_directory(), ignore_errors=True)
    if begun.cluster_started:
        lifecycle.down(DEFAULT_NAME)
    Begun.file().unlink()


def tell_plan(choice: Choice) -> None:
    """What will happen, before it does."""
    say(f"penstock demo: a Kubernetes ({lifecycle.told_choice(choice)}), a Cassandra, and the examples on both.")
    say("It takes under a minute once everything is cached; the first time it builds Kubernetes from source,")
    say("which takes about ten minutes on two cores. In a hurry: make demo CONTEXT=a-cluster-you-have.")


def side_by_side(*works: tuple[Callable[[], None], str]) -> None:
    """Run what does not wait for each other; all end before the first failure is told."""
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work, _ in works]
    for future in futures:
        future.result()


def make_environment() -> None:
    """The virtual environment, unless it is there and as the lock file has it."""
    ready, lock = VENV / "ready", ROOT / "requirements-dev.lock"
    if ready.exists() and ready.stat().st_mtime >= lock.stat().st_mtime:
        return
    if environment.main([]) != 0:
        raise Surroundings("the virtual environment could not be made", remedy="see the line above", path=".venv")


def fetch_cassandra() -> None:
    """Its jars, and the archive that lets it start in seconds."""
    if "CONTACT_POINTS" not in os.environ:
        find_installation()


def build_cluster(context: str | None) -> None:
    """What the cluster needs, built if it is not cached; nothing where it is somebody else's."""
    if context is None:
        lifecycle.build()


def start_cassandra(cluster: Cluster) -> tuple[dict[str, str], bool]:
    """The connection, and whether it is a node of ours. CONTACT_POINTS names one that is there already."""
    if "CONTACT_POINTS" in os.environ:
        named = dict(os.environ)
        say(f"  using the Cassandra at {named['CONTACT_POINTS']} (CONTACT_POINTS is set)")
        return {**read_connection(named).environment()}, False
    address = cluster.host_address or "127.0.0.1"
    with step(f"start Cassandra at {address}, which this machine and pods both reach", expect_s=10):
        return start_kept(cassandra_directory(), address=address).environment(), True


def apply_resources(kubectl: Kubectl) -> None:
    """The kinds, and then the examples."""
    with step("teach the cluster what a Queue and a Counter are"):
        kubectl.run("apply", "--server-side", "-f", str(CRDS))
        kubectl.run("wait", "--for=condition=Established", "--timeout=60s", "-f", str(CRDS))
    with step("apply examples/"):
        for line in kubectl.run("apply", "-f", str(EXAMPLES)).splitlines():
            say(f"      {line}")


def apply_catalogue(connection: dict[str, str]) -> None:
    """Keyspace, tables and catalogue entries of the examples, by `penstock apply`."""
    files = sorted(map(str, EXAMPLES.glob("*.yaml")))
    with step("write keyspace, tables and catalogue: penstock apply examples/*.yaml"):
        done = subprocess.run(
            [str(VENV / "bin" / "penstock"), "apply", *files],
            env={**os.environ, **connection},
            capture_output=True,
            text=True,
            check=False,
        )
        for line in done.stdout.splitlines():
            say(f"      {line}")
        if done.returncode != 0:
            told = done.stderr.strip().splitlines() or ["it said nothing"]
            raise Surroundings("penstock apply was refused", remedy="see what it says", said=told[-1])


def put_a_message(connection: dict[str, str]) -> None:
    """The first program of whoever tries it, run once before his eyes."""
    program = EXAMPLES / "python" / "hello.py"
    with step(f"put a message into shop/emails and receive it: {program.relative_to(ROOT)}"):
        done = subprocess.run(
            [str(VENV / "bin" / "python"), str(program)],
            env={**os.environ, **connection},
            capture_output=True,
            text=True,
            check=False,
            timeout=MESSAGE_WITHIN_S,
        )
        for line in done.stdout.splitlines():
            say(f"      {line}")
        if done.returncode != 0:
            told = done.stderr.strip().splitlines() or ["it said nothing"]
            raise Surroundings("a message did not come through", remedy="see what it says", said=told[-1])


def remove_resources(kubectl: Kubectl, *, crds: bool) -> None:
    """Take the examples, and the kinds if we brought them, out of a cluster that stays."""
    with step("take the examples out of the cluster"):
        kubectl.run("delete", "--ignore-not-found", "-f", str(EXAMPLES))
        if crds:
            kubectl.run("delete", "--ignore-not-found", "-f", str(CRDS))


def tell_ending(cluster: Cluster, kubectl: Kubectl, connection: dict[str, str], took_s: float) -> None:
    """What there is now, and where to look next."""
    say("")
    say(kubectl.run("get", "queues,counters", "--all-namespaces").rstrip())
    say("")
    say(f"Ready after {duration(took_s)}. Look around:")
    say(f"  {lifecycle.use(cluster)}; {cluster.kubectl} get queues -A")
    say(f"  {cluster.kubectl} explain queue.spec.timeline.safetyLag")
    say('  eval "$(python3 -m dev.demo environment)"; .venv/bin/python examples/python/hello.py')
    told = " ".join(f"{name}={connection[name]}" for name in ("CONTACT_POINTS", "DATA_CENTER") if name in connection)
    say(f"  Cassandra: {told} (its user and password: python3 -m dev.demo environment)")
    say("  end it all: make down")


def tell_environment() -> None:
    """The variables that reach the demo's Cassandra, for a shell."""
    told = json.loads((cassandra_directory() / "server.json").read_text())
    for name, value in told["environment"].items():
        print(f"export {name}={value}")


def main(arguments: Sequence[str]) -> int:
    """Do it; a mistake is one line."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.demo")
    parser.add_argument("command", choices=("up", "down", "environment"))
    parser.add_argument("--context", default=os.environ.get("CONTEXT") or None)
    asked = parser.parse_args(arguments)
    try:
        match asked.command:
            case "up":
                up(asked.context)
            case "down":
                down()
            case _:
                tell_environment()
    except PenstockError as error:
        say(f"penstock demo: {error}", to=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("penstock demo: interrupted; `make down` ends what was started", to=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
