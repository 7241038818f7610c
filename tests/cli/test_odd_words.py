"""Words of a command line that can mean nothing are refused in a line, and nothing is written."""

from __future__ import annotations

import pytest

from tests.conftest import ROOT
from tests.support.processes import run_here

BYTES = "\udcff"
"""What Python makes of a byte that is not UTF-8."""
LONG = "x" * 5_000
HUGE = 10**23


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("odd") / "store"
    operations = ROOT / "examples" / "billing.jsonl"
    assert run_here("trace", operations, "--log", folder).returncode == 0
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["history", "billing", "--topic", BYTES], b"owned topic '\\udcff'"),
        (["history", "billing", "--topic", "orders", "--partition", HUGE], b"give one up to 7"),
        (["plan", "billing", "--reason", BYTES, "-o", "plan"], b"is not UTF-8"),
        (["rollback", "billing", "--to", "2", "--reason", BYTES, "-o", "plan"], b"is not UTF-8"),
        (["approve", "billing", BYTES], b"is not UTF-8"),
        (["reject", BYTES, "plan"], b"is not UTF-8"),
        (["plan", "billing", "-o", ""], b"cannot be written: name a file"),
        (["plan", "billing", "-o", LONG], b"cannot be written: File name too long"),
        (["plan", "billing", "--weights", LONG], b"folder or table not found"),
        (["plan", "billing", "--config", ""], b"cannot be read"),
        (["doctor", "--flaps", HUGE], b"give 1 or more, up to 2147483647"),
        (["doctor", "--rebalances", HUGE], b"give 0 or more, up to 2147483647"),
        (["doctor", "--skew", "1e308"], b"give 1 or more, up to 2147483647"),
    ],
)
def test_odd_words_are_refused_in_a_line(muster_here, store, tmp_path, words, said):
    done = muster_here(*words, "--store", store, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["none", ".", ""])
def test_operations_that_are_no_file_are_refused(muster_here, tmp_path, name):
    done = muster_here("trace", name, "--log", tmp_path / "log", cwd=tmp_path)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"cannot be read: " in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["backup", "--into"], ["restore", "--store"]])
def test_no_copy_is_made_in_the_current_folder_by_a_variable_that_is_not_set(
    muster_here, store, tmp_path, words
):
    from_here = "--store" if words[0] == "backup" else "--from"
    done = muster_here(*words, "", from_here, store, cwd=tmp_path)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"the destination '' is not a folder" in done.stderr
    assert list(tmp_path.iterdir()) == []
