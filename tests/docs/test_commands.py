"""Commands and options that pages name are those that `muster` has, and every command has its place."""

from __future__ import annotations

import re
from importlib.metadata import entry_points

import pytest
import typer
from typer.testing import CliRunner

from coordinator.cli.main import ENTRY_POINTS, PlainHelp
from tests.conftest import ROOT

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
CODE = re.compile(r"^```(?:shell)?\n(.*?)^```$|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"(?<!from )\bmuster ([a-z]+)\b([^\n|;)]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


@pytest.fixture(scope="module")
def commands():
    app = typer.Typer()
    for point in entry_points(group=ENTRY_POINTS):
        app.command(name=point.name)(point.load())
    return typer.main.get_command(app).commands


@pytest.fixture(scope="module")
def options(commands):
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


def shown_help(muster_here, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    done = muster_here(command, "--help")
    assert done.returncode == 0
    return " ".join(done.stdout.decode().replace("│", " ").split())


def test_the_help_of_a_command_is_shown_as_it_is_written(commands, muster_here, monkeypatch):
    """Also what Rich would take for a style: `[web.listen]`."""
    bracketed = 0
    for name, command in commands.items():
        texts = [command.help.split("\n\n")[0], *(one.help for one in command.params)]
        for text in filter(None, texts):
            if "[" in text:
                bracketed += 1
                assert " ".join(text.split()) in shown_help(muster_here, name, monkeypatch)
    assert bracketed > 5


def test_brackets_in_a_planted_help_are_shown():
    app = typer.Typer()

    @app.command(cls=PlainHelp)
    def do(first: str = typer.Option(help="By [bold], as [first, count], from 3 [/] to [4].")):
        """Does [red] things."""

    shown = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output.split())
    assert "By [bold], as [first, count], from 3 [/] to [4]." in shown
    assert "Does [red] things." in shown
