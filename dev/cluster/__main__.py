"""The command line: `python3 -m dev.cluster up|down|status|build|image|kubectl`, from the root of the repository."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dev.cluster import docker_build, image, lifecycle
from dev.cluster.base_image import base_image
from dev.cluster.choice import MODES
from dev.cluster.oci import write_image
from dev.cluster.programs import EXTRAS, require_built
from dev.cluster.state import DEFAULT_NAME, Cluster, read_cluster, read_clusters
from headgate.errors import EnvironmentProblem, HeadgateError, InvalidRequest
from headgate.local.progress import duration, print_progress


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="python3 -m dev.cluster", description="A real Kubernetes for development.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.add_argument("--name", default=DEFAULT_NAME, help=f"which cluster (default: {DEFAULT_NAME})")
        return made

    up = command("up", "start it, unless it is up")
    up.add_argument(
        "--context", default=os.environ.get("CONTEXT") or None, help="use this context of your kubeconfig"
    )
    up.add_argument("--mode", choices=MODES[1:], help="insist on one kind of cluster")
    down = command("down", "stop exactly what was started")
    down.add_argument("--purge", action="store_true", help="also delete its images and certificates")
    status = command("status", "show what is up")
    status.add_argument("--all", action="store_true", help="every cluster")
    build = command("build", "build everything that `up` and `image` need, and start nothing")
    build.add_argument("--mode", choices=MODES[1:], help="for one kind of cluster")
    build.add_argument(
        "--with", dest="extras", default="", help=f"also build these, separated by commas: {', '.join(EXTRAS)}"
    )
    make = command("image", "build an image of the working tree and import it into the cluster")
    make.add_argument(
        "--target", choices=(*image.TARGETS, "all"), default="headgate", help="target of the Dockerfile"
    )
    make.add_argument("--only-build", action="store_true", help="build it into the cache, whichever cluster is up")
    make.add_argument("--archive", type=Path, help="write the archive to this file (OCI, also read by `docker load`)")
    make.add_argument("--import", dest="imported", type=Path, help="import this archive instead of building one")
    kubectl = command("kubectl", "kubectl on it: python3 -m dev.cluster kubectl get pods")
    kubectl.add_argument("arguments", nargs=argparse.REMAINDER)
    return top


def main(arguments: Sequence[str]) -> int:
    """Do it; a mistake is one line."""
    asked = parser().parse_args(arguments)
    try:
        return int(COMMANDS[asked.command](asked) or 0)
    except HeadgateError as error:
        print_progress(f"dev.cluster: {error}", to=sys.stderr)
        return 1
    except OSError as error:
        print_progress(
            f"dev.cluster: the system rejected a request: {error.strerror} ({error.filename or error.args})",
            to=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        return 130


def run_up(asked: argparse.Namespace) -> None:
    """Start it."""
    lifecycle.up(asked.name, context=asked.context, mode=asked.mode)


def run_down(asked: argparse.Namespace) -> None:
    """End it."""
    if not lifecycle.down(asked.name, purge=asked.purge):
        print_progress(f"cluster {asked.name}: is not up")


def run_status(asked: argparse.Namespace) -> int:
    """Report on it; the exit code shows whether it is up."""
    there = read_clusters() if asked.all else [each for each in [read_cluster(asked.name)] if each is not None]
    for cluster in there:
        print_progress(lifecycle.describe(cluster))
    if not there:
        print_progress("no cluster is up" if asked.all else f"cluster {asked.name}: is not up")
    return 0 if there and all(lifecycle.is_up(cluster.name) for cluster in there) else 1


def run_build(asked: argparse.Namespace) -> None:
    """Fill the cache."""
    wanted = [name for name in asked.extras.split(",") if name]
    unknown = [name for name in wanted if name not in EXTRAS]
    if unknown:
        raise InvalidRequest("unknown build", remedy=f"available: {', '.join(EXTRAS)}", name=unknown[0])
    extras = [EXTRAS[name] for name in wanted]
    choice = lifecycle.build(asked.mode, extras=extras)
    if choice.mode == "node":
        base_image()
    for name, directory in require_built(extras).items():
        print_progress(f"  {name}: {directory / name}")


def run_image(asked: argparse.Namespace) -> None:
    """Build it, and make it known to the cluster if one is up."""
    cluster = read_cluster(asked.name) if lifecycle.is_up(asked.name) else None
    if asked.imported is not None:
        if not asked.imported.is_file():
            raise InvalidRequest(
                "the archive does not exist",
                remedy="name an OCI archive or one of `docker save`",
                path=asked.imported,
            )
        lifecycle.load_archive(_required(cluster, asked.name), asked.imported)
        print_progress(f"  {asked.imported}: imported")
        return
    targets = image.TARGETS if asked.target == "all" else (asked.target,)
    if asked.archive is not None and len(targets) > 1:
        raise InvalidRequest(
            "an archive must hold one image", remedy="name one: --target headgate", path=asked.archive
        )
    if asked.only_build:
        _only_build(targets)
        return
    if asked.archive is None:
        _required(cluster, asked.name)
    for built in image.build_images(targets):
        if asked.archive is not None:
            write_image(asked.archive, built)
            print_progress(f"  {asked.archive}: {built.id}")
        if cluster is not None:
            started = time.monotonic()
            sent = lifecycle.load(cluster, built)
            took = duration(time.monotonic() - started)
            print_progress(
                f"  {built.tag}: {'imported into the cluster' if sent else 'the cluster has it already'} ({took})"
            )


def _only_build(targets: Sequence[str]) -> None:
    """Into the cache; a machine that can build none can run none either, which is no fault of this command."""
    because = docker_build.obstacle()
    if because is not None:
        print_progress(f"  no image is built on this machine: {because}")
        return
    for built in image.build_images(targets):
        print_progress(f"  {built.tag}: {built.id}, {sum(layer.size for layer in built.layers) >> 20} MB")


def _required(cluster: Cluster | None, name: str) -> Cluster:
    if cluster is None:
        raise EnvironmentProblem(
            "the cluster is not up",
            remedy="start it: make cluster (an image can also be written to a file: image --archive FILE)",
            name=name,
        )
    return cluster


def run_kubectl(asked: argparse.Namespace) -> int:
    """kubectl, with its own output and exit code."""
    cluster = _required(read_cluster(asked.name), asked.name)
    return subprocess.run(lifecycle.client(cluster).command(*asked.arguments), check=False).returncode


COMMANDS = {
    "up": run_up,
    "down": run_down,
    "status": run_status,
    "build": run_build,
    "image": run_image,
    "kubectl": run_kubectl,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
