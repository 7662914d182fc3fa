"""kubectl as a small typed client: works with any cluster a kubeconfig can name, of any origin.

Objects are plain dictionaries, as Kubernetes writes them. Knows nothing of how the cluster was created.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.errors import HeadgateError, OperationRefused, Unavailable
from headgate.local.processes import wait_until

Object = Mapping[str, Any]


class KubectlRefused(OperationRefused):
    """The API server, or kubectl itself, refused."""


@dataclass(frozen=True)
class Kubectl:
    """A cluster, used through kubectl; in one namespace, if one is named."""

    program: str
    kubeconfig: str
    context: str | None = None
    namespace: str | None = None

    def in_namespace(self, namespace: str) -> Kubectl:
        """The same cluster, in that namespace."""
        return Kubectl(self.program, self.kubeconfig, self.context, namespace)

    def command(self, *arguments: str) -> list[str]:
        """The whole command line, for callers that run it themselves."""
        where = [f"--context={self.context}"] if self.context else []
        where += [f"--namespace={self.namespace}"] if self.namespace else []
        return [self.program, f"--kubeconfig={self.kubeconfig}", *where, *arguments]

    def run(self, *arguments: str, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Its output; a rejection is an error with the message of the API server."""
        try:
            done = subprocess.run(
                self.command(*arguments), input=stdin, capture_output=True, text=True, check=False, timeout=timeout_s
            )
        except subprocess.TimeoutExpired:
            raise Unavailable("kubectl did not end in time", seconds=timeout_s, command=" ".join(arguments)) from None
        if done.returncode != 0:
            raise KubectlRefused(None, command=" ".join(arguments[:3]), answer=done.stderr.strip())
        return done.stdout

    def apply(self, *objects: Object, server_side: bool = True) -> list[dict[str, Any]]:
        """Apply it; returns the API server's result."""
        how = ["--server-side", "--force-conflicts"] if server_side else []
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        fields: dict[str, Any] = json.loads(self.run("apply", *how, "-f", "-", "-o", "json", stdin=text))
        return list(fields["items"]) if fields.get("kind") == "List" else [fields]

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """An object."""
        fields: dict[str, Any] = json.loads(self.run("get", kind, name, "-o", "json"))
        return fields

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """An object, if it exists."""
        text = self.run("get", kind, name, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text.strip() else None

    def list(self, kind: str, selector: str | None = None) -> list[dict[str, Any]]:
        """All objects of a kind."""
        chosen = ["-l", selector] if selector else []
        items: list[dict[str, Any]] = json.loads(self.run("get", kind, *chosen, "-o", "json"))["items"]
        return items

    def delete(self, kind: str, *names: str, wait: bool = True) -> None:
        """Remove objects; missing ones are removed already."""
        self.run("delete", kind, *names, "--ignore-not-found", f"--wait={str(wait).lower()}", timeout_s=120)

    def logs(self, pod: str, *arguments: str) -> str:
        """A pod's output."""
        return self.run("logs", pod, *arguments)

    def exec(self, pod: str, *command: str, timeout_s: float = 60) -> str:
        """The output of a command that runs in a pod."""
        return self.run("exec", pod, "--", *command, timeout_s=timeout_s)

    def wait_for(
        self,
        kind: str,
        name: str,
        holds: Callable[[dict[str, Any]], bool],
        *,
        what: str,
        timeout_s: float = 60,
    ) -> dict[str, Any]:
        """The object, once something holds of it."""
        observed: dict[str, Any] = {}

        def now() -> bool:
            observed.clear()
            observed.update(self.find(kind, name) or {})
            return bool(observed) and holds(observed)

        if not wait_until(now, timeout_s=timeout_s, every_s=0.1):
            raise Unavailable(
                "the condition was not met in time",
                waited_for=f"{kind}/{name} {what}",
                seconds=timeout_s,
                status=json.dumps(observed.get("status")),
            )
        return observed

    def wait_for_pod(self, name: str, *, timeout_s: float = 60) -> dict[str, Any]:
        """A pod, once its containers are ready."""
        return self.wait_for("pod", name, has_condition("Ready"), what="is ready", timeout_s=timeout_s)


def has_condition(kind: str, status: str = "True") -> Callable[[Object], bool]:
    """Whether an object has a condition."""

    def holds(observation: Object) -> bool:
        return condition_of(observation, kind) == status

    return holds


def condition_of(observation: Object, kind: str) -> str | None:
    """A condition's status, if the object has it."""
    conditions: Iterable[Object] = observation.get("status", {}).get("conditions") or ()
    return next((each["status"] for each in conditions if each["type"] == kind), None)


def refusal(error: HeadgateError) -> str:
    """The API server's message at a rejection."""
    return str(error.facts.get("answer", ""))


def names_of(objects: Sequence[Object]) -> list[str]:
    """The names of objects."""
    return [str(each["metadata"]["name"]) for each in objects]
