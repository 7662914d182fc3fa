"""A first queue as a file: what `headgate init` writes, and what `headgate dev --queue --handler` runs. Pure.

The file declares the queue, one consumer and the dead-letter queue. The same models as for any other file check it,
so that an invalid name or handler gives one line now and not a rejection later.
"""

from __future__ import annotations

import yaml

from headgate.api.read.parse import check_resource
from headgate.errors import InvalidRequest

NAMESPACE = "default"
_TEXT = """\
# Check this file:      headgate validate {file}
# Run it here:          headgate dev {file}
# Run it in a cluster:  kubectl apply -f {file}
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  shards: 4                     # at most 4 workers share the queue
  maxReceives: 5                # a message that fails 5 times becomes a dead letter
  deadLetter: {dead}
  storage: {{tables: shared}}
  consumers:
    - name: worker
      # image: registry.example/shop:1.0    # in a cluster: yours, with headgate[worker] in it
      handler: {handler}
---
apiVersion: headgate.io/v1beta1
kind: Queue
metadata: {{name: {dead}, namespace: {namespace}}}
spec:
  shards: 1
  storage: {{tables: shared}}
"""


def format_first_queue(queue: str, handler: str, *, file: str) -> str:
    """The file for a queue `namespace/name` (or `name`) whose messages a function `module:function` handles."""
    namespace, _, name = queue.rpartition("/")
    text = _TEXT.format(
        file=file,
        name=_quoted(name),
        dead=_quoted(f"{name}-dead"),
        namespace=_quoted(namespace or NAMESPACE),
        handler=_quoted(handler),
    )
    for document in yaml.safe_load_all(text):
        faults = check_resource(document)
        if isinstance(faults, list):
            first = faults[0]
            raise InvalidRequest(
                f"{first.path}: {first.message}", given=repr(handler if "handler" in first.path else queue)
            )
    return text


def _quoted(text: str) -> str:
    """As a YAML scalar, whatever its content; a plain one where that means the same."""
    plain = text and all(each.isalnum() or each in "-_.:" for each in text)
    return text if plain and yaml.safe_load(text) == text else "'" + text.replace("'", "''") + "'"
