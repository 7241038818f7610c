"""Assignors by name, with their options; a user's own by entry point."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from assignors import Assignor, SpecError, assignor_names, get_assignor

PLUGIN = '''
from assignors import GroupSpec, PartitionRanges, get_assignor


class First:
    """Everything to the first member: a user's own assignor."""

    name = "first"

    def __init__(self, reverse: bool = False) -> None:
        self.reverse = reverse

    def assign(self, group: GroupSpec) -> PartitionRanges:
        ranges = get_assignor("range").assign(group)
        return PartitionRanges(
            group.member_ids, group.topics, ranges.member * 0, ranges.topic, ranges.first, ranges.count
        )
'''
PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "first-assignor"
version = "1"
[project.entry-points."muster.assignors"]
first = "first_assignor:First"
[tool.setuptools]
py-modules = ["first_assignor"]
"""


@pytest.mark.behaviour("K-112")
def test_the_built_in_assignors():
    assert assignor_names() == ["range", "sticky", "uniform", "weighted"]
    assert all(isinstance(get_assignor(name), Assignor) for name in assignor_names())


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "nope",
            {},
            "unknown assignor 'nope': give one of range, sticky, uniform, weighted",
        ),
        (
            "range",
            {"imbalance": 1},
            "assignor 'range' has no option 'imbalance': omit it, or use sticky",
        ),
        (
            "uniform",
            {"max_moves": 1},
            "assignor 'uniform' has no option 'max_moves': omit it, or",
        ),
        ("uniform", {"speed": 1}, "assignor 'uniform' has no option 'speed': omit it"),
        ("sticky", {"imbalance": -1}, "imbalance is -1: give a whole number"),
        ("sticky", {"imbalance": True}, "imbalance is True"),
        ("sticky", {"imbalance": "5 percent"}, 'such as "5%"'),
        ("sticky", {"imbalance": 1.5}, "imbalance is 1.5"),
        ("sticky", {"max_moves": -1}, "max_moves is -1"),
        ("sticky", {"max_moves": 1.0}, "max_moves is 1.0"),
    ],
)
def test_unknown_assignors_and_bad_options_are_refused(name, options, message):
    with pytest.raises(SpecError) as error:
        get_assignor(name, **options)
    assert message in str(error.value)


@pytest.mark.behaviour("G-152", "K-112")
def test_a_users_assignor_is_found_by_its_entry_point(tmp_path, muster):
    """Installed as a package of its own, used by name from the command and from Python."""
    source, target = tmp_path / "source", tmp_path / "site"
    source.mkdir()
    (source / "first_assignor.py").write_text(PLUGIN)
    (source / "pyproject.toml").write_text(PROJECT)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(target), str(source)],
        check=True,
        timeout=120,
    )
    env = {"PYTHONPATH": str(target)}
    spec = {"topics": {"a": 3}, "members": {m: {"subscribed": ["a"]} for m in ("x", "y")}}
    done = muster("assign", "--assignor", "first", stdin=json.dumps(spec), env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["assignment"] == {"x": {"a": [0, 1, 2]}, "y": {}}
    done = muster(
        "assign", "--assignor", "first", "--engine", "spark", stdin=json.dumps(spec), env=env
    )
    assert done.returncode == 2
    assert b"assignor 'first' does not run on Spark: use --engine local" in done.stderr
