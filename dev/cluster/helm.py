"""Helm as a small typed client: the one that was built, on any cluster that a kubeconfig can name.

Its own caches and settings are in a folder of ours, so that the user's are not touched.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.cluster.kubectl import Kubectl
from dev.cluster.programs import HELM, require_built
from headgate.errors import OperationRefused, Unavailable

CHART = Path(__file__).resolve().parents[2] / "charts" / "headgate"

Values = Mapping[str, Any]


class HelmRefused(OperationRefused):
    """Helm, a template, or the API server refused."""


def helm_program() -> str:
    """The program, built when it is not in the cache yet."""
    return str(require_built([HELM])[HELM.name] / HELM.name)


@dataclass(frozen=True)
class Helm:
    """Charts, rendered or installed."""

    program: str
    home: Path
    kubectl: Kubectl | None = None

    def run(self, *arguments: str, values: Values | None = None, timeout_s: float = 300) -> str:
        """Its output; a rejection is an error with its message."""
        output = [] if values is None else ["--values", "-"]
        command = [self.program, *arguments, *output]
        try:
            done = subprocess.run(
                command,
                input=None if values is None else json.dumps(values),
                env={**os.environ, **self._environment()},
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable("helm did not end in time", seconds=timeout_s, command=" ".join(arguments)) from None
        if done.returncode != 0:
            raise HelmRefused(None, command=" ".join(arguments[:2]), answer=(done.stdout + done.stderr).strip())
        return done.stdout

    def _environment(self) -> dict[str, str]:
        folders = {name: str(self.home / name.lower()) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME")}
        folders["HELM_DATA_HOME"] = str(self.home / "data")
        if self.kubectl is None:
            return {**folders, "KUBECONFIG": os.devnull}
        context = {"HELM_KUBECONTEXT": self.kubectl.context} if self.kubectl.context else {}
        return {**folders, "KUBECONFIG": self.kubectl.kubeconfig, **context}
