"""`kubectl`, as the calling person has set it up, with that person's login and rights.

Each failure is one line of its own class: kubectl is not installed, there is no such object, a right is missing, or
the server does not answer. It knows nothing of queues.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import EnvironmentProblem, HeadgateError, NotFound, OperationRefused, Unavailable

WITHIN_S: Final = 60.0
"""A login may ask a person."""

_SERVER: Final = re.compile(r"^Error from server \((\w+)\): (.*)$", re.MULTILINE)
_MAY_NOT: Final = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]*)")?'
)
_FORWARDING: Final = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) -> ")
_NO_KIND: Final = re.compile(r"the server doesn't have a resource type|no matches for kind|no matches for (\S+)/")
_NO_SERVER: Final = re.compile(r"(Unable to connect to the server|The connection to the server .* was refused).*")


class KubectlMissing(EnvironmentProblem):
    """The program kubectl is not on PATH."""


class KubectlFailed(EnvironmentProblem):
    """The program kubectl failed."""


class ObjectNotFound(NotFound):
    """There is no such object."""


class RightMissing(OperationRefused):
    """Your account lacks a right in this cluster."""


class NotInstalled(EnvironmentProblem):
    """The CRDs of Headgate are not installed in this cluster."""


class ApiServerUnreachable(Unavailable):
    """The API server does not answer."""


@dataclass(frozen=True)
class Kubectl:
    context: str | None = None
    kubeconfig: str | None = None
    namespace: str | None = None

    def words(self, *words: str) -> list[str]:
        given = (("--kubeconfig", self.kubeconfig), ("--context", self.context), ("--namespace", self.namespace))
        return ["kubectl", *(f"{option}={value}" for option, value in given if value), *words]

    def run(self, *words: str, stdin: str | None = None, within_s: float = WITHIN_S) -> str:
        try:
            with _installed():
                done = subprocess.run(
                    self.words(*words), input=stdin, capture_output=True, text=True, check=False, timeout=within_s
                )
        except subprocess.TimeoutExpired:
            raise ApiServerUnreachable(within_s=within_s, remedy="see `kubectl cluster-info`") from None
        if done.returncode != 0:
            raise refusal(done.stderr)
        return done.stdout

    def read(self, *words: str, stdin: str | None = None) -> dict[str, Any]:
        text = self.run(*words, stdin=stdin)
        try:
            document = json.loads(text)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise KubectlFailed("The output of kubectl is not JSON", answer=repr(text[:100]))
        return document

    @contextmanager
    def forward(self, pod: str, port: int, within_s: float = WITHIN_S) -> Iterator[str]:
        """A local URL of a pod's port, also of a port on the pod's loopback."""
        words = self.words("port-forward", f"pod/{pod}", f":{port}", "--address=127.0.0.1")
        with _installed():
            process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        late = threading.Timer(within_s, process.kill)
        late.start()
        try:
            assert process.stdout is not None  # noqa: S101 - stdout is piped
            match = _FORWARDING.match(process.stdout.readline())
            late.cancel()
            if match is None:
                raise _not_forwarded(process, within_s)
            yield f"http://127.0.0.1:{match[1]}"
        finally:
            late.cancel()
            process.kill()
            process.communicate()

    def show(self, *words: str) -> None:
        """Write its output to our own standard output, for as long as it takes."""
        with _installed():
            done = subprocess.run(
                self.words(*words), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
            )
        if done.returncode != 0:
            raise refusal(done.stderr)


@contextmanager
def _installed() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise KubectlMissing(remedy="install it, or put its folder on PATH") from None


def _not_forwarded(process: subprocess.Popen[str], within_s: float) -> HeadgateError:
    """The error of a port-forward that ended before it was established."""
    _, stderr = process.communicate()
    if process.returncode < 0:
        return ApiServerUnreachable(within_s=within_s, remedy="see `kubectl cluster-info`")
    return refusal(stderr)


def refusal(stderr: str) -> HeadgateError:
    refused = _SERVER.search(stderr)
    if refused is not None:
        return _refused_by_server(refused[1], refused[2])
    if _MAY_NOT.search(stderr):
        return _refused_by_server("Forbidden", stderr)
    if _NO_KIND.search(stderr):
        return NotInstalled(remedy="install the chart, or pass another --context")
    no_server = _NO_SERVER.search(stderr)
    if no_server is not None:
        return ApiServerUnreachable(answer=no_server[0], remedy="see `kubectl cluster-info`")
    words = [line.strip() for line in stderr.splitlines() if line.strip()]
    last = words[-1].removeprefix("error: ") if words else "nothing"
    return KubectlFailed(answer=last)


def _refused_by_server(reason: str, stderr: str) -> HeadgateError:
    may_not = _MAY_NOT.search(stderr)
    if reason == "Forbidden" and may_not is not None:
        resource = f"{may_not['resource']}.{may_not['group']}" if may_not["group"] else may_not["resource"]
        where = f" in namespace {may_not['namespace']}" if may_not["namespace"] else ""
        return RightMissing(remedy=f"ask for the right to {may_not['verb']} {resource}{where}")
    if reason == "Forbidden":
        return RightMissing(answer=stderr)
    if reason == "NotFound":
        return ObjectNotFound(answer=stderr)
    if reason in ("ServiceUnavailable", "Timeout", "ServerTimeout", "TooManyRequests", "InternalError"):
        return ApiServerUnreachable("The API server failed", answer=stderr)
    return KubectlFailed("The API server refused the request", answer=stderr)
