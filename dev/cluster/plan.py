"""Where everything of one local cluster is: names, addresses, directories, all derived from its name and its index.

Pure. Two clusters with different indexes share nothing, so that a developer's cluster and that of the tests live side
by side. The index is chosen under a lock by `network.claim_index`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from headgate.errors import InvalidRequest

INDEXES = range(16)
NODE_SIDE = "node0"
API_PORT = 6443
ETCD_PORT = 2379
# A unix socket's path has to fit in 107 bytes; the longest that is made below a cluster's directory takes this many.
LONGEST_SOCKET = len("/run/containerd/containerd.sock.ttrpc")


@dataclass(frozen=True)
class Plan:
    """One local cluster on paper."""

    name: str
    index: int
    directory: Path

    @property
    def namespace(self) -> str:
        """The network namespace of the node, the control plane and the pods."""
        return f"headgate-{self.index}"

    @property
    def host_side(self) -> str:
        """This machine's end of the link to it (15 letters at most)."""
        return f"headgate{self.index}"

    @property
    def cgroup(self) -> str:
        """The cgroup under which every process of the cluster lives, pods included."""
        return f"headgate-{self.index}"

    @property
    def node_name(self) -> str:
        """The node, as `kubectl get nodes` shows it."""
        return f"headgate-{self.name}"

    @property
    def node_network(self) -> ipaddress.IPv4Network:
        """The link between this machine and the node."""
        return ipaddress.IPv4Network(f"10.123.{self.index}.0/24")

    @property
    def pod_network(self) -> ipaddress.IPv4Network:
        """Addresses of pods."""
        return ipaddress.IPv4Network(f"10.124.{self.index}.0/24")

    @property
    def service_network(self) -> ipaddress.IPv4Network:
        """Addresses of Services."""
        return ipaddress.IPv4Network(f"10.125.{self.index}.0/24")

    @property
    def networks(self) -> tuple[ipaddress.IPv4Network, ...]:
        """All that must never leave this machine."""
        return (self.node_network, self.pod_network, self.service_network)

    @property
    def host_address(self) -> str:
        """This machine's address for pods: a server that listens on it is reached by both under the same address."""
        return str(self.node_network[1])

    @property
    def node_address(self) -> str:
        """The node."""
        return str(self.node_network[2])

    @property
    def api_service_address(self) -> str:
        """The Service `kubernetes`: the first address of its network, as Kubernetes gives it."""
        return str(self.service_network[1])

    @property
    def dns_address(self) -> str:
        """The Service of the cluster's DNS."""
        return str(self.service_network[10])

    @property
    def preferred_api_port(self) -> int:
        """The port of the API server on 127.0.0.1, unless it is taken."""
        return 26443 + self.index

    @property
    def certificates(self) -> Path:
        """Keys and certificates."""
        return self.directory / "pki"

    @property
    def logs(self) -> Path:
        """A log each process."""
        return self.directory / "log"

    @property
    def pids(self) -> Path:
        """A pid file each process."""
        return self.directory / "pid"

    @property
    def settings(self) -> Path:
        """Configuration files, written again at each start."""
        return self.directory / "etc"

    @property
    def containerd_socket(self) -> Path:
        """Where containerd listens."""
        return self.directory / "run" / "containerd" / "containerd.sock"

    @property
    def image_store(self) -> Path:
        """Imported images: kept when the cluster goes down, so that they exist when it comes up."""
        return self.directory / "containerd"

    @property
    def kubeconfig(self) -> Path:
        """For users and tests."""
        return self.directory / "kubeconfig"


def require_valid_name(name: str) -> str:
    """A name that is valid in host names and file names."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", name):
        raise InvalidRequest(
            "invalid cluster name",
            remedy="use at most 32 small letters, digits and dashes",
            name=name,
        )
    return name


def require_short_path(directory: Path) -> None:
    """Refuse a directory in which the sockets of containerd would not fit."""
    if len(str(directory)) + LONGEST_SOCKET > 107:
        raise InvalidRequest(
            "the path of the cluster's directory is too long for a unix socket",
            remedy="set HEADGATE_STATE to a shorter directory",
            directory=directory,
        )
