"""examples/streaming: its parts, and the whole story (`make test-clients`, or MUSTER_LONG=1)."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "streaming"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


def test_an_offset_is_a_rows_number_in_the_order_of_the_files(tmp_path):
    import files

    assert files.read(tmp_path, 0, 10) == []
    files.append(tmp_path, 0, ["a", "b", "c"])
    files.append(tmp_path, 3, ["d"])
    files.append(tmp_path, 4, ["e", "f"])
    assert files.read(tmp_path, 0, 10) == list("abcdef")
    assert files.read(tmp_path, 2, 3) == list("cde")
    assert files.read(tmp_path, 4, 10) == list("ef")
    assert files.read(tmp_path, 6, 10) == []


def test_a_repeat_and_a_zombies_write_are_refused(tmp_path):
    from output import Output, RefusedError

    ann, zombie = Output(tmp_path / "out"), Output(tmp_path / "out")
    ann.write("t", 0, 0, ["a", "b"], "ann")
    zombie.write("t", 1, 0, ["x"], "zombie")  # another partition: both may
    with pytest.raises(RefusedError, match="t-0 is not at 0 any more"):
        zombie.write("t", 0, 0, ["a", "b"], "zombie")
    with pytest.raises(RefusedError, match="t-0 is not at 3 any more"):
        ann.write("t", 0, 3, ["d"], "ann")  # nothing may be left out either
    ann.write("t", 0, 2, ["c"], "ann")
    assert (zombie.next_offset("t", 0), zombie.next_offset("t", 1)) == (3, 1)
    rows = ann._table.to_pyarrow_table().sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    assert rows["value"].to_pylist() == ["a", "b", "c", "x"]


@pytest.mark.skipif(not os.environ.get("MUSTER_LONG"), reason="make test-clients")
def test_no_row_is_lost_or_written_twice(tmp_path):
    done = subprocess.run(
        [sys.executable, str(FOLDER), str(tmp_path)],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.search(
        r"count\(\*\) = (\d+), count\(distinct\) = (\d+), rows produced = (\d+)", done.stdout
    )
    assert len(set(counts.groups())) == 1, counts
    assert int(counts[1]) >= 2_500
