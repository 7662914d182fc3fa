"""`headgate validate`: one line a fault on stderr, exit code 2, never a traceback."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from headgate.cli.main import COMMANDS, main
from tests.unit.api.api_cases import ROOT


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_valid_files_are_counted() -> None:
    assert run("validate", str(ROOT / "examples/shop.yaml")) == (
        0,
        "valid: 1 Counter, 2 Queues; 2 of other kinds ignored\n",
        "",
    )


def test_each_fault_is_a_line_and_the_exit_code_is_2(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(
        "apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec:\n  shards: 0\n  delay: 1\n"
    )
    code, out, err = run("validate", str(path))
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"{path}:5: document 1, Queue q: spec.shards: must be at least 1",
        f"{path}:6: document 1, Queue q: spec.delay: must be a duration such as 500ms, 90s, 1h30m or 14d, "
        "from 0s to 3650d",
    ]


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    assert run("validate", str(path)) == (2, "", f"{path} does not exist\n")


def test_no_file_is_a_wrong_call() -> None:
    code, out, err = run("validate")
    assert (code, out) == (2, "")
    assert "Missing argument 'FILES...'" in err


def test_the_version_is_reported() -> None:
    code, out, _ = run("--version")
    assert code == 0
    assert out.startswith("headgate, version ")


def test_every_command_that_is_listed_can_be_called() -> None:
    for name in COMMANDS:
        code, out, _ = run(name, "--help")
        assert (code, out.startswith("Usage: ")) == (0, True)


def test_files_are_arguments_or_options_and_a_dash_is_standard_input() -> None:
    file = ROOT / "examples/shop.yaml"
    text = file.read_text(encoding="utf-8")
    for arguments in (["validate", "-f", str(file)], ["validate", "-"], ["validate", "-f", "-"]):
        done = CliRunner().invoke(main, arguments, input=text)
        assert (0, "valid: 1 Counter, 2 Queues; 2 of other kinds ignored\n") == (done.exit_code, done.stdout)
    broken = CliRunner().invoke(
        main, ["validate", "-"], input=text.replace("kind: Counter", "kind: Counter\nspce: {}")
    )
    assert 2 == broken.exit_code
    assert broken.stderr.startswith("standard input:")


def test_json_lists_resources_and_faults(tmp_path: Path) -> None:
    valid = json.loads(run("validate", str(ROOT / "examples/shop.yaml"), "-o", "json")[1])
    assert (True, [], 2) == (valid["valid"], valid["faults"], valid["ignored"])
    assert {"kind": "Queue", "name": "shop/emails"} in valid["resources"]
    assert "queue/shop/emails" in run("validate", str(ROOT / "examples/shop.yaml"), "-o", "name")[1].splitlines()
    path = tmp_path / "q.yaml"
    path.write_text("apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec: {shards: 0}\n")
    code, out, err = run("validate", str(path), "-o", "json")
    (fault,) = json.loads(out)["faults"]
    assert (2, "", 4, "spec.shards") == (code, err, fault["line"], fault["path"])
