"""Names and other short texts that several resources use, each with its shape and the sentence that explains it."""

from __future__ import annotations

from typing import Annotated, Final

from headgate.api.values.shapes import text

NAME_LENGTH_MAX: Final = 63
"""A resource's name is a label's value on everything made for it, and labels hold 63 characters."""

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"

QueueName = Annotated[
    str,
    text(
        rf"^{_LABEL}([.]{_LABEL})*$",
        "must be the name of a Queue: lower-case letters, digits, '-' and '.', at most 63 characters",
        length_max=NAME_LENGTH_MAX,
    ),
]

ResourceName = Annotated[
    str,
    text(rf"^{_LABEL}([.]{_LABEL})*$", "must be lower-case letters, digits, '-' and '.'", length_max=253),
]

NamespaceName = Annotated[
    str,
    text(
        f"^{_LABEL}$",
        "must be the name of a namespace: lower-case letters, digits and '-', at most 63 characters",
        length_max=63,
    ),
]

PartName = Annotated[
    str,
    text(f"^{_LABEL}$", "must be lower-case letters, digits and '-', at most 40 characters", length_max=40),
]

SecretName = Annotated[
    str,
    text(
        rf"^{_LABEL}([.]{_LABEL})*$",
        "must be the name of a Secret: lower-case letters, digits, '-' and '.'",
        length_max=253,
    ),
]

Keyspace = Annotated[
    str,
    text(
        "^[a-z][a-z0-9_]*$",
        "must be a keyspace: a lower-case letter, then lower-case letters, digits and '_', at most 48 characters",
        length_max=48,
    ),
]

DataCenter = Annotated[
    str,
    text(
        "^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        "must be a data centre as Cassandra names it: letters, digits, '_', '-' and '.'",
        length_max=64,
    ),
]

Image = Annotated[
    str,
    text(
        r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$",
        "must be a container image such as registry.example/mailer:1.4",
        length_max=512,
    ),
]

EntryPoint = Annotated[
    str,
    text(
        r"^[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*$",
        "must be a Python entry point, module:function, such as mailer.tasks:send",
        length_max=256,
    ),
]

Rate = Annotated[
    str,
    text("^[1-9][0-9]{0,6}/(s|m|h)$", "must be a rate such as 50/s, 600/m or 1000/h", length_max=9),
]

_TIMESTAMP: Final = (
    r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"([.][0-9]{1,3})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
)

StartFrom = Annotated[
    str,
    text(
        f"^(earliest|latest|{_TIMESTAMP})$",
        "must be earliest, latest, or a time such as 2026-11-18T09:00:00Z",
        length_max=32,
    ),
]

Timestamp = Annotated[
    str,
    text(
        f"^({_TIMESTAMP}|([0-9]{{1,4}}d)?([0-9]{{1,5}}h)?([0-9]{{1,7}}m)?([0-9]{{1,9}}s)?)$",
        "must be a time such as 2026-11-18T09:00:00Z, or an age counted back from the start such as 24h",
        length_max=32,
    ),
]

CounterType = Annotated[
    str,
    text(
        "^(sum|product|minmax|moments|distinct|audience|quantiles|topk|set|register|"
        "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z]([-a-z0-9]{0,61}[a-z0-9])?)$",
        "must be sum, product, minmax, moments, distinct, audience, quantiles, topk, set, register, "
        "or a type of your own as vendor/name",
        length_max=127,
    ),
]

UrlPath = Annotated[
    str,
    text(r"^/[A-Za-z0-9._~/%-]*$", "must be a path that begins with /, such as /work", length_max=256),
]
