"""docs/guide/sql.md tells the truth: its questions have these answers, its tables all columns."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex

import pytest
from rich.console import Console

from coordinator.cli.render import print_rows
from coordinator.history import VIEWS, frame
from coordinator.history.view_schemas import FUNCTION_SCHEMAS
from tests.conftest import ROOT
from tests.docs.test_readme import bare, folder, run
from tests.spark.test_views import rows_of

pytestmark = pytest.mark.spark

__all__ = ["folder"]

PAGE = ROOT / "docs/guide/sql.md"
LINES = r"((?:(?!```).*\n)*)"
BLOCK = re.compile(rf"^```(sql|shell|python)\n{LINES}```\n```text\n{LINES}```\n", re.MULTILINE)
SECTION = re.compile(r"^### `(\w+)`[^\n]*\n(.*?)(?=^##)", re.DOTALL | re.MULTILINE)
COLUMNS = re.compile(r"^\| (`[^|]*`) \|", re.MULTILINE)
REWRITE = "MUSTER_REWRITE"
"""Set, the answers in the page are rewritten; read the difference before you commit it."""
WIDTH = 100


@pytest.fixture
def store(muster_here, folder):
    done = muster_here("trace", "examples/billing.jsonl", "--log", "store", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "store"


@pytest.fixture
def views(spark, store):
    """The views as tables of their rows: tests/spark/test_views.py compares these with the views."""
    from spark_jobs.sql.views import register

    register(spark, store, only=["topics"])  # and the function explode_partitions
    for name in VIEWS:
        spark.createDataFrame(frame(store, name)).createOrReplaceTempView(name)
    return {name: spark.table(name) for name in VIEWS}


def asked(spark, query):
    """Return what `muster sql` prints at a terminal."""
    frame = spark.sql(query)
    said = io.StringIO()
    console = Console(file=said, width=WIDTH, markup=False, highlight=False)
    print_rows(console, rows_of(frame), frame.columns)
    return said.getvalue()


def run_block(spark, folder, muster_here, kind, block):
    if kind == "sql":
        return asked(spark, block)
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


def test_the_page_tells_the_truth(spark, views, folder, muster_here):
    """Every block has the output that follows it, and its tables name all columns of the views."""
    from spark_jobs.sql.views import view_names

    text = PAGE.read_text()
    blocks = BLOCK.findall(text)
    # Python and the command register views of their own: after all questions.
    for kind, block, shown in sorted(blocks, key=lambda block: block[0] != "sql"):
        said = run_block(spark, folder, muster_here, kind, block)
        if REWRITE in os.environ:
            old, new = (f"```{kind}\n{block}```\n```text\n{out}```\n" for out in (shown, said))
            text = text.replace(old, new)
        else:
            assert bare(said) == bare(shown), block
    if REWRITE in os.environ:
        PAGE.write_text(text)
    sections = dict(SECTION.findall(text))
    for name, section in sections.items():
        named = [word for cell in COLUMNS.findall(section) for word in re.findall(r"`(\w+)`", cell)]
        if named:
            assert named == views[name].columns, name
    assert set(view_names()) <= set(re.findall(r"`(\w+)`", text))
    for name in FUNCTION_SCHEMAS:
        with pytest.raises(Exception, match="UNRESOLVABLE_TABLE_VALUED_FUNCTION"):
            spark.sql(f"SELECT * FROM {name}('billing', 3)")
