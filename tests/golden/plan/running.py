"""The output of `headgate plan` for an example, and the file that keeps it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from click.testing import CliRunner

from headgate.cli.main import main

FOLDER = Path(__file__).parent
EXAMPLES = Path(__file__).parents[3] / "examples"
PLANS = (FOLDER / "shop.txt",)


def planned(plan: Path) -> str:
    """The plan of the example of that name, whatever version is installed."""
    result = CliRunner().invoke(main, ["plan", "-f", str(EXAMPLES / f"{plan.stem}.yaml")])
    assert (result.exit_code, result.stderr) == (0, ""), result.stderr
    return result.stdout.replace(version("headgate"), "<version>")
