"""Resolve the dependencies anew: requirements.lock for what is shipped, requirements-dev.lock for what works on it.

Both carry a hash for every file and name no index, so that each machine fetches from the one it is set up for.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHIPPED_EXTRAS = ("operator", "gateway", "worker", "tracing", "counters")


def compile_lock(output: str, *options: str) -> None:
    """One lock file; what is locked already stays unless pyproject.toml or a sister lock file says otherwise."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        *("pip", "compile", "pyproject.toml", "--quiet", "--universal", "--python-version", "3.11"),
        *("--generate-hashes", "--no-emit-index-url", "--custom-compile-command", "make lock"),
        *options,
        *("--output-file", output),
    ]
    subprocess.run(command, cwd=ROOT, check=True)


def main() -> None:
    """Write both files."""
    extras = [word for extra in SHIPPED_EXTRAS for word in ("--extra", extra)]
    compile_lock("requirements.lock", *extras)
    compile_lock("requirements-dev.lock", *extras, "--extra", "test", "--group", "dev", "-c", "requirements.lock")


if __name__ == "__main__":
    main()
