"""`--json`: every command that prints rows or what it did takes it, and says it in one way."""

from __future__ import annotations

import json
import sys
from importlib.metadata import entry_points

import typer
from typer.testing import CliRunner

from coordinator.cli.inspect import print_done
from coordinator.cli.main import ENTRY_POINTS
from tests.conftest import ROOT
from tests.support.stories import Story, stored

WITHOUT = {"demo", "gateway", "serve", "setup", "trace", "watch", "web"}
"""They serve until they are stopped, or print JSON alone, or no rows."""


def all_commands():
    app = typer.Typer()
    for point in entry_points(group=ENTRY_POINTS):
        app.command(name=point.name)(point.load())
    return app


def test_every_other_command_takes_json():
    commands = typer.main.get_command(all_commands()).commands
    lacks = {
        name for name, one in commands.items() if not any("--json" in p.opts for p in one.params)
    }
    assert lacks == WITHOUT
    page = (ROOT / "docs/reference/commands.md").read_text()
    said = page[page.index("## JSON") : page.index("## Options")]
    assert all(f"`muster {name}`" in said for name in ("setup", "demo", "trace", "user", "conf"))


def test_commands_that_do_something_say_it_as_json(tmp_path):
    store = str(stored(Story().topics(t=1).join("m", "t").batches, tmp_path / "store"))
    runner, app = CliRunner(), all_commands()

    def run(*words, given=None):
        done = runner.invoke(app, words, input=given)
        assert done.exit_code == 0, done.output
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert [one["sound"] for one in run("verify", "--store", store, "--json")] == [True]
    (done,) = run("compact", "--store", store, "--json")
    assert done
    (done,) = run("backup", "--store", store, "--into", str(tmp_path / "copy"), "--json")
    assert done["position"] > 0
    assert {one["name"] for one in run("conf", "--json")} >= {"muster.toml", "assign.py"}
    (user,) = run("user", "ann", "--iterations", "4096", "--json", given="secret\n")
    assert (user["name"], len(user["verifiers"])) == ("ann", 2)


def test_on_a_terminal_what_was_done_is_a_table(capsys, monkeypatch):
    row = {"sound": True, "rows": 1_234, "shards": [{"shard": "0\x1b", "rows": 5}]}
    print_done(row, "shards", asked=False)
    assert json.loads(capsys.readouterr().out) == row
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_done(row, "shards", asked=True)
    assert json.loads(capsys.readouterr().out) == row
    print_done(row, "shards", asked=False)
    shown = capsys.readouterr().out
    assert "sound" in shown
    assert "\\x1b" in shown
    assert "{" not in shown
    assert row["shards"], "what is shown is not changed"
