"""What pages say of files is so."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PATH = re.compile(
    r"`((?:assignors|coordinator|spark_jobs|tests|conf|docs|examples|benchmarks)/[\w./-]*)`"
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_is_there(page):
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []
