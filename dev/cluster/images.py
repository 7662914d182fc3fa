"""The image store of a local node: its contents, and the import of images, without any registry.

Knows containerd's `ctr` and the store's directory; nothing of how images are built.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from dev.cluster.debian import WRAPPERS
from dev.cluster.oci import Image, Run, Source, assemble, write_image, write_layer
from dev.cluster.plan import Plan
from dev.cluster.settings import PAUSE_IMAGE
from headgate.errors import EnvironmentProblem
from headgate.local.progress import print_progress

# Exists while nobody uses the store and no container is recorded in it.
_AT_REST = "at-rest"


class ImageStore:
    """The images of one node, while its containerd runs."""

    def __init__(self, plan: Plan, packages: Path) -> None:
        self.plan = plan
        self.packages = packages

    def ctr(self, *arguments: str, timeout_s: float = 300) -> str:
        """Run `ctr` on it."""
        socket = str(self.plan.containerd_socket)
        done = subprocess.run(
            [str(self.packages / WRAPPERS / "ctr"), "--address", socket, "--namespace", "k8s.io", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if line.strip()] or ["(no output)"]
            raise EnvironmentProblem(
                "the node's image store rejected a request",
                remedy="check its answer; `make cluster-down` and `make cluster` start it afresh",
                command=" ".join(arguments[:2]),
                answer=lines[-1],
            )
        return done.stdout

    def answers(self) -> bool:
        """Whether containerd is up."""
        try:
            self.ctr("version", timeout_s=5)
        except (EnvironmentProblem, subprocess.TimeoutExpired):
            return False
        return True

    def images(self) -> dict[str, str]:
        """The digest of each image, by its name."""
        rows = (line.split() for line in self.ctr("images", "ls").splitlines()[1:])
        return {row[0]: row[2] for row in rows if len(row) > 2}

    def blobs(self) -> set[str]:
        """The digests of all that it holds."""
        return set(self.ctr("content", "ls", "-q").split())

    def load(self, image: Image) -> bool:
        """Make an image known to the node; the answer is whether anything had to be sent."""
        if self.images().get(image.tag) == image.digest:
            return False
        with tempfile.TemporaryDirectory(prefix="image-", dir=self.plan.directory) as scratch:
            archive = Path(scratch) / "image.tar"
            write_image(archive, image, without=self.blobs())
            self.ctr("images", "import", str(archive))
        return True

    def load_archive(self, archive: Path) -> None:
        """Make the images of an archive (OCI, or of `docker save`) known to the node."""
        self.ctr("images", "import", str(archive))

    def load_pause(self, pause: Path) -> None:
        """Make the image known that holds every pod together."""
        with tempfile.TemporaryDirectory(prefix="pause-", dir=self.plan.directory) as scratch:
            layer = write_layer(Path(scratch) / "layer.tar", [Source(pause, "/pause")])
            self.load(assemble(PAUSE_IMAGE, [layer], Run(entrypoint=("/pause",), user="65535:65535")))

    def forget_containers(self) -> None:
        """Remove the records of containers, all of which have ended, and leave the images."""
        containers = self.ctr("containers", "ls", "-q", timeout_s=20).split()
        if containers:
            self.ctr("containers", "rm", *containers, timeout_s=60)


def claim(plan: Plan) -> None:
    """Before containerd starts: a store that was interrupted is deleted."""
    store = plan.image_store
    mark = store / _AT_REST
    if store.exists() and not mark.exists():
        print_progress("    the image store was not closed cleanly; its images have to be imported again")
        subprocess.run(["rm", "-rf", "--one-file-system", str(store)], check=True)
    store.mkdir(parents=True, exist_ok=True)
    mark.unlink(missing_ok=True)


def rest(plan: Plan) -> None:
    """After containerd has ended with no container recorded: the next start may trust the store."""
    (plan.image_store / _AT_REST).touch()
