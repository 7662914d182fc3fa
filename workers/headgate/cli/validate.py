"""`headgate validate FILE...`: say, with no server near, what the API server would refuse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from headgate.api.loader import FilesInvalid, Reading, read_files


@click.command("validate")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(files: tuple[Path, ...]) -> None:
    """Check the Queues and Counters of FILES (YAML, several documents each).

    One line for every fault: file and line, document, field, and what would be right. Exit code 2 if there is one.
    """
    reading = read_files(files)
    if reading.faults:
        raise FilesInvalid(reading.faults)
    click.echo(_summary(reading))


def _summary(reading: Reading) -> str:
    counts = Counter(resource.kind for resource in reading.resources)
    parts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(counts.items())]
    said = f"valid: {', '.join(parts)}" if parts else "no Queue and no Counter in there"
    others = f"; {reading.passed_over} of other kinds passed over" if reading.passed_over else ""
    return said + others
