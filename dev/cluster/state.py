"""The state of each cluster between two commands: one JSON file in its directory.

Others read it too: `read_cluster(name)` gives tests, `make demo` and the testing package the API server's address and
the address of this machine for pods. The file exists from before the first creation until after the last removal, so
that `down` knows the work of an interrupted `up`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from dev.cluster.plan import Plan, require_valid_name
from headgate.errors import EnvironmentProblem
from headgate.local.cache import cache_root, locked

FILE = "state.json"
DEFAULT_NAME = "dev"


@dataclass(frozen=True)
class Cluster:
    """A cluster from its state file."""

    name: str
    mode: str  # context | kind | k3d | node | kwok
    reason: str
    ready: bool
    kubeconfig: str
    kubectl: str
    context: str | None = None
    # Where this machine is reached by pods and by itself, if it is.
    host_address: str | None = None
    # Only where we made them.
    namespace: str | None = None
    index: int | None = None
    api_port: int | None = None

    @property
    def directory(self) -> Path:
        """Where everything of it is."""
        return directory_of(self.name)

    @property
    def audit_log(self) -> Path:
        """The audit log of its API server, a line of JSON each, where the cluster is one of ours."""
        return self.directory / "log" / "audit.log"

    @property
    def plan(self) -> Plan:
        """Names and addresses, where the cluster is one we made on this machine."""
        if self.index is None:
            raise EnvironmentProblem(
                "this cluster does not belong to this machine", remedy="ask `status`", name=self.name
            )
        return Plan(self.name, self.index, self.directory)

    def runs_containers(self) -> bool:
        """Whether a pod runs a process, or is only reported to."""
        return self.mode != "kwok"

    def write(self) -> Cluster:
        """Store it; the file is whole at any time."""
        self.directory.mkdir(parents=True, exist_ok=True)
        partial = self.directory / f".{FILE}.partial"
        partial.write_text(json.dumps(asdict(self), indent=2) + "\n")
        partial.rename(self.directory / FILE)
        return self

    def with_(self, **changes: object) -> Cluster:
        """The same with changes, kept."""
        return replace(self, **changes).write()  # type: ignore[arg-type]  # names are checked by replace itself

    def forget(self) -> None:
        """Nothing of it is left."""
        (self.directory / FILE).unlink(missing_ok=True)


def state_root() -> Path:
    """The directory of the running cluster."""
    named = os.environ.get("HEADGATE_STATE")
    return Path(named).absolute() if named else cache_root().absolute() / "run"


def directory_of(name: str) -> Path:
    """The directory of one cluster."""
    return state_root() / f"cluster-{require_valid_name(name)}"


def read_cluster(name: str = DEFAULT_NAME) -> Cluster | None:
    """The cluster of that name, if anything of it may exist."""
    return _read(directory_of(name) / FILE)


def read_clusters() -> list[Cluster]:
    """All of them."""
    result = (_read(path) for path in sorted(state_root().glob(f"cluster-*/{FILE}")))
    return [cluster for cluster in result if cluster is not None]


def _read(path: Path) -> Cluster | None:
    try:
        output = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    # One written by an older or newer checkout can still be ended.
    known = {field.name for field in fields(Cluster)}
    return Cluster(**{name: value for name, value in output.items() if name in known})


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Only one command changes a cluster at a time; others wait for it."""
    with locked(directory_of(name) / ".lock"):
        yield
