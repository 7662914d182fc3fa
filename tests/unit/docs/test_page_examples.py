"""Every example of the pages is held to what is there: resources are valid, commands take what they are given.

Programs and command lines that need servers are run by tests/system; this file checks what needs no server.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
import yaml

from dev import demo_day, demo_spark
from dev.demo import list_next_commands
from headgate.api.read.parse import check_resource
from headgate.api.resources.passed_on import ITEMS_MAX
from headgate.api.rules.bounds import DEPTH_MAX, PASSED_ON_BYTES_MAX, SPEC_BYTES_MAX
from headgate.applying.decide_steps import TABLES_MAX
from headgate.engines.lanes.delivery.rows import HOLES_MAX
from headgate.engines.registry import ENGINE_MODULES, tables_of
from headgate.engines.timeline.engine import LANES_MAX
from headgate.engines.timeline.model.layout import TTL_S_MAX
from headgate.engines.timeline.model.row import ROW_BYTES_MAX, ROW_MESSAGES_MAX
from headgate.engines.timeline.put.once import SCOPE_KEYS_MAX
from headgate.store.catalogue.tables import CATALOGUE_TABLES
from tests.kit.page_examples import ROOT, RUN_BY, Example, commands_of, examples_of, faults_of, faults_within

DOCS = ROOT / "docs"
PAGES = [*sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")), "../README.md", "../CONTRIBUTING.md"]
GENERATED = ("commands.md",)
"""Its indented lines show how a command is used, with names for values; test_commands_page compares it to them."""
EXAMPLES = [example for page in PAGES if page not in GENERATED for example in examples_of(page)]
YEAR_S = 365 * 86_400


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_an_example_names_what_can_be_done(example: Example) -> None:
    assert [] == faults_of(example)


def test_every_block_of_commands_is_run_by_a_test_or_has_the_reason_beside_it() -> None:
    blocks = [each for each in EXAMPLES if each.language == "sh"]
    assert [] == [str(each) for each in blocks if not each.is_run and each.words[:1] == ("parsed",) == each.words]
    assert set(RUN_BY) == {each.page for each in blocks if each.is_run}
    assert [] == [page for page, test in RUN_BY.items() if f'"{page}"' not in (ROOT / test).read_text()]


@pytest.mark.parametrize("page", PAGES)
def test_a_command_within_a_sentence_is_there_with_its_options_and_files(page: str) -> None:
    assert [] == faults_within(page, (DOCS / page).read_text(encoding="utf-8"))


def test_what_the_demo_prints_to_try_can_be_done() -> None:
    lines = list_next_commands(context="prod")
    assert {"headgate", "kubectl", "python"} <= {line.split()[0] for line in lines}
    (example,) = examples_of("demo", "```sh\n" + "\n".join(lines) + "\n```\n")
    assert [] == faults_of(example)


@pytest.mark.parametrize("line", [*demo_day.LINES, *demo_spark.LINES])
def test_a_command_that_the_demo_types_can_be_typed(line: str) -> None:
    (example,) = examples_of("demo", f"```sh\n{line}\n```\n")
    assert [] == faults_of(example)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("See `headgate stats --lane`.", "No such option"),
        ("See `headgate state`.", "No such command"),
        ("Run `make demonstration`.", "no such target"),
        ("Run `headgate apply examples/gone.yaml`.", "examples/gone.yaml is not there"),
    ],
)
def test_a_command_within_a_sentence_that_cannot_be_done_is_found(text: str, fault: str) -> None:
    assert fault in " ".join(faults_within("page.md", text))
    assert [] == faults_within("page.md", "`headgate stats`, `make bench-store`, `headgate put ... --count`")


def test_an_indented_block_of_commands_is_an_example() -> None:
    (example,) = examples_of("page.md", "# Page\n\n    headgate stats --lane > x\n\nNo commands:\n\n    ┌──\n")
    assert ("sh", False) == (example.language, example.is_run)
    assert ["No such option '--lane'"] == [fault.split(": ", 1)[1].partition(".")[0] for fault in faults_of(example)]


@pytest.mark.parametrize(
    ("language", "text", "fault"),
    [
        ("sh", "headgate stats shop/emails --lane", "No such option"),
        ("sh", "headgate state shop/emails", "No such command"),
        ("sh", "headgate put shop/emails x --count many", "'many'"),
        ("sh", "kubectl headgate why queue/emails --lost 3", "No such option"),
        ("sh", "kubectl applied -f x.yaml", "kubectl has no verb applied"),
        ("sh", "helm instal headgate charts/headgate", "helm has no verb instal"),
        ("sh", "cat x | headgate sent shop/emails", "No such command"),
        ("sh", "make demonstration", "no such target"),
        ("sh", "kubectl apply -f examples/gone.yaml", "examples/gone.yaml is not there"),
        ("sh", "frobnicate", "what is frobnicate?"),
        ("yaml", "apiVersion: headgate.io/v1beta1\nkind: Queue\nmetadata: {name: a}\nspec: {shard: 3}", "shard"),
        ("yaml", "kind: Queue\nspec: {}", "without apiVersion"),
        ("yaml", "spec: {}", "spec.spec"),
        ("yaml", "shard: 3", "spec.shard"),
        ("ruby", "puts 1", "a block is one of"),
    ],
)
def test_an_example_that_cannot_be_done_is_found(language: str, text: str, fault: str) -> None:
    (example,) = examples_of("page.md", f"# Page\n\n```{language}\n{text}\n```\n")
    assert fault in " ".join(faults_of(example))


def test_a_program_that_is_none_is_found() -> None:
    (example,) = examples_of("page.md", "```python\ndef f(:\n```\n")
    with pytest.raises(SyntaxError):
        faults_of(example)


def test_commands_are_found_behind_pipes_and_on_continued_lines() -> None:
    text = "A=1 headgate top --snapshot | grep x && make demo  # not this\nkubectl get \\\n  queues"
    assert [
        ["A=1", "headgate", "top", "--snapshot"],
        ["grep", "x"],
        ["make", "demo"],
        ["kubectl", "get", "queues"],
    ] == list(commands_of(text))


def test_the_programs_of_sizing_are_right() -> None:
    programs = [example for example in examples_of("scaling.md") if example.language == "python"]
    assert len(programs) > 1
    for program in programs:
        exec(compile(program.text, str(program), "exec"), {})  # noqa: S102 - our own page


# ---- tables


def between(page: str, mark: str) -> str:
    """The part of a page between two marks."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"<!-- {mark}")[2].partition("<!-- end of")[0]


def test_the_page_of_engines_states_which_are_supported() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in between("internals/engines.md", "engines").splitlines()
    ]
    head, _, supported = [row for row in rows if len(row) > 1][:3]
    values = dict(zip((engine.partition(" ")[0] for engine in head[1:]), supported[1:], strict=True))
    assert {
        engine: "yes" if engine in ENGINE_MODULES else "no" for engine in ("timeline", "bucket", "extent")
    } == values


@pytest.mark.parametrize(
    ("message", "figure"),
    [
        ("20 years", lambda: f"{TTL_S_MAX // YEAR_S} years"),
        ("512 messages or 128 KiB", lambda: f"{ROW_MESSAGES_MAX} messages or {ROW_BYTES_MAX // 1024} KiB"),
        ("10,000 |", lambda: f"{SCOPE_KEYS_MAX:,} |"),
        ("10,000 per lane", lambda: f"{HOLES_MAX:,} per lane"),
        ("| lanes that one process holds | 1,000 |", lambda: f"| lanes that one process holds | {LANES_MAX:,} |"),
        ("cluster | 300, those", lambda: f"cluster | {TABLES_MAX}, those"),
        ("| shards | 1,024 |", lambda: f"| shards | {spec_of('queues')['shards']['maximum']:,} |"),
        ("1,000 (`maxReceives`)", lambda: f"{spec_of('queues')['maxReceives']['maximum']:,} (`maxReceives`)"),
        ("| 32 each", lambda: f"| {spec_of('queues')['consumers']['maxItems']} each"),
        ("| 32 each", lambda: f"| {spec_of('queues')['bulk']['maxItems']} each"),
        ("| spec | 32 KiB of JSON |", lambda: f"| spec | {SPEC_BYTES_MAX // 1024} KiB of JSON |"),
        (
            "16 KiB of JSON, 200 items per list, 32 levels",
            lambda: f"{PASSED_ON_BYTES_MAX // 1024} KiB of JSON, {ITEMS_MAX} items per list, {DEPTH_MAX} levels",
        ),
        ("8 MiB; default 1 MiB", lambda: sizes_of(spec_of("queues")["maxMessageSize"])),
    ],
)
def test_a_limit_is_as_the_code_has_it(message: str, figure: Callable[[], str]) -> None:
    assert message in between("figures.md", "limits")
    assert message == figure()


def test_the_numbers_of_tables_are_as_the_code_has_them() -> None:
    queue, counter = (
        len(tables_of(resource_of(kind, {"storage": {"tables": "dedicated"}}), uuid4()) or ())
        for kind in ("Queue", "Counter")
    )
    text = " ".join((ROOT / "docs" / "figures.md").read_text(encoding="utf-8").split())
    assert f"The catalogue has {len(CATALOGUE_TABLES)} tables." in text
    assert f"has {queue} tables of its own and a counter {counter}." in text
    faq = " ".join((ROOT / "docs" / "faq.md").read_text(encoding="utf-8").split())
    assert f"a queue has {queue} tables of its own, and Headgate creates none beyond {TABLES_MAX}" in faq


def resource_of(kind: str, spec: dict[str, Any]) -> Any:
    """A resource with that spec, as it is parsed."""
    metadata = {"name": "emails", "namespace": "shop"}
    document = {"apiVersion": "headgate.io/v1beta1", "kind": kind, "metadata": metadata, "spec": spec}
    result = check_resource(document)
    assert not isinstance(result, list)
    return result


def spec_of(plural: str) -> dict[str, Any]:
    """The fields of a spec in the CRD."""
    crd = yaml.safe_load((ROOT / "crds" / f"{plural}.headgate.io.yaml").read_text())
    fields: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"][
        "properties"
    ]
    return fields


def sizes_of(field: dict[str, Any]) -> str:
    """The greatest and the usual size of a field, as a person writes them."""
    (greatest,) = re.findall(r"From \w+ to (\d+)Mi\.", field["description"])
    (usual,) = re.findall(r"Default: (\d+)Mi\.", field["description"])
    return f"{greatest} MiB; default {usual} MiB"
