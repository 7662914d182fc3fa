"""The keys and certificates of one local cluster: their subjects, and the time of their renewal."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from headgate.errors import Bug

VALID_DAYS = 365
_MADE_FOR = "made-for.json"


def wanted(*, node_name: str, addresses: Sequence[str]) -> list[dict[str, object]]:
    """A certificate for each component that has to authenticate to another."""

    def one(name: str, common_name: str, *organizations: str, hosts: Sequence[str] = ()) -> dict[str, object]:
        return {
            "name": name,
            "common_name": common_name,
            "organizations": list(organizations),
            "hosts": list(hosts),
        }

    service = ["kubernetes", "default", "svc", "cluster", "local"]
    names = ["localhost", *(".".join(service[:length]) for length in (1, 2, 3, 5))]
    return [
        one("apiserver", "kube-apiserver", hosts=[*names, *addresses]),
        one("admin", "admin", "system:masters"),
        one("controllers", "system:kube-controller-manager"),
        one("scheduler", "system:kube-scheduler"),
        one("apiserver-to-kubelet", "apiserver-to-kubelet", "system:masters"),
        one("front-proxy", "front-proxy"),
        one("kubelet", f"system:node:{node_name}", "system:nodes", hosts=[node_name, *addresses]),
        one("kube-proxy", "system:kube-proxy"),
        one("dns", "dns", "system:masters"),
    ]


def require_made(program: Path, directory: Path, *, node_name: str, addresses: Sequence[str]) -> None:
    """Create missing ones, and those for other names, or about to expire."""
    certificates = wanted(node_name=node_name, addresses=addresses)
    made_for = directory / _MADE_FOR
    if made_for.exists():
        output = json.loads(made_for.read_text())
        if output["certificates"] == certificates and time.time() < output["until"] - 30 * 86400:
            return
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, mode=0o700)
    request = {
        "directory": str(directory),
        "authority": "headgate-development",
        "valid_days": VALID_DAYS,
        "certificates": certificates,
        "signing_key": "service-accounts",
    }
    done = subprocess.run([program], input=json.dumps(request), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Bug("certificates could not be created", answer=done.stderr.strip())
    until = time.time() + VALID_DAYS * 86400
    made_for.write_text(json.dumps({"certificates": certificates, "until": until}))
