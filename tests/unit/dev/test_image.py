"""The contents of an image, when it is built again, and what a base image learns of this machine."""

from __future__ import annotations

import re
import shutil
import tarfile
import tomllib
from pathlib import Path

import pytest

from dev.cluster import docker_build, image
from dev.cluster.docker_build import KEPT_STAGES, base_tag, copy_with_files, last_words
from dev.cluster.machine_settings import apt_proxy, apt_settings, apt_sources, mirror_of, pip_settings, proxies
from headgate.errors import EnvironmentProblem, InvalidRequest
from headgate_operator.manifests.spark_application import PROGRAM

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of all that a build reads."""
    for path in image.context_files(ROOT):
        copied = tmp_path / path.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copied)
    return tmp_path


def sources(dockerfile: str) -> set[str]:
    """The paths that the Dockerfile copies from the tree."""
    copies = re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE)
    return {word for line in copies for word in line.split()[:-1]}


def let_in(ignore: str) -> set[str]:
    return set(re.findall(r"^!(\S+)$", ignore, re.MULTILINE))


def test_a_build_is_sent_what_the_dockerfile_copies_and_nothing_else() -> None:
    assert sources(DOCKERFILE) == let_in((ROOT / ".dockerignore").read_text())


def test_all_that_the_wheel_holds_is_copied() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert set(wheel) - sources(DOCKERFILE) == set()


def test_every_image_and_every_kept_stage_is_one_of_the_dockerfile() -> None:
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", DOCKERFILE, re.MULTILINE))
    assert {*image.TARGETS, *(stage for kept in KEPT_STAGES.values() for stage in kept)} - stages == set()


def test_the_label_of_the_version_is_the_projects() -> None:
    report = re.findall(r"^ARG VERSION=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert report == [PROJECT["project"]["version"]] * len(image.TARGETS)


def test_every_installation_asks_for_hashes_or_has_no_index() -> None:
    commands = re.split(r"&&|^RUN ", DOCKERFILE.replace("\\\n", " "), flags=re.MULTILINE)
    pips = [command for command in commands if "-m pip" in command]
    sure = re.compile(r"--require-hashes|--no-index|--no-deps --no-build-isolation")
    assert (6, []) == (len(pips), [command for command in pips if not sure.search(" ".join(command.split()))])


def test_the_dockerfile_names_no_host_no_mirror_and_no_certificate() -> None:
    assert re.findall(r"\S+://\S+|\S*index-url\S*|\S+\.(?:crt|pem)", DOCKERFILE) == []


def test_the_base_is_the_release_whose_java_is_17() -> None:
    assert base_tag() == "python:3.11-slim-bookworm"


def test_the_main_file_of_bulk_jobs_is_where_the_operator_states() -> None:
    assert PROGRAM == "local:///opt/headgate/bulk.py"
    assert "> headgate/bulk.py" in DOCKERFILE


def test_the_same_tree_is_the_same_version_whenever_it_was_copied(tree: Path) -> None:
    assert image.version_of("headgate", "base", tree) == image.version_of("headgate", "base", ROOT)


@pytest.mark.parametrize("file", ["Dockerfile", "requirements.lock", "workers/headgate/errors.py", ".dockerignore"])
def test_a_change_of_what_goes_in_is_another_version(tree: Path, file: str) -> None:
    before = image.version_of("headgate", "base", tree)
    (tree / file).write_text((tree / file).read_text() + "\n")
    assert image.version_of("headgate", "base", tree) != before


def test_another_base_another_target_and_a_new_file_are_other_versions(tree: Path) -> None:
    first = image.version_of("headgate", "base", tree)
    others = {image.version_of("headgate", "other", tree), image.version_of("headgate-spark", "base", tree)}
    (tree / "workers/headgate/new.py").write_text("")
    others.add(image.version_of("headgate", "base", tree))
    assert (len(others), first in others) == (3, False)


def test_what_python_has_compiled_and_what_is_not_sent_makes_no_other_version(tree: Path) -> None:
    before = image.version_of("headgate", "base", tree)
    (tree / "workers/headgate/__pycache__").mkdir()
    (tree / "workers/headgate/__pycache__/errors.pyc").write_bytes(b"")
    (tree / "notes.txt").write_text("")
    assert image.version_of("headgate", "base", tree) == before


def test_a_target_that_is_not_there_is_one_line() -> None:
    with pytest.raises(InvalidRequest, match="available: headgate, headgate-spark"):
        image.build_image("penstok")


def test_where_nothing_can_build_one_line_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_build, "docker_runs", lambda: False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(EnvironmentProblem, match=r"this machine cannot build an image .*only root can start one"):
        image.build_image("headgate")


def test_pip_in_the_base_is_set_as_it_is_here_a_variable_winning_over_a_file() -> None:
    listed = (
        ":env:.index-url='https://from.variable/simple'\n:env:.find-links='/not/there'\n"
        "global.cert='/somewhere/ca.crt'\nglobal.index-url='https://from.file/simple'\ninstall.timeout='60'\n"
    )
    assert pip_settings(listed).splitlines() == [
        "[global]",
        "cert = /etc/ssl/certs/ca-certificates.crt",
        "index-url = https://from.variable/simple",
        "timeout = 60",
    ]


def test_apt_in_the_base_has_this_release_its_updates_and_security_alone() -> None:
    targets = (
        "http://a/debian/ bookworm oldstable main\nhttp://a/debian/ bookworm-updates oldstable-updates main\n"
        "http://s/security/ bookworm-security oldstable-security main\nhttps://node/ nodistro nodistro main\n"
        "http://a/debian/ trixie stable main\ncdrom:x bookworm stable main\n"
    )
    assert apt_sources(targets, "bookworm").splitlines() == [
        "deb http://a/debian/ bookworm main",
        "deb http://a/debian/ bookworm-updates main",
        "deb http://s/security/ bookworm-security main",
    ]


def test_apts_proxies_reach_the_base_and_its_other_settings_do_not() -> None:
    dumped = 'APT::Architecture "amd64";\nAcquire::http::Proxy "http://p:3128";\nAcquire::Languages "none";\n'
    assert apt_settings(dumped) == 'Acquire::http::Proxy "http://p:3128";\n'


def test_the_mirror_is_that_of_the_release_and_not_of_its_updates() -> None:
    answer = "http://a/debian/ bookworm-updates\nhttp://b/debian/ bookworm\ncdrom:x bookworm\n"
    assert mirror_of(answer, "bookworm") == "http://b/debian/"
    assert mirror_of(answer, "trixie") is None


def test_the_proxy_of_apt_is_found_and_a_direct_way_is_none() -> None:
    assert apt_proxy('Acquire::http::Proxy "http://proxy:3128";\n') == "http://proxy:3128"
    assert apt_proxy('Acquire::http::Proxy "DIRECT";\n') == ""
    assert apt_proxy("") == ""


def test_proxies_are_handed_on_in_either_spelling() -> None:
    values = {"http_proxy": "http://p", "HTTPS_PROXY": "http://q", "no_proxy": "", "PATH": "/bin"}
    assert proxies(values) == {"http_proxy": "http://p", "HTTPS_PROXY": "http://q"}


def test_a_file_added_to_a_root_takes_the_place_of_the_one_that_was_there(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in ("kept", "replaced"):
        (tmp_path / "old" / name).write_text("old")
    with tarfile.open(tmp_path / "old.tar", "w") as archive:
        for name in ("kept", "replaced"):
            archive.add(tmp_path / "old" / name, arcname=f"etc/{name}")
    added = {"/etc/replaced": "new", "/etc/added": "new"}
    copy_with_files(tmp_path / "old.tar", tmp_path / "new.tar", added, ["/var/log"])
    with tarfile.open(tmp_path / "new.tar") as archive:
        assert archive.getmember("var/log").isdir()
        files = {name: archive.extractfile(name) for name in archive.getnames()}
        assert {name: file.read() for name, file in files.items() if file} == {
            "etc/kept": b"old",
            "etc/replaced": b"new",
            "etc/added": b"new",
        }


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("Step 3/9\nERROR: no matching distribution\nThe command returned 1\n", "ERROR: no matching distribution"),
        ("\x1b[91mE\x1b[0m\x1b[91m: no such package\x1b[0m\nThe command returned 100\n", "E: no such package"),
        ("one\ntwo\nthree\n", "two / three"),
        ("", "(no output)"),
    ],
)
def test_a_failed_build_reports_what_failed_in_one_line(output: str, message: str) -> None:
    assert last_words(output) == message
