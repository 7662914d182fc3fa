"""The inputs of programs and packages, and the report of a failed build."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from dev.cluster import golang, programs
from dev.cluster.certificates import wanted
from dev.cluster.foreign import address_towards
from dev.cluster.golang import Own, Published, entry_version, go_version, remedy_for


@pytest.mark.parametrize(
    ("answer", "version"),
    [("go version go1.24.3 linux/amd64", (1, 24)), ("go version go1.19 linux/arm64", (1, 19)), ("no", None)],
)
def test_the_version_of_go_is_read(answer: str, version: tuple[int, int] | None) -> None:
    assert go_version(answer) == version


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("write /tmp/x: no space left on device", "The disk is full"),
        ("go: x@v1: verifying module: checksum mismatch", "not the pinned one"),
        ("go: x@v1: dial tcp: lookup proxy: no such host", "check the network and GOPROXY"),
        ("compile: signal: killed", "out of memory"),
        ("go: downloading x v1\n./main.go:3: undefined: y\ngo: downloading z v1\n", "./main.go:3: undefined: y"),
        ("", "(no output)"),
    ],
)
def test_a_failed_build_reports_what_to_do_in_one_line(output: str, message: str) -> None:
    assert message in remedy_for(output)
    assert "\n" not in remedy_for(output)


def test_a_change_of_source_or_settings_makes_another_cache_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(golang.FOLDER / "pause", tmp_path / "pause")
    monkeypatch.setattr(golang, "FOLDER", tmp_path)
    first = entry_version(Own("pause", "1", "building", 1))
    assert entry_version(Own("pause", "1", "the same in other words", 2)) == first
    assert entry_version(Own("pause", "1", "building", 1, variables={"main.x": "1"})) != first
    (tmp_path / "pause" / "main.go").write_text("package main\n")
    assert entry_version(Own("pause", "1", "building", 1)) != first


@pytest.mark.parametrize("program", programs.EXTRAS.values(), ids=lambda program: program.name)
def test_what_others_publish_is_pinned_by_version_and_sum(program: Published) -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", program.version)
    assert re.fullmatch(r"h1:[A-Za-z0-9+/]{43}=", program.module_sum)


@pytest.mark.parametrize("name", ["hyperkube", "coredns"])
def test_the_version_reported_is_the_version_pinned(name: str) -> None:
    program = next(each for each in programs.FOR_A_NODE if each.name == name)
    module = {"hyperkube": "k8s.io/kubernetes", "coredns": "github.com/coredns/coredns"}[name]
    requirements = (golang.FOLDER / name / "go.mod").read_text()
    assert re.findall(rf"^(?:require)?\s*{re.escape(module)} v(\S+)", requirements, re.MULTILINE) == [program.version]


def test_no_module_is_replaced_by_a_directory() -> None:
    requirements = (golang.FOLDER / "hyperkube" / "go.mod").read_text()
    assert re.findall(r"=> \.\S*", requirements) == []
    assert len(re.findall(rf"=> k8s\.io/\S+ v0\.{programs.KUBERNETES.partition('.')[2]}$", requirements, re.M)) > 20


def test_the_api_server_is_known_by_every_name_it_is_called_by() -> None:
    (server,) = [each for each in wanted(node_name="n", addresses=("127.0.0.1",)) if each["name"] == "apiserver"]
    assert server["hosts"] == [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
    ]


def test_the_loopback_is_no_address_for_pods() -> None:
    assert address_towards("https://127.0.0.1:6443") is None
    assert address_towards("not a url") is None
