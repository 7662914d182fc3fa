"""Reads the examples of the pages under docs, and reports their faults.

A fenced block is an example by its first word: `yaml` (resources, or a part of a Queue; a second word marks another
format, as `yaml values` of the chart), `sh` (command lines), `python` (a program), `cql`. `text` is the output of a
program, and no example. Command lines with a second word, `parsed`, are held to what the commands take but are
run nowhere; without it a test on real servers runs them. So with programs: `python compiled` is compiled alone, since
it needs what the tests do not have.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import yaml

from headgate.api.parse import KINDS, check_resource
from headgate.cli.main import main as headgate
from headgate_operator.plugin import main as kubectl_headgate

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
    )
)
_BLOCK = re.compile(r"^```([a-z]+)([^\n]*)\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Example:
    """A block of a page."""

    page: str
    number: int
    language: str
    words: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{self.page}-{self.number}-{self.language}"


def examples_of(page: str, text: str | None = None) -> list[Example]:
    """Every fenced block of a page under docs."""
    told = (ROOT / "docs" / page).read_text(encoding="utf-8") if text is None else text
    found = enumerate(_BLOCK.findall(told))
    return [Example(page, number, language, tuple(words.split()), body) for number, (language, words, body) in found]


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
    for told in yaml.safe_load_all(text):
        document = told if told and {"apiVersion", "kind"} & set(told) else _queue_with(told or {})
        if not {"apiVersion", "kind"} <= set(document):
            yield "a document without apiVersion or kind"
        elif document["kind"] in KINDS:
            found = check_resource(document)
            yield from map(str, found if isinstance(found, list) else ())


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
        for word in [*reader, ";"]:
            if set(word) <= set("|&;"):
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def _faults_of_command(words: list[str]) -> Iterator[str]:
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    program, rest = Path(words[0]).name if words else "", words[1:]
    told = " ".join(words)
    if program == "headgate":
        yield from _faults_of_click(headgate, rest, told)
    elif program == "kubectl" and rest[:1] == ["headgate"]:
        yield from _faults_of_click(kubectl_headgate, rest[1:], told)
    elif program == "kubectl":
        if rest[0] not in KUBECTL_VERBS:
            yield f"kubectl has no verb {rest[0]}: {told}"
    elif program == "helm":
        if rest[0] not in HELM_VERBS:
            yield f"helm has no verb {rest[0]}: {told}"
    elif program == "make":
        yield from (f"there is no such target: make {word}" for word in rest if "=" not in word and not _target(word))
    elif program not in OTHERS and words:
        yield f"what is {program}? {told}"
    yield from (f"{word} is not there: {told}" for word in words if _is_ours(word) and not (ROOT / word).exists())


def _is_ours(word: str) -> bool:
    """Whether a word names a file or folder of this repository."""
    return word.startswith(("examples/", "charts/", "crds/", "docs/")) and "*" not in word


def _target(name: str) -> bool:
    return re.search(rf"^{re.escape(name)}:", (ROOT / "Makefile").read_text(), re.MULTILINE) is not None


def _faults_of_click(command: click.Command, arguments: list[str], told: str) -> Iterator[str]:
    """Whether it is taken as it stands: every option there, every value of the right form. Nothing is run."""
    try:
        context = command.make_context(command.name, list(arguments))
        while isinstance(command, click.Group):  # ours take no options before the name of a command
            name, arguments = arguments[0], arguments[1:]
            found = command.get_command(context, name)
            if found is None:
                raise click.UsageError(f"No such command {name!r}.")
            command = found
            context = command.make_context(name, arguments, parent=context)
    except click.ClickException as error:
        yield f"{error.format_message()}: {told}"
