"""`headgate validate FILE...`: reports, without a server, what the API server would refuse."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from headgate.api.read.loader import FilesInvalid, LoadedFiles, read_files
from headgate.command_line.arguments import define_command, files_of, files_option
from headgate.command_line.exit_codes import ExitCode
from headgate.command_line.output import Output, format_resource, output_option


@define_command("validate")
@files_option
@output_option
def validate(output: Output, **options: tuple[Path, ...]) -> None:
    """Check Queues and Counters in files.

    FILES are YAML, of several documents each; - is standard input. One line per fault: file and line, document,
    field, and what would be right. Exit code 2 if there is a fault.
    """
    reading = read_files(files_of(options))
    if reading.faults and output.is_table:
        raise FilesInvalid(reading.faults)
    names = [format_resource(each.kind, each.metadata.namespace, each.metadata.name) for each in reading.resources]
    output.show(_document(reading), table=lambda: [_summary(reading)], names=names)
    if reading.faults:
        for fault in reading.faults if output.form == "name" else ():
            click.echo(str(fault), err=True)
        raise SystemExit(ExitCode.INVALID)


def _document(reading: LoadedFiles) -> dict[str, Any]:
    return {
        "valid": not reading.faults,
        "resources": [
            {"kind": each.kind, "name": f"{each.metadata.namespace}/{each.metadata.name}"}
            for each in reading.resources
        ],
        "faults": [
            {
                "file": each.file,
                "line": each.line or None,
                "document": each.document or None,
                "path": each.fault.path,
                "message": str(each.fault),
            }
            for each in reading.faults
        ],
        "ignored": reading.passed_over,
    }


def _summary(reading: LoadedFiles) -> str:
    counts = Counter(resource.kind for resource in reading.resources)
    parts = [f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(counts.items())]
    summary = f"valid: {', '.join(parts)}" if parts else "the files have no Queue and no Counter"
    return summary + (f"; {reading.passed_over} of other kinds ignored" if reading.passed_over else "")
