"""Names, addresses and settings of a local cluster, on paper."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import pytest

from dev.cluster import settings
from dev.cluster.api import path_of
from dev.cluster.mounts import script
from dev.cluster.network import overlapping
from dev.cluster.node import choose_snapshotter
from dev.cluster.plan import INDEXES, Plan, require_short_path, require_valid_name
from headgate.errors import InvalidRequest

DIRECTORY = Path("/state/cluster-a")
PLAN = Plan("a", 3, DIRECTORY)


def test_clusters_with_different_indexes_share_nothing() -> None:
    plans = [Plan("a", index, DIRECTORY) for index in INDEXES]
    for one, other in combinations(plans, 2):
        assert not any(mine.overlaps(theirs) for mine in one.networks for theirs in other.networks)
        assert len({one.namespace, other.namespace}) == 2
        assert len({one.host_side, other.host_side}) == 2
        assert len({one.cgroup, other.cgroup}) == 2
        assert len({one.preferred_api_port, other.preferred_api_port}) == 2


def test_every_network_of_a_cluster_is_apart_from_its_others() -> None:
    assert not any(one.overlaps(other) for one, other in combinations(PLAN.networks, 2))


def test_an_interface_name_fits_the_kernel() -> None:
    assert max(len(Plan("a", index, DIRECTORY).host_side) for index in INDEXES) <= 15


def test_fixed_addresses_lie_in_their_networks() -> None:
    assert (PLAN.host_address, PLAN.node_address) == ("10.123.3.1", "10.123.3.2")
    assert (PLAN.api_service_address, PLAN.dns_address) == ("10.125.3.1", "10.125.3.10")


@pytest.mark.parametrize("name", ["dev", "a", "test-2", "x" * 32])
def test_a_name_that_can_be_a_host_is_taken(name: str) -> None:
    assert require_valid_name(name) == name


@pytest.mark.parametrize("name", ["", "Dev", "a b", "../up", "-a", "a-", "x" * 33, "a\n"])
def test_a_name_that_cannot_be_a_host_is_refused(name: str) -> None:
    with pytest.raises(InvalidRequest):
        require_valid_name(name)


def test_a_directory_too_deep_for_a_socket_is_refused() -> None:
    require_short_path(DIRECTORY)
    with pytest.raises(InvalidRequest, match="too long"):
        require_short_path(Path("/" + "d" * 80))


@pytest.mark.parametrize(
    ("routes", "result"),
    [
        (["default", "192.0.2.0/24", "127.0.0.0/8"], []),
        (["10.0.0.0/8"], []),
        (["10.123.0.0/16"], ["10.123.0.0/16"]),
        (["10.124.3.7"], ["10.124.3.7"]),
        (["10.125.4.0/24"], []),
        (["fe80::/64", "default"], []),
    ],
)
def test_a_network_that_others_route_to_is_not_taken(routes: list[str], result: list[str]) -> None:
    assert overlapping(PLAN, routes) == result


@pytest.mark.parametrize(
    ("file_systems", "modules", "snapshotter"),
    [
        ("nodev\tproc\nnodev\toverlay\n\text4\n", "", "overlayfs"),
        ("\text4\n", "kernel/fs/overlayfs/overlay.ko: kernel/fs/exportfs.ko\n", "overlayfs"),
        ("\text4\n", "", "native"),
    ],
)
def test_without_overlays_the_images_are_copied(file_systems: str, modules: str, snapshotter: str) -> None:
    assert choose_snapshotter(file_systems, modules) == snapshotter


def test_everything_a_program_writes_is_below_the_clusters_directory() -> None:
    report = settings.containerd_file(PLAN, plugins=Path("/plugins"), snapshotter="overlayfs")
    paths = [line.split('"')[1] for line in report.splitlines() if '= "/' in line and "bin_dir" not in line]
    assert [path for path in paths if not path.startswith(str(DIRECTORY))] == []


def test_containerds_settings_are_toml_that_names_our_own_pause_image() -> None:
    import tomllib

    report = tomllib.loads(settings.containerd_file(PLAN, plugins=Path("/plugins"), snapshotter="native"))
    cri = report["plugins"]["io.containerd.grpc.v1.cri"]
    assert (cri["sandbox_image"], cri["containerd"]["snapshotter"]) == (settings.PAUSE_IMAGE, "native")
    assert cri["cni"]["bin_dir"] == "/plugins"


def test_the_api_server_listens_on_the_loopback_alone_where_there_is_no_node() -> None:
    ports = settings.ControlPlane(Path("/p"), Path("/k"), Path("/s"), Path("/d"), 1, 2, 3, 4, 5, None)
    assert "--bind-address=127.0.0.1" in settings.api_server(ports)
    assert f"--advertise-address={PLAN.node_address}" in settings.api_server(settings.for_node(PLAN, Path("/p")))


def test_the_audit_reports_of_people_and_programs_and_not_of_the_clusters_own_parts() -> None:
    report = settings.api_server(settings.for_node(PLAN, Path("/p")))
    assert f"--audit-log-path={PLAN.logs}/audit.log" in report
    silent, spoken = settings.audit_policy()["rules"][:-1], settings.audit_policy()["rules"][-1]
    assert {"level": "Metadata"} == spoken
    assert {"None"} == {rule["level"] for rule in silent}


def test_the_settings_of_the_machine_are_covered_and_not_written() -> None:
    report = script(PLAN, Path("/pause"))
    for setting in ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory", "vm/panic_on_oom"):
        assert f"mount --bind {DIRECTORY}/etc/kernel/{setting} /proc/sys/{setting}" in report
    assert report.splitlines()[0] == "mount --make-rshared /"
    assert report.splitlines()[-1] == "exec /pause"


def test_a_kubeconfig_holds_everything_it_needs(tmp_path: Path) -> None:
    for name in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / name).write_text(name)
    report = settings.kubeconfig(tmp_path, "admin", "https://127.0.0.1:1", "headgate-a")
    assert report["current-context"] == "headgate-a"
    assert str(tmp_path) not in json.dumps(report)


def test_the_path_of_an_object_follows_from_it() -> None:
    service, slice_ = settings.dns_objects(PLAN)
    assert path_of(service) == "/api/v1/namespaces/kube-system/services/kube-dns"
    assert path_of(slice_) == "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns-node"
