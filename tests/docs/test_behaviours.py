"""docs/design/behaviours.md and docs/design/coordinator.md say what the code and its tests say."""

from __future__ import annotations

import re
import runpy

import pytest

from tests.conftest import ROOT

docs = runpy.run_path(str(ROOT / "docs" / "behaviours.py"))
states = runpy.run_path(str(ROOT / "docs" / "states.py"))
SPECIFICATION = ROOT.parent / "shared" / "spec" / "behaviours.md"
RULES = SPECIFICATION.with_name("classic.md")
OURS = ("1.1", "1.2", "1.3", "1.4", "1.5", "1.6", *(f"2.{n}" for n in (*range(1, 12), 14)))
"""Sections of the specification that a coordinator, or a member, answers for."""


def stated():
    return {name for section in docs["statements"]()["section"] for name in section["says"]}


def test_every_statement_has_a_test_or_a_reason_and_not_both():
    tested, excused = set(docs["tests_by_id"]()), set(docs["statements"]()["not"])
    assert stated() - tested - excused == set()
    assert tested & excused == set()


def test_tests_and_reasons_name_only_what_is_stated():
    assert set(docs["tests_by_id"]()) - stated() == set()
    assert set(docs["statements"]()["not"]) - stated() == set()


def test_the_page_is_as_the_markers_say():
    page = (ROOT / "docs/design/behaviours.md").read_text(encoding="utf-8")
    assert page == docs["render"](), "run `python docs/behaviours.py`"


def test_the_tests_that_the_page_names_are_there():
    page = (ROOT / "docs/design/behaviours.md").read_text(encoding="utf-8")
    for file, function in set(re.findall(r"`([\w/]+\.py)::(\w+)`", page)):
        assert f"def {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


@pytest.mark.skipif(not SPECIFICATION.exists(), reason="the specification is not beside us")
def test_no_statement_of_the_specification_is_missing():
    wanted, section = set(), ""
    for line in SPECIFICATION.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"### ([\d.]+)", line):
            section = found[1]
        elif (row := re.match(r"\| ([KGMOPSW]-\d+[a-d]?) ", line)) and section in OURS:
            wanted.add(row[1])
    rules = set(
        re.findall(r"^- \*\*((?:H|M2)-\d+)\*\*", RULES.read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert wanted | rules == stated()


def test_the_states_are_drawn_from_the_tables_in_the_code():
    for name in states["PAGES"]:
        page = (ROOT / "docs/design" / name).read_text(encoding="utf-8")
        assert page == states["page"](name), "run `python docs/states.py`"
