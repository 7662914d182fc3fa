"""docs/reference.md: every field of both kinds, the rules between them, and what the operator reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from headgate.api.generate.schemas import KINDS, PLURALS, SHORT_NAMES, Schema, build_structural_schema, format_default
from headgate.api.resources.model import API_VERSION, Model, kind_of
from headgate.api.resources.reasons import (
    AWAITED,
    CONDITION_MEANINGS,
    COUNTER_CONDITIONS,
    QUEUE_CONDITIONS,
    REASONS_OF,
    STALLING,
)
from headgate.api.rules.rules import rules_of

_INTRODUCTION = f"""# Reference: Queue and Counter

For authors of resources: every field with its type and default. `python -m headgate.api.generate` writes this page
from the models in `workers/headgate/api/`.

Both kinds are of `{API_VERSION}`, in the category `headgate` (`kubectl get headgate`). Durations are numbers with the
units d, h, m, s and ms, the greatest first: `14d`, `1h30m`, `500ms`. Sizes are as in Kubernetes: `256Ki`, `1Mi`,
`64M`. Schedules are cron, five fields, in UTC, and run when a Kubernetes CronJob with the same schedule does.
`kubectl explain queue.spec` shows the same.

For an editor that reads JSON schemas, use docs/schema/queue.json and docs/schema/counter.json. `headgate validate
FILE` finds offline what the API server would refuse.

An absent block is not filled in, but the defaults inside it are in force.
"""

_CONDITIONS = """## Conditions

The operator reports conditions in the status of each resource. `kubectl get hgq` shows Ready, and
`kubectl describe hgq NAME` shows all of them. Each has one of the reasons below and a message that names the cause.
The list of reasons is closed. [The operator's protocol](internals/protocols/operator.md) describes how it decides.

Conditions follow kstatus, so Argo CD, Flux and `kubectl wait` understand them. `Ready` is always present.
`Reconciling` and `Stalled` are present only while they are True. An *awaited* reason may pass by itself. A reason
that *stalls* waits for a change by a person.

RepairHealthy, BulkReady and CollectionHealthy do not affect Ready: a failed nightly job raises an alert but does not
fail a rollout. LanesHealthy affects Ready once it has been False for a minute.
"""


def build_reference() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, *map(_kind, KINDS), _CONDITIONS, *map(_condition, CONDITION_MEANINGS)]
    return "\n".join(parts)


def _kind(model: type[Model]) -> str:
    schema, kind = build_structural_schema(model), kind_of(model)
    (short,) = SHORT_NAMES[kind]
    parts = [f"## {kind}\n\n{schema['description']} Plural `{PLURALS[kind]}`, short name `{short}`.\n"]
    for part in ("spec", "status"):
        parts.append(f"### {kind} {part}\n")
        parts.extend(_tables(part, schema["properties"][part]))
    parts.append(f"### {kind} rules\n")
    parts.append("The API server and `headgate validate` refuse a resource that breaks one of these rules.\n")
    parts.append(_rules(model))
    return "\n".join(parts)


def _tables(path: str, node: Schema) -> Iterator[str]:
    rows: list[tuple[str, ...]] = []
    below: list[tuple[str, Schema]] = []
    for name, child in node["properties"].items():
        inner = child.get("items") or child.get("additionalProperties") or child
        mark = "[]" if "items" in child else ".*" if "additionalProperties" in child else ""
        if inner.get("properties") and not inner.get("x-kubernetes-preserve-unknown-fields"):
            below.append((f"{path}.{name}{mark}", inner))
        needed = " (required)" if name in node.get("required", ()) else ""
        rows.append((f"`{name}`{needed}", _type(child), _default(child), child.get("description", "")))
    yield f"#### `{path}`\n\n{_table('field type default description', rows)}\n"
    for inner_path, inner in below:
        yield from _tables(inner_path, inner)


def _type(node: Schema) -> str:
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    if node["type"] == "array":
        return f"list of {_type(node['items'])}, at most {node['maxItems']}"
    if "additionalProperties" in node:
        return f"map to {_type(node['additionalProperties'])}"
    rules = " ".join(rule["message"] for rule in node.get("x-kubernetes-validations", ()))
    for form in ("duration", "size", "cron schedule"):
        if rules.startswith(f"must be a {form}"):
            return form
    return str(node["type"])


def _default(node: Schema) -> str:
    default = node.get("default")
    if default is None or default == {}:
        return ""
    return f"`{format_default(default)}`"


def _table(names: str, rows: Iterable[tuple[str, ...]]) -> str:
    heads = names.split()
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in (heads, *rows)]
    lines = [f"| {line} |" for line in lines]
    return "\n".join([lines[0], "|---" * len(heads) + "|", *lines[1:]])


def _rules(model: type[Model]) -> str:
    rules = rules_of(model)
    rows = [(rule.name, f"`{'.'.join(filter(None, (rule.scope, rule.field)))}`", rule.message) for rule in rules]
    return _table("rule field message", rows) + "\n"


def _condition(name: str) -> str:
    kinds = {"Queue": QUEUE_CONDITIONS, "Counter": COUNTER_CONDITIONS}
    of = " and ".join(kind for kind, names in kinds.items() if name in names)
    kind_of_reason = {**dict.fromkeys(STALLING, " (stalls)"), **dict.fromkeys(AWAITED, " (awaited)")}
    rows = [
        (f"{reason}{kind_of_reason.get(reason, '')}", reason.meaning, reason.remedy or "Nothing.")
        for reason in REASONS_OF[name]
    ]
    return f"### {name}\n\n{CONDITION_MEANINGS[name]} Of {of}.\n\n{_table('reason meaning remedy', rows)}\n"
