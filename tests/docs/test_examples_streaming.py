"""examples/streaming: its parts, and the whole story (`make test-clients`, or MUSTER_LONG=1)."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support.longer import longer

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


@longer("make test-clients")
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
