"""`headgate plan`: what the operator would do, printed offline; the files of examples are golden."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from headgate.api.read.loader import load_files
from headgate.api.read.parse import parse_resource
from headgate.cli import main as cli_main
from headgate.cli.main import main
from headgate_operator.dry_run.format_plan import build_plan_document
from headgate_operator.dry_run.offline import empty_ahead, settings_of
from headgate_operator.dry_run.projection import PlanProjection
from headgate_operator.manifests.document_diff import stamped
from headgate_operator.model.names import APPLIED
from headgate_operator.model.plan import ApplyObject
from tests.golden.plan.running import PLANS, planned
from tests.unit.api.api_cases import ACCEPTED, ROOT, document

NOW_US = 1_800_000_000_000_000


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["plan", *arguments])
    return result.exit_code, result.stdout, result.stderr


def written(folder: Path, *specs: tuple[str, str, Mapping[str, Any]]) -> str:
    """A file with these resources: (kind, name, spec)."""
    documents = [
        {
            "apiVersion": "headgate.io/v1beta1",
            "kind": kind,
            "metadata": {"name": name, "namespace": "shop"},
            "spec": dict(spec),
        }
        for kind, name, spec in specs
    ]
    path = folder / "resources.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def document_of(path: str, *, code: int = 0) -> dict[str, Any]:
    result, out, err = run("-f", path, "-o", "json")
    assert (result, err) == (code, "")
    decoded: dict[str, Any] = json.loads(out)
    return decoded


def messages_of(report: Mapping[str, Any]) -> list[str]:
    return [effect["message"] for effect in report["effects"]]


def at(sentences: Sequence[str], start: str) -> int:
    matches = [number for number, sentence in enumerate(sentences) if sentence.startswith(start)]
    assert matches, f"nothing begins with {start!r}: {sentences}"
    return matches[0]


def ahead_of(path: Path | str) -> PlanProjection:
    ahead = empty_ahead(load_files([Path(path)]), settings_of("0.1.0"), NOW_US)
    while ahead.turn():
        pass
    return ahead


CONSUMER = {"name": "mailer", "image": "shop:1", "handler": "a:b"}


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_the_plan_of_an_example_is_as_it_was_read_by_a_person(plan: Path) -> None:
    expected = plan.read_text(encoding="utf-8")
    assert expected == planned(plan), "run `python -m tests.golden.plan --write`; read the diff"


def test_after_the_plan_nothing_is_left_to_decide() -> None:
    ahead = ahead_of(ROOT / "examples/shop.yaml")
    assert [] == [key for key, plan in ahead.plans.items() if not plan.is_settled]
    assert not ahead.turn()


def test_objects_are_shown_word_for_word_but_for_secrets_and_digests_of_what_is_not_known() -> None:
    decoded = document_of(str(ROOT / "examples/shop.yaml"))
    shown = {each["object"]["metadata"]["name"]: each["object"] for each in decoded["effects"] if "object" in each}
    effects = [one.effect for one in ahead_of(ROOT / "examples/shop.yaml").done]
    for made in (effect.document for effect in effects if isinstance(effect, ApplyObject)):
        metadata = made["metadata"]
        if made["kind"] in ("Secret", "CronJob"):
            continue
        bare = {**made, "metadata": {name: part for name, part in metadata.items() if name != "annotations"}}
        known = dict(shown[metadata["name"]])
        known["metadata"] = {name: part for name, part in known["metadata"].items() if name != "annotations"}
        assert bare == known
        assert metadata["annotations"][APPLIED] == stamped(bare)["metadata"]["annotations"][APPLIED]
    assert "<content of the operator's own Secret>" == shown["headgate-connection"]["data"]


def test_the_statements_alone_are_cql_and_the_objects_alone_are_yaml() -> None:
    code, cql, _ = run("-f", str(ROOT / "examples/shop.yaml"), "--only", "cql")
    assert 0 == code
    statements = [each.strip() for each in cql.split(";\n")]
    assert all(each.lstrip("-").startswith((" queue", " counter", "CREATE")) for each in statements if each)
    code, text, _ = run("-f", str(ROOT / "examples/shop.yaml"), "--only", "objects")
    kinds = [each["kind"] for each in yaml.safe_load_all(text) if each]
    assert ["ServiceAccount", "Secret", "CronJob", "CronJob", "Deployment"] == kinds


def test_files_may_be_named_like_kubectl_names_them_or_one_after_the_other(tmp_path: Path) -> None:
    other = written(tmp_path, ("Queue", "other", {}))
    shop = str(ROOT / "examples/shop.yaml")
    ways = [run("-f", shop, "-f", other), run("-f", shop, other), run("--filename", shop, other), run(shop, other)]
    assert [ways[0]] * 4 == ways
    assert "queue shop/other: Ready" in ways[0][1]


def test_what_several_resources_share_is_made_once(tmp_path: Path) -> None:
    shared = {"storage": {"tables": "shared"}}
    decoded = document_of(written(tmp_path, ("Queue", "a", shared), ("Queue", "b", shared)))
    sentences = messages_of(decoded)
    made = [each for each in sentences if each.startswith(("create table", "create keyspace", "create CronJob"))]
    assert len(made) == len({*made})
    assert "<id of" not in json.dumps([each.get("cql") for each in decoded["effects"]])
    assert not any(each.startswith("the ids that name") for each in decoded["unknown"])


def test_a_finalizer_comes_before_the_first_table(tmp_path: Path) -> None:
    sentences = messages_of(document_of(written(tmp_path, ("Queue", "a", {"deletionPolicy": "Delete"}))))
    assert at(sentences, "add the finalizer") < at(sentences, "create table headgate.q_")


def test_without_scaling_there_is_a_worker_for_each_shard_and_a_budget_that_protects_them(tmp_path: Path) -> None:
    sentences = messages_of(document_of(written(tmp_path, ("Queue", "a", {"shards": 3, "consumers": [CONSUMER]}))))
    assert "3 replicas of shop:1" in sentences[at(sentences, "create Deployment a-mailer")]
    assert at(sentences, "create PodDisruptionBudget") > at(sentences, "create Deployment")


def test_replicas_that_are_somebody_elses_are_left_out(tmp_path: Path) -> None:
    consumer = {**CONSUMER, "scaling": {"mode": "external"}}
    decoded = document_of(written(tmp_path, ("Queue", "a", {"consumers": [consumer]})))
    documents = [each["object"] for each in decoded["effects"] if each.get("object", {}).get("kind") == "Deployment"]
    assert [False] == ["replicas" in document["spec"] for document in documents]


def test_a_secret_of_its_own_is_named_and_none_is_copied(tmp_path: Path) -> None:
    storage = {"connectionSecret": "mine", "dataCenter": "dc7", "keyspace": "ks7", "replication": 2}
    decoded = document_of(written(tmp_path, ("Queue", "a", {"storage": storage, "consumers": [CONSUMER]})))
    assert not any(each.startswith("create Secret") for each in messages_of(decoded))
    cql = [each["cql"] for each in decoded["effects"] if "cql" in each]
    assert any("CREATE KEYSPACE" in each and "ks7" in each and "'dc7': '2'" in each for each in cql)
    assert "whether Secret mine exists, and whether it leads to a Cassandra" in decoded["unknown"]


@pytest.mark.parametrize(
    ("specs", "reason"),
    [
        ([("Queue", "a", {"engine": "bucket"})], "EngineUnavailable"),
        ([("Queue", "a", {"deadLetter": "b"}), ("Queue", "b", {"deadLetter": "a"})], "DeadLetterCycle"),
    ],
)
def test_what_only_its_author_can_fix_is_reported_with_exit_code_2(
    tmp_path: Path, specs: list[tuple[str, str, dict[str, Any]]], reason: str
) -> None:
    decoded = document_of(written(tmp_path, *specs), code=2)
    assert all(end["stalled"] and reason in end["message"] for end in decoded["ends"])


def test_for_an_engine_that_is_not_supported_nothing_is_made(tmp_path: Path) -> None:
    sentences = messages_of(document_of(written(tmp_path, ("Queue", "a", {"engine": "bucket"})), code=2))
    assert [True] == [each.startswith("write the status: not Ready, EngineUnavailable") for each in sentences]


def test_a_dead_letter_queue_that_is_in_no_file_is_reported_and_keeps_nothing_from_being_made(tmp_path: Path) -> None:
    path = written(tmp_path, ("Queue", "a", {"deadLetter": "b", "consumers": [CONSUMER]}))
    code, out, _ = run("-f", path, "--only", "order")
    assert 0 == code
    assert "queue shop/a: not Ready, DeadLetterMissing: there is no queue b" in out
    assert "create Deployment a-mailer" in out


def test_a_template_that_cannot_be_merged_is_reported(tmp_path: Path) -> None:
    consumer = {**CONSUMER, "template": {"spec": {"containers": [{"image": "no-name"}]}}}
    decoded = document_of(written(tmp_path, ("Queue", "a", {"consumers": [consumer]})))
    assert [False] == [end["ready"] for end in decoded["ends"]]
    assert "template" in decoded["ends"][0]["message"]


def test_documents_of_others_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text("apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n")
    assert (2, "", f"The files have no Queue and no Counter (files={path})\n") == run("-f", str(path))


def test_bad_files_are_reported_as_by_validate(tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text("apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {name: q}\nspec:\n  shards: 0\n")
    assert (2, "", f"{path}:5: document 1, Queue q: spec.shards: must be at least 1\n") == run("-f", str(path))
    assert (2, "", f"{tmp_path / 'none'} does not exist\n") == run("-f", str(tmp_path / "none"))
    code, out, err = run()
    assert (2, "") == (code, out)
    assert "Missing argument 'FILES...', or option '-f'" in err


# ---- how it joins the command line


def joined(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    entry = EntryPoint("plan", value, "headgate.commands")
    monkeypatch.setattr(cli_main, "entry_points", lambda group: [entry] if group == cli_main.JOINING else [])


@pytest.mark.parametrize("value", ["headgate_nowhere.plan:command", "headgate_operator.dry_run.format_plan:command"])
def test_a_command_that_is_not_installed_whole_reports_it_in_one_line_and_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    joined(monkeypatch, value)
    code, out, err = run("-f", "q.yaml")
    assert (1, "", 1) == (code, out, err.count("\n"))
    assert err.startswith("headgate: This command is not installed completely (command=plan, reason=")
    assert 0 == CliRunner().invoke(main, ["--help"]).exit_code


def test_without_the_operator_there_is_no_such_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_main, "entry_points", lambda group: [])
    code, _, err = run("-f", "q.yaml")
    assert 2 == code
    assert "No such command 'plan'" in err
    assert "plan" not in main.list_commands(click.Context(main))


def test_a_joined_command_takes_no_name_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("send", "headgate_nowhere:command", "headgate.commands")
    monkeypatch.setattr(cli_main, "entry_points", lambda group: [entry])
    assert 0 == CliRunner().invoke(main, ["send", "--help"]).exit_code


def test_whatever_the_api_server_accepts_has_a_plan_with_an_end() -> None:
    settings = settings_of("0.1.0")
    for number, (kind, spec) in enumerate(ACCEPTED):
        resource = parse_resource({**document(kind, spec), "metadata": {"name": f"n{number}", "namespace": "shop"}})
        ahead = empty_ahead([resource], settings, NOW_US)
        while ahead.turn():
            pass
        assert [] == [key for key, plan in ahead.plans.items() if not plan.is_settled], spec
        assert [True] == [bool(end["message"]) for end in build_plan_document(ahead)["ends"]], spec


def test_neither_plan_nor_plugin_needs_what_only_the_operators_process_needs() -> None:
    """`pip install headgate` is enough for both, without any extra."""
    program = (
        "import sys\n"
        "for name in ('kopf', 'kubernetes', 'aiohttp', 'prometheus_client', 'pyspark'): sys.modules[name] = None\n"
        "import headgate_operator.cli.kubectl_plugin\n"
        "from headgate.cli.main import main\n"
        f"main(['plan', '-f', {str(ROOT / 'examples/shop.yaml')!r}, '--only', 'order'])\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)
    assert (0, "") == (ran.returncode, ran.stderr)
    assert "queue shop/emails: Ready" in ran.stdout
