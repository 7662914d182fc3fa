"""docs/start-on-call.md names what there is."""

from __future__ import annotations

import click
import pytest

from headgate_operator.cli.kubectl_plugin import main
from tests.unit.api.api_cases import ROOT

PAGE = (ROOT / "docs/start-on-call.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(main.commands))
def test_every_command_is_on_the_page_with_its_options_and_names_what_each_does(name: str) -> None:
    command = main.commands[name]
    assert f"| `kubectl headgate {name} " in PAGE
    assert command.help
    for option in (each for each in command.params if isinstance(each, click.Option)):
        assert option.help, option.name
        assert any(f"`{each}" in PAGE for each in option.opts), option.opts
