"""Pages name files that exist."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.conftest import ROOT

PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
PATH = re.compile(
    r"`((?:assignors|coordinator|spark_jobs|tests|conf|docs|examples|benchmarks)/[\w./-]*)`"
)

MODULE = re.compile(r"`((?:[\w-]+/)*[\w-]+\.(?:py|sql))`")
"""A module by its last names, where its folder is said before it."""
LISTED = subprocess.run(
    ["git", "ls-files", "-co", "--exclude-standard"],
    cwd=ROOT, capture_output=True, text=True, check=True,
).stdout.split()  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_that_a_page_names_is_there(page):
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_module_that_a_page_names_is_there(page):
    there = [f"/{name}" for name in LISTED if (ROOT / name).exists()]
    text = re.sub(r"<!-- not run: .* -->\n```.*\n(?:(?!```).*\n)*```", "", page.read_text("utf-8"))
    named = set(MODULE.findall(text)) - {"your_driver.py"}
    missing = [name for name in named if not any(path.endswith(f"/{name}") for path in there)]
    assert missing == []
