"""tools/commits.py: which subjects of commits are refused."""

from __future__ import annotations

import importlib.util
import subprocess

import pytest

from tests.conftest import ROOT

spec = importlib.util.spec_from_file_location("commits", ROOT / "tools/commits.py")
commits = importlib.util.module_from_spec(spec)
spec.loader.exec_module(commits)


@pytest.mark.parametrize(
    "subject",
    [
        "Group current-member runs by group",
        "Pass the address on",
        "Re-read secrets",
        "Embed Sphinx",
    ],
)
def test_an_imperative_passes(subject):
    assert commits.fault(subject) is None


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("Adds a view", "imperative"),
        ("Fixed the lease", "imperative"),
        ("Moving files", "imperative"),
        ("The lease is read once", "imperative"),
        ("docs: a page", "imperative"),
        ("wip", "imperative"),
        ("Add a view.", "full stop"),
        ("Add " + "x" * 70, "74 characters"),
    ],
)
def test_anything_else_is_refused(subject, why):
    assert why in commits.fault(subject)


def test_the_body_begins_after_an_empty_line():
    assert "empty line" in commits.fault("Add a view", "because")
    assert commits.fault("Add a view", "") is None


def git(folder, *words):
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], cwd=folder, check=True
    )


def test_faults_of_a_repository_are_printed(tmp_path, capsys):
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Fixed it"]):
        git(tmp_path, *words)
    with pytest.raises(SystemExit) as end:
        commits.main("HEAD", tmp_path)
    assert end.value.code == 1
    assert "'Fixed it' begins with 'Fixed'" in capsys.readouterr().out


def test_commits_after_the_rule_are_checked_without_being_named(tmp_path, capsys):
    """By its file: the hash of a commit changes when history is written again."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Fixed before")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/commits.py").touch()
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "Check subjects")
    with pytest.raises(SystemExit) as end:
        commits.main(folder=tmp_path)
    assert end.value.code == 0
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "Fixed after")
    with pytest.raises(SystemExit) as end:
        commits.main(folder=tmp_path)
    assert end.value.code == 1
    assert "'Fixed after'" in (said := capsys.readouterr().out)
    assert "before" not in said
