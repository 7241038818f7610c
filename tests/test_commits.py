"""tools/commits.py: which subjects of commits are refused."""

from __future__ import annotations

import importlib.util

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


def test_faults_of_a_repository_are_printed(tmp_path, capsys):
    import subprocess

    for word in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "Fixed it"]):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@t", *word], cwd=tmp_path, check=True
        )
    with pytest.raises(SystemExit) as end:
        commits.main("HEAD", tmp_path)
    assert end.value.code == 1
    assert "'Fixed it' begins with 'Fixed'" in capsys.readouterr().out
