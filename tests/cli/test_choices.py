"""Options of a few values: each is read by one rule, and a wrong one is refused in one line."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("words", "name", "choices"),
    [
        ("serve --takeover", "--takeover", "wait, refuse, force"),
        ("gateway --takeover", "--takeover", "wait, refuse, force"),
        ("watch --takeover", "--takeover", "wait, refuse, force"),
        ("watch --by", "--by", "topic, describe"),
        ("serve --log-level", "--log-level", "debug, info, warning, error"),
        ("node check --log-level", "--log-level", "debug, info, warning, error"),
        ("node", "the action", "run, check, join, lead, yield, leave"),
        ("plans --store s --status", "--status", "waiting, applied, rejected, expired, superseded"),
        ("assign --engine", "--engine", "auto, local, spark"),
        ("assign --format", "--format", "lists, ranges"),
    ],
)
@pytest.mark.parametrize("given", ["loud", "", "WAIT", "wait,force", "über\x1b[2J"])
def test_a_value_that_is_none_of_them_is_refused(
    muster_here, tmp_path, words, name, choices, given
):
    done = muster_here(*words.split(), given, cwd=tmp_path)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (2, b"")
    assert said == f"muster: {name} is {given!r}: give one of {choices}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["serve", "gateway", "watch"])
def test_help_lists_the_values(muster_here, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "120")
    shown = muster_here(command, "--help").stdout.decode()
    assert "wait|refuse|force" in shown
    assert "debug|info|warning|error" in shown
