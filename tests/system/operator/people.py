"""People with limited rights, with a kubeconfig of their own; and `kubectl headgate` as they call it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from dev.cluster.kubectl import Kubectl
from headgate.cli.main import main as headgate
from headgate_operator.cli.kubectl_plugin import main as plugin

Rights = Sequence[tuple[str, str, str]]
"""(group, resources by comma, verbs by comma)."""


def person(kubectl: Kubectl, folder: Path, rights: dict[str, Rights]) -> Path:
    """A kubeconfig by which one may, in each of these namespaces, exactly this."""
    name = f"person-{secrets.token_hex(3)}"
    home = next(iter(rights))
    where = kubectl.in_namespace(home)
    where.run("create", "serviceaccount", name)
    for namespace, rules in rights.items():
        kubectl.in_namespace(namespace).apply(*_granted(name, home, namespace, rules))
    token = where.run("create", "token", name, "--duration=1h").strip()
    config: dict[str, Any] = json.loads(where.run("config", "view", "--raw", "--flatten", "--minify", "-o", "json"))
    config["users"] = [{"name": name, "user": {"token": token}}]
    config["contexts"][0]["context"] |= {"user": name, "namespace": home}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def _granted(name: str, home: str, namespace: str, rules: Rights) -> list[dict[str, Any]]:
    metadata = {"name": name, "namespace": namespace}
    api = "rbac.authorization.k8s.io"
    reports = [
        {"apiGroups": [group], "resources": resources.split(","), "verbs": verbs.split(",")}
        for group, resources, verbs in rules
    ]
    subject = {"kind": "ServiceAccount", "name": name, "namespace": home}
    role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": reports}
    reference = {"apiGroup": api, "kind": "Role", "name": name}
    binding = {**role, "kind": "RoleBinding", "roleRef": reference, "subjects": [subject]}
    binding.pop("rules")
    return [role, binding]


class Calling:
    """The programs as somebody calls them, with this cluster's kubectl first on PATH."""

    def __init__(self, kubectl: Kubectl, folder: Path) -> None:
        programs = folder / "programs"
        programs.mkdir()
        (programs / "kubectl").symlink_to(_matches(kubectl.program))
        self._environment = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}

    def plugin(self, kubeconfig: Path, *arguments: str) -> tuple[int, str, str]:
        """`kubectl headgate ...`"""
        return self._call(plugin, *arguments, "--kubeconfig", str(kubeconfig))

    def plan(self, kubeconfig: Path, *arguments: str) -> tuple[int, str, str]:
        """`headgate plan ...`"""
        return self._call(headgate, "plan", *arguments, "--kubeconfig", str(kubeconfig))

    def _call(self, program: Any, *arguments: str) -> tuple[int, str, str]:
        result = CliRunner(env=self._environment).invoke(program, arguments, catch_exceptions=False)
        return result.exit_code, result.stdout, result.stderr


def _matches(program: str) -> str:
    result = shutil.which(program)
    assert result is not None, program
    return result
