"""Commands and options that pages name are those that `muster` has, and every command has its place."""

from __future__ import annotations

import re
from importlib.metadata import entry_points

import pytest
import typer

from coordinator.cli.main import ENTRY_POINTS
from tests.conftest import ROOT

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
CODE = re.compile(r"^```(?:shell)?\n(.*?)^```$|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?<!from )\bmuster ([a-z]+)\b([^\n|;)]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


@pytest.fixture(scope="module")
def options():
    app = typer.Typer()
    for point in entry_points(group=ENTRY_POINTS):
        app.command(name=point.name)(point.load())
    commands = typer.main.get_command(app).commands
    return {
        name: {
            "--help",
            *(text for option in command.params for text in (*option.opts, *option.secondary_opts)),
        }
        for name, command in commands.items()
    }


def named(page):
    """Commands in a page's code, each with the rest of its line."""
    for block, inline in CODE.findall(page.read_text(encoding="utf-8")):
        yield from COMMAND.findall((block or inline).replace("\\\n", " "))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_commands_and_options_of_a_page_exist(page, options):
    wrong = []
    for command, rest in named(page):
        unknown = set(OPTION.findall(rest)) - options.get(command, set())
        if command not in options or unknown:
            wrong.append(f"muster {command} {' '.join(sorted(unknown))}")
    assert wrong == []


def test_every_command_is_on_the_page_of_commands(options):
    page = ROOT / "docs/reference/commands.md"
    assert set(options) == {command for command, _ in named(page)}
