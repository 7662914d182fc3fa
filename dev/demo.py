"""`make demo` and `make down`: a Kubernetes, a Cassandra, the chart, and a queue's day on them; then all of it ended.

Only the standard library until the virtual environment exists, which is one of its first steps. Started and
pre-existing parts are recorded in a file, so that `down` stops the former and leaves the latter.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from dev import demo_setup, demo_spark, run_local
from dev.background_build import BackgroundBuild, end_left_over, list_unbuilt
from dev.cluster import lifecycle
from dev.cluster.choice import Choice, decide_source
from dev.cluster.golang import require_go
from dev.cluster.kubectl import Kubectl
from dev.cluster.state import DEFAULT_NAME, Cluster, read_cluster
from dev.cluster.surroundings import inspect_machine
from dev.demo_day import MESSAGES, Day
from dev.demo_setup import Asked, Begun, Connection
from dev.demo_shell import Shell, folders_of_programs, with_context
from headgate.errors import EnvironmentProblem, HeadgateError
from headgate.local.cassandra.own_cassandra import stop_kept
from headgate.local.progress import duration, print_progress
from headgate.store.connection_variables import connection_variables, prefixed


def up(asked: Asked) -> None:
    """All of it, with its progress."""
    started = time.monotonic()
    asked.require_possible()
    choice = decide_source(inspect_machine(asked.context, None))
    print_plan(choice, spark=asked.spark, builds=bool(list_unbuilt(choice, spark=asked.spark)))
    require_containers(choice)
    run_local.require_programs()
    unbuilt = list_unbuilt(choice, spark=asked.spark)
    if unbuilt:
        require_go()
    before = Begun.read() or Begun()
    begun = replace(before, cluster_started=before.cluster_started or read_cluster(DEFAULT_NAME) is None).keep()
    build = BackgroundBuild(show_line)
    try:
        build.start(own_cluster=asked.context is None, spark=asked.spark)
        run_local.prepare()
        if unbuilt:
            show_without_kubernetes(started)
            show_line("local", "next comes the same on Kubernetes, as soon as its build has ended")
        build.wait()
    finally:
        build.end()
    cluster = lifecycle.up(DEFAULT_NAME, context=asked.context)
    kubectl = lifecycle.client(cluster)
    if asked.spark and cluster.mode == "context":
        demo_spark.require_spark_operator(kubectl)
    begun = check_before(kubectl, begun).keep()
    connection: list[Connection] = []
    side_by_side(
        lambda: connection.append(cassandra_of(cluster, begun)), lambda: demo_setup.bring_images(cluster, asked)
    )
    demo_setup.install_chart(cluster, connection[0], asked)
    shell = Shell(kubectl, connection[0])
    Day(shell).show()
    if asked.spark:
        demo_spark.bring_spark_operator(cluster)
        demo_spark.Drain(shell).show()
    print_ending(cluster, time.monotonic() - started)


def show_without_kubernetes(started: float) -> None:
    """A queue, a worker and a message on this machine, while Kubernetes is built; what was started for it ends."""
    done = subprocess.run(run_local.build_command(until_handled=True), cwd=demo_setup.ROOT, check=False)
    if done.returncode != 0:
        raise EnvironmentProblem(
            "the message was not handled without Kubernetes", remedy="read the lines above", exit_code=done.returncode
        )
    took = duration(time.monotonic() - started)
    show_line("local", f"a message was handled without Kubernetes, {took} after the start; make dev repeats it")


def show_line(name: str, line: str) -> None:
    """A line under a name, as `headgate dev` shows those of its programs."""
    print_progress(f"{name:<16} | {line}")


def check_before(kubectl: Kubectl, begun: Begun) -> Begun:
    """The missing parts of ours, which are ours to remove."""
    had_crds = bool(kubectl.run("get", "crd", "-o", "name", "--ignore-not-found", "queues.headgate.io").strip())
    had_namespace = kubectl.find("namespace", demo_setup.SYSTEM) is not None
    return replace(
        begun,
        crds_made=begun.crds_made or not had_crds,
        namespace_made=begun.namespace_made or not had_namespace,
    )


def cassandra_of(cluster: Cluster, begun: Begun) -> Connection:
    """How to reach Cassandra; that one of ours was started is kept."""
    connection, is_ours = demo_setup.start_cassandra(cluster)
    replace(begun, cassandra_started=is_ours).keep()
    return connection


def down() -> None:
    """Stop everything that `up` started, in the opposite order; pre-existing parts stay."""
    begun = Begun.read()
    if begun is None:
        print_progress("nothing to stop: no demo was started on this machine")
        return
    cluster = read_cluster(DEFAULT_NAME)
    if cluster is not None and (not begun.cluster_started or cluster.mode == "context"):
        demo_setup.take_out(lifecycle.client(cluster), begun)
    if end_left_over():
        print_progress("build of Kubernetes: ended")
    if stop_kept(demo_setup.cassandra_directory()):
        print_progress("Cassandra: ended")
    shutil.rmtree(demo_setup.cassandra_directory(), ignore_errors=True)
    shutil.rmtree(demo_setup.helm_home(), ignore_errors=True)
    if begun.cluster_started:
        lifecycle.down(DEFAULT_NAME)
    Begun.file().unlink()


def print_plan(choice: Choice, *, spark: bool = False, builds: bool = False) -> None:
    """The plan, before it runs."""
    print_progress(
        f"headgate demo, on a Kubernetes ({lifecycle.describe_choice(choice)}) with a Cassandra and the chart:"
    )
    print_progress(
        f"{MESSAGES:,} messages in a queue, its workers from zero to many and back, a counter, a dead letter."
    )
    if spark:
        print_progress(f"Then {demo_spark.MESSAGES:,} more, which Spark drains under the Spark operator.")
    if not builds:
        return
    print_progress(
        "First one message is handled on this machine, without Kubernetes. Meanwhile Kubernetes and Helm are built"
    )
    print_progress("from source, once for this machine. The times are in docs/figures.md.")
    print_progress(
        "A cluster that you have needs less: make demo CONTEXT=its-name REGISTRY=where-it-pulls-the-image-from"
    )


def require_containers(choice: Choice) -> None:
    """A cluster without a node that runs containers shows nothing of this."""
    if choice.mode == "kwok":
        raise EnvironmentProblem(
            "a cluster that is made without root runs no containers",
            remedy="run it as root, or with Docker and kind, or name a cluster (CONTEXT=); `make dev` needs none",
        )


def side_by_side(*works: Callable[[], None]) -> None:
    """Run independent steps concurrently; all end before the first failure is raised."""
    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(work) for work in works]
    for future in futures:
        future.result()


NEXT = (
    ("kubectl get queues,counters,deployments -n shop", ""),
    ("python examples/python/hello.py", "a message of your own; docs/python.md"),
    ("headgate top --snapshot", "the backlog of each queue; docs/start-on-call.md"),
    ("kubectl headgate why queue/emails -n shop", "the operator's decisions and their reasons"),
    ("kubectl explain queue.spec.timeline.safetyLag", ""),
)
"""Commands to try on what the demo leaves, each with what it shows."""


def list_next_commands(*, context: str | None) -> list[str]:
    """The lines that the demo prints at its end: the first one makes all others known to a shell. Pure."""
    rows = [("""eval "$(make -s environment)\"""", "in this folder, in each new shell")]
    rows += [(with_context(line, context), remark) for line, remark in NEXT]
    width = max(len(line) for line, _ in rows) + 2
    return [f"{line:<{width}}# {remark}" if remark else line for line, remark in rows]


def print_ending(cluster: Cluster, took_s: float) -> None:
    """The next steps for the user."""
    print_progress("")
    print_progress(f"Done after {duration(took_s)}, and everything is still running. Try:")
    for line in list_next_commands(context=cluster.context):
        print_progress(f"  {line}")
    print_progress("  make down")


def print_environment() -> None:
    """The variables by which a shell reaches the demo's Cassandra, and finds its programs."""
    file = demo_setup.cassandra_directory() / "server.json"
    if not file.exists():
        raise EnvironmentProblem(
            "the demo's Cassandra does not run on this machine",
            remedy="run make demo",
        )
    cluster = read_cluster(DEFAULT_NAME)
    variables = prefixed(connection_variables(json.loads(file.read_text())["environment"]))
    if cluster is not None:
        variables["KUBECONFIG"] = cluster.kubeconfig
    for name, value in variables.items():
        print(f"export {name}={shlex.quote(value)}")
    folders = folders_of_programs("" if cluster is None else cluster.kubectl)
    print(f'export PATH={shlex.quote(os.pathsep.join(str(each) for each in folders if each.is_absolute()))}:"$PATH"')


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
                print_environment()
    except HeadgateError as error:
        print_progress(f"headgate demo: {error}", to=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print_progress("headgate demo: interrupted; `make down` stops what was started", to=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
