"""`make demo` and `make down`: a Kubernetes, a Cassandra, the chart, and a queue's day on them; then all of it ended.

Standard library alone until the virtual environment is there, which is one of the first things it makes. What was
started, and what was there before, stands in a file, so that `down` ends the one and leaves the other.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dev import demo_ground as ground
from dev import demo_spark
from dev.cluster import lifecycle
from dev.cluster.choice import Choice, decide_source
from dev.cluster.kubectl import Kubectl
from dev.cluster.state import DEFAULT_NAME, Cluster, read_cluster
from dev.cluster.surroundings import look_around
from dev.demo_day import MESSAGES, Day
from dev.demo_ground import Asked, Begun, Connection
from dev.demo_shell import Shell
from headgate.errors import HeadgateError, Surroundings
from headgate.testing.cassandra.kept import stop_kept
from headgate.testing.progress import duration, say


def up(asked: Asked) -> None:
    """All of it, telling what it does."""
    started = time.monotonic()
    asked.require_possible()
    choice = decide_source(look_around(asked.context, None))
    tell_plan(choice, spark=asked.spark)
    require_containers(choice)
    before = Begun.read() or Begun()
    begun = replace(before, cluster_started=before.cluster_started or read_cluster(DEFAULT_NAME) is None).keep()
    side_by_side(
        ground.make_environment,
        ground.fetch_cassandra,
        lambda: ground.build_programs(asked),
    )
    cluster = lifecycle.up(DEFAULT_NAME, context=asked.context)
    kubectl = lifecycle.client(cluster)
    if asked.spark and cluster.mode == "context":
        demo_spark.require_spark_operator(kubectl)
    begun = look_before(kubectl, begun).keep()
    connection: list[Connection] = []
    side_by_side(lambda: connection.append(cassandra_of(cluster, begun)), lambda: ground.bring_images(cluster, asked))
    ground.install_chart(cluster, connection[0], asked)
    shell = Shell(kubectl, connection[0])
    Day(shell).show()
    if asked.spark:
        demo_spark.bring_spark_operator(cluster)
        demo_spark.Drain(shell).show()
    tell_ending(cluster, connection[0], time.monotonic() - started)


def look_before(kubectl: Kubectl, begun: Begun) -> Begun:
    """What of ours is not there yet, and so is ours to take away."""
    had_crds = bool(kubectl.run("get", "crd", "-o", "name", "--ignore-not-found", "queues.headgate.io").strip())
    had_namespace = kubectl.find("namespace", ground.SYSTEM) is not None
    return replace(
        begun,
        crds_made=begun.crds_made or not had_crds,
        namespace_made=begun.namespace_made or not had_namespace,
    )


def cassandra_of(cluster: Cluster, begun: Begun) -> Connection:
    """How to reach Cassandra; that one of ours was started is kept."""
    connection, is_ours = ground.start_cassandra(cluster)
    replace(begun, cassandra_started=is_ours).keep()
    return connection


def down() -> None:
    """End what `up` started, in the opposite order; what was there before stays."""
    begun = Begun.read()
    if begun is None:
        say("nothing to stop: no demo was started on this machine")
        return
    cluster = read_cluster(DEFAULT_NAME)
    if cluster is not None and (not begun.cluster_started or cluster.mode == "context"):
        ground.take_out(lifecycle.client(cluster), begun)
    if stop_kept(ground.cassandra_directory()):
        say("Cassandra: ended")
    shutil.rmtree(ground.cassandra_directory(), ignore_errors=True)
    shutil.rmtree(ground.helm_home(), ignore_errors=True)
    if begun.cluster_started:
        lifecycle.down(DEFAULT_NAME)
    Begun.file().unlink()


def tell_plan(choice: Choice, *, spark: bool = False) -> None:
    """What will happen, before it does."""
    say(f"headgate demo, on a Kubernetes ({lifecycle.told_choice(choice)}) with a Cassandra and the chart:")
    say(f"{MESSAGES:,} messages in a queue, its workers from zero to many and back, a counter, a dead letter.")
    if spark:
        say(f"Then {demo_spark.MESSAGES:,} more, which Spark drains under the Spark operator.")
    takes = "About five minutes" if spark else "About three minutes"
    say(f"{takes} once everything is cached; the first run builds Kubernetes and Helm from source, ten")
    say("minutes and more on two cores. `make dev` shows the same without Kubernetes in half a minute. Or")
    say("use your own cluster: make demo CONTEXT=its-name REGISTRY=where-it-pulls-our-image-from.")


def require_containers(choice: Choice) -> None:
    """A cluster without a node that runs containers shows nothing of this."""
    if choice.mode == "kwok":
        raise Surroundings(
            "a cluster that is made without root runs no containers",
            remedy="run it as root, or with Docker and kind, or name a cluster (CONTEXT=); `make dev` needs none",
        )


def side_by_side(*works: Callable[[], None]) -> None:
    """Run what does not wait for each other; all end before the first failure is told."""
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work in works]
    for future in futures:
        future.result()


def tell_ending(cluster: Cluster, connection: Connection, took_s: float) -> None:
    """Where to look next."""
    told = " ".join(f"{name}={connection[name]}" for name in ("CONTACT_POINTS", "DATA_CENTER") if name in connection)
    say("")
    say(f"Done after {duration(took_s)}; everything is still running. Explore it:")
    say(f"  {lifecycle.use(cluster)}; {cluster.kubectl} get queues,counters,deployments -n shop")
    say('  eval "$(make -s environment)"      # the address of Cassandra; then, in this checkout:')
    say("  .venv/bin/python examples/python/hello.py       # a message of your own; continue with docs/python.md")
    say("  .venv/bin/headgate top --once                   # the backlog; docs/start-on-call.md")
    say("  .venv/bin/kubectl-headgate why queue/emails -n shop     # the operator's decisions and their reasons")
    say(f"  {cluster.kubectl} explain queue.spec.timeline.safetyLag")
    say(f"  Cassandra: {told} (its user and password: make -s environment)")
    say("  stop everything: make down")


def tell_environment() -> None:
    """The variables that reach the demo's Cassandra, for a shell."""
    file = ground.cassandra_directory() / "server.json"
    if not file.exists():
        raise Surroundings(
            "the demo's Cassandra does not run on this machine",
            remedy="run make demo; or use your own, set by CONTACT_POINTS and the other variables",
        )
    for name, value in json.loads(file.read_text())["environment"].items():
        print(f"export {name}={value}")


def main(arguments: Sequence[str]) -> int:
    """Do it; a mistake is one line."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.demo")
    parser.add_argument("command", choices=("up", "down", "environment"))
    parser.add_argument("--context", default=os.environ.get("CONTEXT") or None)
    parser.add_argument("--registry", default=os.environ.get("REGISTRY") or None)
    parser.add_argument("--tag", default=os.environ.get("TAG") or None)
    parser.add_argument("--spark", action="store_true", help="continue with a bulk job under the Spark operator")
    asked = parser.parse_args(arguments)
    try:
        match asked.command:
            case "up":
                up(Asked(asked.context, asked.registry, asked.tag, asked.spark))
            case "down":
                down()
            case _:
                tell_environment()
    except HeadgateError as error:
        say(f"headgate demo: {error}", to=sys.stderr)
        return 1
    except KeyboardInterrupt:
        say("headgate demo: interrupted; `make down` stops what was started", to=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
