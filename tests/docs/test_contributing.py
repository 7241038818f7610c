"""CONTRIBUTING.md and the page on architecture name the right files for a change."""

from __future__ import annotations

import re

import pytest

from assignors.loads.constraints import KINDS
from tests.conftest import ROOT
from tests.docs.test_paths import LISTED, PATH

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = {
    "an assignor": "uniform",
    "a field of a record": "rack_id",
    "an API, or a version of one": "list_?groups|VERSIONS",
    "a client's quirk": "Quirk",
    "a view": "partition_owners|holdings",  # and one of its steps
    "a kind of constraint": "exclude",
    "a metric": "load_spread",
    "an error code": "STALE_MEMBER_EPOCH",
    "a setting": "max_failures",
    "a command": "compact|sql",
}
"""Of each kind one that is there: every file of its list names it."""
WANTED = {
    "add an error code": "coordinator/errors.py",
    "add a field to a record": "coordinator/core/records.py",
    "change how commits are batched": "coordinator/runtime/event_loop.py",
    "find out why a Spark stage is slow": "spark_jobs/jobs/target_job.py",
    "add a view": "spark_jobs/sql/partition_owners.sql",
    "add a version of an API": "coordinator/wire/codec.py",
    "mend the lease": "coordinator/storage/lease.py",
    "add a kind of constraint": "assignors/loads/constraints.py",
}


def lists():
    for section in PAGE.partition("## How to add")[2].partition("\n## ")[0].split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        bullets = re.findall(r"^- .*(?:\n  .*)*", text, re.MULTILINE)
        yield heading, [path for bullet in bullets for path in PATH.findall(bullet)]


LISTS = dict(lists())


def test_every_list_has_an_example():
    assert LISTS.keys() == EXAMPLES.keys()
    assert all(LISTS.values())


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_files_of_a_list_name_its_example(kind):
    named = re.compile(EXAMPLES[kind], re.IGNORECASE)
    for path in LISTS[kind]:
        files = [name for name in LISTED if name == path or name.startswith(path.rstrip("/") + "/")]
        assert files, path
        assert any(named.search(name + (ROOT / name).read_text("utf-8")) for name in files), path


def ways():
    """Return where each change ends, by what one wants to do."""
    page = (ROOT / "docs/design/architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Where to change what")[2].partition("\n## ")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines() if row.startswith("| ")]
    return {what: where for what, _, where in rows}


def test_the_way_to_each_change_ends_at_its_file():
    """The eight that somebody who has never seen the project is to find from the tree alone."""
    files = ways()
    for what, file in WANTED.items():
        assert f"`{file}`" in files[what], what
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_to_a_constraint_passes_where_each_kind_is_known(kind):
    """Its class is the one place that must name a new kind; the others tell kinds apart."""
    named = re.compile(rf"\b{kind.upper()}\b")
    first, *others = [
        (ROOT / file).read_text() for file in PATH.findall(ways()["add a kind of constraint"])
    ]
    assert re.search(rf"^class \w+\(_\w+, tag={kind.upper()},", first, re.MULTILINE)
    assert any(named.search(text) for text in others)


@pytest.mark.parametrize(
    "view", sorted((ROOT / "spark_jobs/sql").glob("*.sql")), ids=lambda file: file.stem
)
def test_a_view_says_why_it_is_sql_as_well_as_arrow(view):
    head = re.match(r"(--.*\n)+", view.read_text(encoding="utf-8"))
    assert re.search(r"^-- In SQL, too, (since|as) .{20}", head[0], re.MULTILINE)
