"""Reads the examples of the README and of the pages under docs, and reports their faults.

A fenced block is an example by its first word: `yaml` (resources, or a part of a Queue; a second word marks another
format, as `yaml values` of the chart), `sh` (command lines), `python` (a program), `cql`. `text` is the output of a
program, and no example. Command lines with a second word, `parsed`, are held to what the commands take but are
run nowhere, for the reason in the words after it; without it a test on real servers runs them (`RUN_BY`). So with
programs: `python compiled` is compiled alone, since it needs what the tests do not have. An indented block that
begins with a command is one of `sh parsed`, and a command within a sentence (`headgate stats`) is held to what there
is: the command, its options, the files that it names.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import click
import yaml

from headgate.api.read.parse import KINDS, check_resource
from headgate.cli.main import main as headgate
from headgate_operator.cli.kubectl_plugin import main as kubectl_headgate

ROOT = Path(__file__).parents[2]
LANGUAGES = ("yaml", "sh", "python", "cql", "text", "json")
KUBECTL_VERBS = frozenset(
    (
        *("annotate", "apply", "config", "create", "delete", "describe", "exec", "explain", "get", "kustomize"),
        *("label", "logs", "patch", "port-forward", "rollout", "scale", "wait", "top", "cluster-info", "auth"),
    )
)
HELM_VERBS = frozenset(
    ("install", "upgrade", "uninstall", "rollback", "test", "lint", "template", "status", "history")
)
OTHERS = frozenset(
    (
        "pip",
        "docker",
        "nodetool",
        "cqlsh",
        "eval",
        "export",
        "cd",
        "git",
        "cat",
        "openssl",
        "python3",
        "grep",
        "base64",
        "python",
        "spark-submit",
        "",  # `.`, which reads a file of variables
    )
)
RUN_BY = {
    "../README.md": "tests/system/sdk/test_first_ten_minutes.py",
    "start-developer.md": "tests/system/sdk/test_first_ten_minutes.py",
    "start-data-engineer.md": "tests/system/sdk/test_first_ten_minutes.py",
    "start-platform.md": "tests/system/sdk/test_getting_started.py",
    "start-on-call.md": "tests/system/sdk/test_getting_started.py",
}
"""The pages with commands that a test types, and the test."""
INDENTED = ("parsed", "shows the form of commands, with names that are the reader's own")
COMMAND_WORDS = ("headgate", "kubectl", "helm", "make", "git", "pip", "eval", "export", ".", "cd", "python3")
_INDENTED = re.compile(r"(?:^|\n\n)((?:    [^\n]+\n)+)")
_WITHIN = re.compile(r"`((?:headgate|kubectl headgate|make) [^`\n]+)`")
_LEFT_OUT = re.compile(r"^Missing |^Usage: |requires an argument|^Invalid value")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```([a-z]+)([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A block of a page."""

    page: str
    number: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def is_run(self) -> bool:
        """Whether a test on real servers types it."""
        return self.language == "sh" and "parsed" not in self.words

    def __str__(self) -> str:
        return f"{self.page}-{self.number}-{self.language}"


def examples_of(page: str, text: str | None = None) -> list[Example]:
    """Every fenced block of a page under docs, then every indented block of commands."""
    output = (ROOT / "docs" / page).read_text(encoding="utf-8") if text is None else text
    result = [(language, tuple(words.split()), body) for language, words, body in _BLOCK.findall(output)]
    result += [("sh", INDENTED, body) for body in indented_commands_of(output)]
    return [Example(page, number, *each) for number, each in enumerate(result)]


def indented_commands_of(text: str) -> list[str]:
    """The indented blocks of a page whose first word is a command."""
    blocks = (
        "".join(line[4:] + "\n" for line in block.splitlines()) for block in _INDENTED.findall(_FENCED.sub("", text))
    )
    return [block for block in blocks if block.split()[0].rpartition("/")[2] in COMMAND_WORDS]


def faults_within(page: str, text: str) -> list[str]:
    """The faults of commands within sentences; a part that they leave out is no fault."""
    entries = []
    for span in _WITHIN.findall(_FENCED.sub("", text)):
        for words in commands_of(span.replace("...", "").replace("\\|", "|")):
            if "COMMAND" not in words:  # any of them
                entries += [f"{page}: {fault}" for fault in _faults_of_command(words) if not _LEFT_OUT.search(fault)]
    return entries


def faults_of(example: Example) -> list[str]:
    """Its faults, as far as they can be found without a server."""
    if example.language not in LANGUAGES:
        return [f"{example}: a block is one of {', '.join(LANGUAGES)}"]
    if example.language == "yaml" and not example.words:
        return [f"{example}: {fault}" for fault in _faults_of_resources(example.text)]
    if example.language == "sh":
        return [f"{example}: {fault}" for line in commands_of(example.text) for fault in _faults_of_command(line)]
    if example.language == "python":
        compile(example.text, str(example), "exec")
    return []


def _faults_of_resources(text: str) -> Iterator[str]:
    for report in yaml.safe_load_all(text):
        document = report if report and {"apiVersion", "kind"} & set(report) else _queue_with(report or {})
        if not {"apiVersion", "kind"} <= set(document):
            yield "a document without apiVersion or kind"
        elif document["kind"] in KINDS:
            result = check_resource(document)
            yield from map(str, result if isinstance(result, list) else ())


def _queue_with(part: Mapping[str, Any]) -> dict[str, Any]:
    """A Queue of which a page shows a part: some fields of its spec, or of a consumer."""
    consumer = {"name": "mailer", "handler": "mailer:send", **part}
    spec = {"consumers": [consumer]} if set(part) <= {"scaling", "template", "concurrency"} else dict(part)
    metadata = {"name": "emails", "namespace": "shop"}
    return {"apiVersion": "headgate.io/v1beta1", "kind": "Queue", "metadata": metadata, "spec": spec}


def commands_of(text: str) -> Iterator[list[str]]:
    """The simple commands of a script, as words: what stands between pipes, `&&` and `;`."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        reader = shlex.shlex(line, posix=True, punctuation_chars="|&;")
        reader.whitespace_split = True
        reader.commenters = "#"
        words: list[str] = []
        is_redirected = False
        for word in [*reader, ";"]:
            if is_redirected or re.fullmatch(r"\d?>>?", word):
                is_redirected = not is_redirected
            elif set(word) <= set("|&;"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def _faults_of_command(words: list[str]) -> Iterator[str]:
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    words = words[: words.index(">")] if ">" in words else words
    program, rest = Path(words[0]).name if words else "", words[1:]
    text = " ".join(words)
    if program == "headgate":
        yield from _faults_of_click(headgate, rest, text)
    elif program == "kubectl" and rest[:1] == ["headgate"]:
        yield from _faults_of_click(kubectl_headgate, rest[1:], text)
    elif program == "kubectl":
        if rest[0] not in KUBECTL_VERBS:
            yield f"kubectl has no verb {rest[0]}: {text}"
    elif program == "helm":
        if rest[0] not in HELM_VERBS:
            yield f"helm has no verb {rest[0]}: {text}"
    elif program == "make":
        named = [word for word in rest if "=" not in word and not word.startswith("-")]
        yield from (f"there is no such target: make {word}" for word in named if not _target(word))
    elif program not in OTHERS and words:
        yield f"what is {program}? {text}"
    yield from (f"{word} is not there: {text}" for word in words if _is_ours(word) and not (ROOT / word).exists())


def _is_ours(word: str) -> bool:
    """Whether a word names a file or folder of this repository."""
    return word.startswith(("examples/", "charts/", "crds/", "docs/")) and "*" not in word


def _target(name: str) -> bool:
    targets = re.findall(r"^([a-z%-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return any(re.fullmatch(target.replace("%", ".+"), name) for target in targets)


def _faults_of_click(command: click.Command, arguments: list[str], report: str) -> Iterator[str]:
    """Whether it is taken as it stands: every option there, every value of the right form. Nothing is run."""
    try:
        with redirect_stdout(StringIO()):  # --help, --version
            context = command.make_context(command.name, list(arguments))
        while isinstance(command, click.Group):  # what is left behind its own options begins with a command's name
            name, *arguments = [*context._protected_args, *context.args]
            result = command.get_command(context, name)
            if result is None:
                raise click.UsageError(f"No such command {name!r}.")
            command = result
            context = command.make_context(name, arguments, parent=context)
    except click.exceptions.Exit:
        return
    except click.ClickException as error:
        yield f"{error.format_message()}: {report}"
