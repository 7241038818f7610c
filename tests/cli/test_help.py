"""The help of `muster`: every command has a heading, and an example that it accepts."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from importlib.metadata import entry_points

import pytest
import typer

from coordinator.cli.main import ENTRY_POINTS, SUBJECTS
from tests.support.processes import run_here

COMMANDS = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
EXAMPLE = re.compile(r"^Example: `muster (\S+)(?: (.*))?`$", re.MULTILINE)


def test_every_command_is_under_one_heading():
    listed = Counter(name for names in SUBJECTS.values() for name in names)
    assert listed == Counter(COMMANDS.keys())


def test_the_list_of_commands_has_the_headings_in_their_order():
    shown = run_here("--help").stdout.decode()
    headings = list(map(shown.find, SUBJECTS))
    assert -1 not in headings
    assert headings == sorted(headings)
    assert "─ Commands ─" not in shown, "a command without a heading"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_example_of_a_command_is_accepted(name):
    app = typer.Typer()
    app.command(name=name)(COMMANDS[name].load())
    command = typer.main.get_command(app)
    found = EXAMPLE.findall(command.help or "")
    assert [one for one, _ in found] == [name]
    words = shlex.split(found[0][1])
    command.make_context(name, words)  # raises for an unknown option, or one that is missing
    with pytest.raises(Exception, match="No such option"):
        command.make_context(name, [*words, "--no-such-option"])
