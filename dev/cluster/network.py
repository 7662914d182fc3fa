"""The network of a local cluster: a namespace, a link to it, and routes that never lead out of this machine.

Node, control plane and pods live in the namespace, which has no way out but the link to this machine, and this
machine does not forward. Guard routes follow the real ones: where a link is gone, packets for its networks are
rejected in the namespace instead of following the default route.
"""

from __future__ import annotations

import ipaddress
import json

from dev.cluster.plan import INDEXES, NODE_SIDE, Plan
from dev.servers import namespaces
from dev.servers.namespaces import ip
from headgate.errors import EnvironmentProblem

# Worse than any route that leads somewhere.
GUARD_METRIC = "4000000000"


def choose_index(taken: set[int]) -> int:
    """The lowest index whose names and networks are unused."""
    routes = [route["dst"] for route in json.loads(ip("-json", "route", "show", "table", "all") or "[]")]
    for index in INDEXES:
        plan = Plan("any", index, namespaces.NAMES)
        if index in taken or namespaces.exists(plan.namespace) or overlapping(plan, routes):
            continue
        return index
    raise EnvironmentProblem(
        "no address range is left for a cluster",
        remedy="stop a cluster: `python3 -m dev.cluster status --all` shows them",
        tried=f"10.123.0.0/24 to 10.123.{INDEXES[-1]}.0/24 and the same of 10.124 and 10.125",
    )


def overlapping(plan: Plan, routes: list[str]) -> list[str]:
    """The routes that lead to addresses the plan wants for itself."""
    matches = []
    for destination in routes:
        try:
            network = ipaddress.ip_network("0.0.0.0/0" if destination == "default" else destination)
        except ValueError:
            continue
        if network.version == 4 and network.prefixlen >= 12 and any(network.overlaps(own) for own in plan.networks):
            matches.append(destination)
    return matches


def make(plan: Plan) -> None:
    """Make namespace, link and routes."""
    for network in plan.networks:
        ip("route", "add", "unreachable", str(network), "metric", GUARD_METRIC)
    namespaces.add(plan.namespace)
    inside = plan.namespace
    ip("link", "add", plan.host_side, "type", "veth", "peer", "name", NODE_SIDE, "netns", inside)
    ip("addr", "add", f"{plan.host_address}/24", "dev", plan.host_side)
    ip("link", "set", plan.host_side, "up")
    ip("addr", "add", f"{plan.node_address}/24", "dev", NODE_SIDE, namespace=inside)
    ip("link", "set", NODE_SIDE, "up", namespace=inside)
    # A pod that connects to the outside gets an error at once.
    ip("route", "add", "unreachable", "default", "metric", GUARD_METRIC, namespace=inside)
    for network in (plan.pod_network, plan.service_network):
        ip("route", "add", str(network), "via", plan.node_address, "dev", plan.host_side)


def remove(plan: Plan) -> None:
    """Remove them; missing ones are removed already."""
    ip("link", "del", plan.host_side, quiet=True)
    namespaces.delete(plan.namespace)
    for network in plan.networks:
        ip("route", "del", "unreachable", str(network), "metric", GUARD_METRIC, quiet=True)
