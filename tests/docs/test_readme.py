"""Blocks of README and of the guide are run; those that show their output give it."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.spark.class_archive import QUICK

BLOCK = re.compile(
    r"(?<! -->\n)^```(python|shell)\n(.*?)^```\n(?:```text\n(.*?)^```\n)?", re.DOTALL | re.MULTILINE
)
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture
def folder(tmp_path):
    """A place to run in that looks like the clone."""
    for name in ("conf", "examples", "spark_jobs"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


def run(file: Path, folder: Path) -> str:
    """Run a file as on a terminal of 80 columns, for only there reports are tables.

    What is written to stderr is added to a file `errors` of the folder.
    """
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TERM": "dumb",
        "COLUMNS": "80",
        "JAVA_TOOL_OPTIONS": QUICK,  # half the time in so short a life
    }
    command = f"{'python' if file.suffix == '.py' else 'sh'} {shlex.quote(str(file))} 2>>errors"
    done = subprocess.run(
        ["script", "-qec", command, "/dev/null"],
        cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + (folder / "errors").read_text()
    return done.stdout


def said_and_shown(page: str, folder: Path) -> list[tuple[str, str]]:
    """Run a page's blocks in order, for one may need what an earlier one wrote."""
    out = []
    for language, block, shown in BLOCK.findall((ROOT / page).read_text()):
        file = folder / ("block.py" if language == "python" else "block.sh")
        file.write_text(block)
        out.append((bare(run(file, folder)), bare(shown)))
    return out


def bare(text: str) -> str:
    """Text without its line breaks, which depend on the terminal, and with no time but NOW."""
    return " ".join(TIME.sub("NOW", text).split())


@pytest.mark.parametrize(("page", "blocks"), [("README.md", 1), ("docs/index.md", 1)])
def test_the_blocks_of_a_page_give_their_output(page, blocks, folder):
    pairs = said_and_shown(page, folder)
    assert len(pairs) >= blocks
    for said, shown in pairs:
        assert said == shown


@pytest.mark.spark
@pytest.mark.slow
def test_the_blocks_about_assigning_give_their_output(folder):
    """The job of a night runs in process, and as people submit it to Spark."""
    pairs = said_and_shown("docs/guide/assign.md", folder)
    assert len(pairs) >= 7
    assert any('"engine": "spark"' in said for said, _ in pairs)
    errors = (folder / "errors").read_text()
    assert " INFO " not in errors
    assert " WARN " not in errors
    for said, shown in pairs:
        assert said == shown


@pytest.mark.spark
def test_the_blocks_about_a_spark_driver_run(spark, tmp_path, monkeypatch, capsys):
    """In one process and session, one after another, as a driver would."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs/guide/embedding.md").read_text()
    for language, block, _ in BLOCK.findall(page):
        if language == "python":
            exec(compile(block, "docs/guide/embedding.md", "exec"), {"spark": spark})
    assert "127.0.0.1:" in capsys.readouterr().out


def test_the_example_runs(folder):
    said = run(folder / "examples/workers.py", folder)
    assert "w1, w2, w3: 4 moved, 0 had no owner" in said  # 17 shards: the third gets 4, within 1
    assert "w2, w3: 0 moved, 6 had no owner" in said


@pytest.mark.spark
def test_the_example_of_a_groups_life(spark, tmp_path, monkeypatch, capsys):
    """Join, growth, crash and return, then its history by SQL."""
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # other tests need it
    runpy.run_path(str(ROOT / "examples/group_life.py"))["main"](tmp_path / "store")
    said = capsys.readouterr().out
    assert "bob comes back\nbob owns 3 4 5\n" in said
    rows_shown = [line.strip("|").split("|") for line in said.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in row] for row in rows_shown]
    assert [row[1:] for row in rows[1:6]] == [
        ["member joined", "ann", "0"],
        ["member joined", "bob", "2"],
        ["topics changed", rows[3][2], "0"],  # by the first to ask
        ["session timeout", "bob", "0"],
        ["member joined", "bob", "3"],
    ]
    first_of_bob = next(row for row in rows if row[:3] == ["2", "3", "bob"])
    assert (first_of_bob[4], first_of_bob[6]) == ("member joined", "session timeout")


@pytest.mark.spark
@pytest.mark.slow
def test_the_example_of_a_group_by_lag(spark, tmp_path, capsys):
    """Weights change while it runs, a worker is drained by a plan, and SQL tells of it."""
    from spark_jobs.sql.views import register

    example = runpy.run_path(str(ROOT / "examples/lag_aware.py"))
    example["main"](tmp_path / "store")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "lag by worker {'worker-1': 300, 'worker-2': 300}"
    assert "2000" in said[1]
    assert said[3] == "drained {'worker-1': 6, 'worker-2': 0}"
    register(spark, tmp_path / "store", only=["epochs", "plans"])
    rows_shown = [tuple(row)[1:] for row in spark.sql(example["QUESTION"]).collect()]
    assert ("weights changed", None, None, None) in rows_shown
    of_plans = [who for reason, *who in rows_shown if reason.startswith("plan ")]
    assert of_plans == [["process", "User:bob", "low traffic"]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_picture_is_what_the_assignor_answers():
    command = [sys.executable, "-c", "import pictures; print(pictures.draw(), end='')"]
    drawn = subprocess.run(command, cwd=ROOT / "docs", capture_output=True, text=True, check=True)
    assert drawn.stdout == (ROOT / "docs/design/assignors.svg").read_text(), (
        "python docs/pictures.py"
    )
