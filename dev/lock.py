"""Resolve the dependencies again: requirements.lock for the shipped packages, requirements-dev.lock for development.

requirements-spark.lock is for drivers and executors of Spark alone: PySpark is 430 MB, which no other process needs.
requirements-build.lock builds wheels where the image is built. All carry a hash for every file and name no index, so
that each machine fetches from its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPARK_EXTRAS = ("spark", "counters")
SHIPPED_EXTRAS = ("operator", "gateway", "worker", "fast", "tracing", "counters", "cli")


def compile_lock(output: str, *options: str) -> None:
    """One lock file; locked versions stay unless pyproject.toml or a sister lock file requires others."""
    command = [
        str(Path(sys.executable).with_name("uv")),
        *("pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
        *("--generate-hashes", "--no-emit-index-url", "--custom-compile-command", "make lock"),
        *options,
        *("--output-file", output),
    ]
    subprocess.run(command, cwd=ROOT, check=True)


def extras_as_options(*extras: str) -> list[str]:
    """As uv wants them on its command line."""
    return [word for extra in extras for word in ("--extra", extra)]


def main() -> None:
    """Write the four files."""
    shipped = ("pyproject.toml", *extras_as_options(*SHIPPED_EXTRAS))
    compile_lock("requirements.lock", *shipped)
    spark = ("pyproject.toml", *extras_as_options(*SPARK_EXTRAS))
    compile_lock("requirements-spark.lock", *spark, "-c", "requirements.lock")
    compile_lock("requirements-build.lock", "--group", "pyproject.toml:build")
    everything = (*shipped, *extras_as_options("spark", "test"), "--group", "dev", "--group", "docs")
    compile_lock("requirements-dev.lock", *everything, "-c", "requirements.lock", "-c", "requirements-spark.lock")


if __name__ == "__main__":
    main()
