"""docs/sql.md tells the truth: its questions have these answers, its tables all columns."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex

import pytest
from conftest import ROOT
from rich.console import Console
from test_readme import bare, folder, run

from coordinator.reading import Reading
from coordinator.reading_tables import print_rows

pytestmark = pytest.mark.spark

__all__ = ["folder"]

PAGE = ROOT / "docs/sql.md"
LINES = r"((?:(?!```).*\n)*)"
BLOCK = re.compile(rf"^```(sql|shell|python)\n{LINES}```\n```text\n{LINES}```\n", re.MULTILINE)
SECTION = re.compile(r"^### `(\w+)`[^\n]*\n(.*?)(?=^##)", re.DOTALL | re.MULTILINE)
COLUMNS = re.compile(r"^\| (`[^|]*`) \|", re.MULTILINE)
REWRITE = "MUSTER_REWRITE"
"""Set, the answers in the page are written anew; read the difference before you commit it."""
WIDTH = 100


@pytest.fixture
def store(muster_here, folder):
    done = muster_here("trace", "examples/billing.jsonl", "--log", "store", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "store"


def asked(store, query):
    """Return what `muster sql` prints at a terminal."""
    from spark_jobs.query import answer

    columns, rows = answer(store, Reading(store).position, query)
    said = io.StringIO()
    print_rows(Console(file=said, width=WIDTH, markup=False, highlight=False), list(rows), columns)
    return said.getvalue()


def told(store, folder, muster_here, kind, block):
    if kind == "sql":
        return asked(store, block)
    if kind == "python":
        said = io.StringIO()
        with contextlib.chdir(folder), contextlib.redirect_stdout(said):
            exec(compile(block, str(PAGE), "exec"), {})
        return said.getvalue()
    if block.startswith("muster sql"):
        done = muster_here(*shlex.split(block)[1:], cwd=folder)
        assert done.returncode == 0, done.stderr
        return "".join(json.dumps(json.loads(line)) + "\n" for line in done.stdout.splitlines())
    file = folder / "block.sh"
    file.write_text(block)
    return run(file, folder).replace("\r\n", "\n")


def test_the_page_tells_the_truth(spark, store, folder, muster_here):
    text = PAGE.read_text()
    for kind, block, shown in BLOCK.findall(text):
        said = told(store, folder, muster_here, kind, block)
        if REWRITE in os.environ:
            old, new = (f"```{kind}\n{block}```\n```text\n{out}```\n" for out in (shown, said))
            text = text.replace(old, new)
        else:
            assert bare(said) == bare(shown), block
    if REWRITE in os.environ:
        PAGE.write_text(text)


def test_the_page_names_every_column_of_every_view(spark, store):
    from spark_jobs.views import register, view_names

    register(spark, store)
    sections = dict(SECTION.findall(PAGE.read_text()))
    for name, section in sections.items():
        named = [word for cell in COLUMNS.findall(section) for word in re.findall(r"`(\w+)`", cell)]
        if named:
            assert named == spark.table(name).columns, name
    known = set(re.findall(r"`(\w+)`", PAGE.read_text()))
    assert set(view_names()) <= known
