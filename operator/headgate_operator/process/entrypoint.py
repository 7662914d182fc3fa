"""The console script `headgate-operator`: checks that the libraries of its extra are there, then starts the operator.

A plain install brings the script and not its libraries, so this module imports only what a plain install has.
"""

from __future__ import annotations

import sys

import click

from headgate.command_line.exit_codes import ExitCode
from headgate.command_line.extras import ExtraMissing, require_extra


def main() -> None:
    """The operator, or one line on stderr."""
    try:
        require_extra("operator", component="the operator")
    except ExtraMissing as error:
        click.echo(str(error), err=True)
        sys.exit(ExitCode.FAILED)
    from headgate_operator.process.main import main as operator

    operator()


if __name__ == "__main__":
    main()
