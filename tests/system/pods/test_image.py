"""The image `headgate`, built by its Dockerfile on a Docker engine, and run as strict clusters run it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.cluster import docker_build, image
from dev.servers.docker_engine import DockerEngine
from tests.system.pods.image_built import ANYBODY, CODE_AT_MOST, MIB, STRANGER, VERSION, Built, built

pytestmark = pytest.mark.skipif(docker_build.obstacle() is not None, reason="needs root: a Docker engine of its own")

OURS_AT_MOST = 300 * MIB
"""The largest size on top of the base image, not compressed. docs/chart.md states the present one."""

IMPORT_ALL = """
import importlib, pkgutil, sys
packages, without = sys.argv[1].split(","), tuple(sys.argv[2].split(","))
count = 0
for package in packages:
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, package + "."):
        if not module.name.startswith(without) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            count += 1
print(count)
"""


@pytest.fixture(scope="module")
def ours() -> Iterator[Built]:
    with built("headgate") as made:
        yield made


@pytest.mark.parametrize("user", [ANYBODY, STRANGER])
@pytest.mark.parametrize("command", ["headgate", "headgate-operator"])
def test_commands_report_the_projects_version_whichever_process_runs_them(
    ours: Built, command: str, user: str
) -> None:
    assert VERSION == ours.output_of(command, "--version", user=user).split()[-1]


@pytest.mark.parametrize("command", ["worker", "repair", "gc", "apply", "plan"])
def test_every_process_of_a_queue_finds_all_that_it_needs(ours: Built, command: str) -> None:
    assert f"Usage: headgate {command}" in ours.output_of("headgate", command, "--help")


def test_every_module_of_the_data_plane_and_the_operator_can_be_imported(ours: Built) -> None:
    count = ours.output_of("python3", "-c", IMPORT_ALL, "headgate,headgate_operator", "headgate.testing")
    assert int(count) > 200


def test_the_operator_states_in_one_line_that_it_finds_no_cluster(ours: Built) -> None:
    ran = ours.run("headgate-operator", user=ANYBODY)
    assert (1, 1) == (ran.code, len(ran.err.strip().splitlines())), ran
    assert "Traceback" not in ran.out + ran.err


def test_workers_run_on_the_fast_loop_and_sketches_are_there(ours: Built) -> None:
    assert "" == ours.output_of(
        "python3", "-c", "import uvloop, datasketches, prometheus_client, opentelemetry.trace"
    )


def test_what_is_imported_was_compiled_when_the_image_was_built(ours: Built) -> None:
    assert ours.is_compiled()


def test_no_compiler_no_cache_and_no_sources_of_the_build_are_left(ours: Built) -> None:
    assert [] == ours.left_of_the_build()


def test_nothing_but_the_places_for_temporary_files_may_be_written_by_anybody(ours: Built) -> None:
    assert [] == ours.writable_by_anybody()


def test_the_user_is_a_number_that_is_not_root_so_that_kubernetes_can_see_it(ours: Built) -> None:
    assert "65532:65532" == ours.config["User"]


def test_the_label_reports_the_version(ours: Built) -> None:
    assert VERSION == ours.config["Labels"]["org.opencontainers.image.version"]


def test_the_size_stays_within_what_the_page_states(ours: Built) -> None:
    base, *layers = [layer.size for layer in ours.image.layers]
    assert (True, True) == (sum(layers) < OURS_AT_MOST, layers[-1] < CODE_AT_MOST), layers
    assert base > 0


def test_the_image_that_a_cluster_is_given_is_the_one_that_docker_has_built(ours: Built) -> None:
    assert (ours.image.id, [each.digest for each in ours.image.layers]) == ours.in_docker()


def test_a_second_build_of_the_same_tree_needs_no_engine(ours: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise AssertionError("nothing has changed")

    monkeypatch.setattr(image, "builder", refused)
    assert ours.image == image.build_image("headgate")


def test_an_engine_that_builds_changes_nothing_of_the_network_and_ends_with_all_but_what_it_keeps(
    tmp_path: Path,
) -> None:
    def network() -> tuple[list[str], str, str]:
        links = sorted(path.name for path in Path("/sys/class/net").iterdir())
        routes = Path("/proc/net/route").read_text()
        return links, routes, Path("/proc/sys/net/ipv4/ip_forward").read_text()

    before = network()
    with DockerEngine.start_to_build(tmp_path / "kept") as engine:
        directory = engine.directory
        assert before == network()
    assert (before, False) == (network(), directory.exists())
    assert (tmp_path / "kept" / "image").is_dir()
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
