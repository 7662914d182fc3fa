"""The recorded state of clusters, and the form of both kinds of cgroups."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from dev.cluster import cgroups, commons, foreign, state
from dev.cluster.fixtures import namespace_for
from dev.cluster.state import Cluster, directory_of, read_cluster, read_clusters
from headgate.errors import EnvironmentProblem


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_STATE", str(tmp_path))
    return tmp_path


def cluster(name: str, mode: str = "node", **more: object) -> Cluster:
    known = {"reason": "r", "ready": True, "kubeconfig": str(directory_of(name) / "kubeconfig"), "kubectl": "kubectl"}
    return Cluster(name=name, mode=mode, **known, **more)  # type: ignore[arg-type]


def test_what_is_written_is_read_again() -> None:
    written = cluster("a", index=2, host_address="10.123.2.1").write()
    assert read_cluster("a") == written
    assert read_cluster("b") is None


def test_clusters_are_found_by_their_files_and_forgotten_with_them() -> None:
    first, second = cluster("a").write(), cluster("b").write()
    assert read_clusters() == [first, second]
    first.forget()
    first.forget()
    assert read_clusters() == [second]


def test_a_file_of_another_version_can_be_read() -> None:
    written = cluster("a").write()
    file = directory_of("a") / state.FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "a_field_of_tomorrow": 1}))
    assert read_cluster("a") == written


def test_a_cluster_elsewhere_has_no_plan() -> None:
    with pytest.raises(EnvironmentProblem):
        _ = cluster("a", "context").plan


def test_two_commands_on_one_cluster_follow_one_another() -> None:
    order: list[str] = []
    entered = threading.Event()

    def second() -> None:
        entered.set()
        with state.one_at_a_time("a"):
            order.append("second")

    with state.one_at_a_time("a"):
        other = threading.Thread(target=second)
        other.start()
        entered.wait()
        order.append("first")
    other.join()
    assert order == ["first", "second"]


@pytest.mark.parametrize(
    ("test", "namespace"),
    [("test_a[x y]", "test-a-x-y-1f"), ("___", "t-1f"), ("test_" + "long_" * 20, "test-" + "long-" * 7 + "1f")],
)
def test_a_namespace_reports_its_test_and_is_a_valid_name(test: str, namespace: str) -> None:
    assert namespace_for(test, "1f") == namespace


def v2(root: Path, offered: str, on: str) -> Path:
    root.mkdir(exist_ok=True)
    for name, text in (("cgroup.controllers", offered), ("cgroup.subtree_control", on), ("cgroup.procs", "")):
        (root / name).write_text(text)
    return root


def test_one_tree_is_known_from_many(tmp_path: Path) -> None:
    one = v2(tmp_path / "one", "cpu memory", "")
    many = tmp_path / "many"
    for name in ("cpu", "pids"):
        (many / name).mkdir(parents=True)
        (many / name / "cgroup.procs").write_text("")
    assert (cgroups.is_v2(one), cgroups.is_v2(many)) == (True, False)
    assert cgroups.trees(one) == [one]
    assert cgroups.trees(many) == [many / "cpu", many / "pids"]
    assert (cgroups.membership_tree(one), cgroups.membership_tree(many)) == (one, many / "pids")


def test_controllers_that_are_missing_are_those_offered_and_not_yet_on(tmp_path: Path) -> None:
    root = v2(tmp_path / "v2", "cpuset cpu io memory pids rdma", "memory pids")
    assert cgroups.missing_at_the_top(root) == ("cpu", "cpuset", "io")


def test_a_cpuset_is_filled_from_its_parent(tmp_path: Path) -> None:
    tree = tmp_path / "cpuset"
    for directory in (tree, tree / "c", tree / "c" / "system"):
        directory.mkdir()
        (directory / "cgroup.procs").write_text("")
        for file in ("cpuset.cpus", "cpuset.mems"):
            (directory / file).write_text("0-1\n" if directory == tree else "\n")
    cgroups.make("c", tmp_path)
    assert (tree / "c" / "system" / "cpuset.cpus").read_text() == "0-1\n"


def test_a_process_is_born_in_the_cgroup_and_becomes_the_command(tmp_path: Path) -> None:
    root = v2(tmp_path / "v2", "", "")
    command = cgroups.enter("c", ["etcd", "--a b"], root)
    assert command[:2] == ["/bin/sh", "-c"]
    assert f'"{root}/c/system/cgroup.procs"' in command[2]
    assert command[2].endswith('exec "$@"')
    assert command[4:] == ["etcd", "--a b"]


def test_members_are_counted_below_too(tmp_path: Path) -> None:
    root = v2(tmp_path / "v2", "", "")
    (root / "c" / "pods" / "p").mkdir(parents=True)
    (root / "c" / "cgroup.procs").write_text("11\n")
    (root / "c" / "pods" / "p" / "cgroup.procs").write_text("12\n13\n0\n")
    assert cgroups.members("c", root) == {11, 12, 13}
    assert cgroups.members("nobody", root) == set()


def test_what_clusters_share_is_remembered_until_the_last_has_gone(own_state: Path) -> None:
    assert commons.read() == commons.Commons()
    (own_state / "commons.json").write_text(
        '{"directories": ["/a"], "mounted_namespaces": true, "controllers": ["cpu"]}'
    )
    assert commons.read() == commons.Commons(("/a",), True, ("cpu",))


class Commands:
    """Answers for programs that are not there."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, argv: Sequence[str]) -> str:
        line = " ".join(argv)
        self.asked.append(line)
        return next((answer for begin, answer in self.answers.items() if line.startswith(begin)), "")


NETWORK = '[{"IPAM": {"Config": [{"Subnet": "fc00::/64", "Gateway": "fc00::1"}, {"Gateway": "172.18.0.1"}]}}]'


def test_kind_makes_a_cluster_of_its_own_with_a_kubeconfig_of_its_own() -> None:
    commands = Commands({"kind get clusters": "other\n", "docker network inspect kind": NETWORK})
    made = foreign.bring_up(cluster("a", "kind"), commands)
    assert (made.ready, made.host_address) == (True, "172.18.0.1")
    assert [line for line in commands.asked if "create" in line] == [
        f"kind create cluster --name headgate-a --kubeconfig {made.kubeconfig} --wait 120s"
    ]


def test_a_cluster_of_kind_that_is_there_is_used() -> None:
    commands = Commands({"kind get clusters": "headgate-a\n", "docker network inspect kind": NETWORK})
    foreign.bring_up(cluster("a", "kind"), commands)
    assert not [line for line in commands.asked if "create" in line]


def test_k3d_leaves_the_users_kubeconfig_alone() -> None:
    commands = Commands({"k3d cluster list": "[]", "docker network inspect k3d-headgate-a": NETWORK})
    foreign.bring_up(cluster("a", "k3d"), commands)
    (created,) = [line for line in commands.asked if "cluster create" in line]
    assert "--kubeconfig-update-default=false --kubeconfig-switch-context=false" in created


def test_down_ends_what_was_made_and_leaves_a_named_context_alone() -> None:
    commands = Commands({})
    foreign.take_down(cluster("a", "context", context="prod").write(), commands)
    assert commands.asked == []
    foreign.take_down(cluster("a", "k3d").write(), commands)
    assert commands.asked == ["k3d cluster delete headgate-a"]
    assert read_cluster("a") is None


def test_an_image_cannot_be_put_into_a_named_context(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="named"):
        foreign.load_archive(cluster("a", "context", context="prod"), tmp_path / "image.tar", Commands({}))
