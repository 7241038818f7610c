"""The documentation site: its tables have all that the code has, its pages all public names."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import runpy
from importlib.metadata import entry_points

import pytest

from coordinator.api.operations import OPERATIONS
from coordinator.api.problems import Kind
from coordinator.cli.main import ENTRY_POINTS
from coordinator.config import Config
from coordinator.config.kafka import GROUP_NAMES, KAFKA_NAMES
from coordinator.core.reasons import Reason
from coordinator.errors import ErrorCode
from coordinator.history.findings import SCHEMAS
from coordinator.history.view_schemas import VIEW_SCHEMAS
from coordinator.member.states import ClientState
from tests.conftest import ROOT

TABLES = runpy.run_path(str(ROOT / "docs/tables.py"))["TABLES"]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MARKER = re.compile(r"^<!-- table: (\w+) -->$", re.MULTILINE)
DIRECTIVE = re.compile(r"^\.\. (auto\w+|currentmodule):: (\S+)", re.MULTILINE)
METRIC = re.compile(r'(?:Gauge|_counter|_histogram|GaugeMetricFamily|_by_label)\(\s*"(\w+)"')


def settings():
    kinds = {one.name: type(getattr(Config(), one.name)) for one in dataclasses.fields(Config)}
    names = {one.name for section, kind in kinds.items() if section != "kafka"
             for one in dataclasses.fields(kind)}  # fmt: skip
    return names | set(KAFKA_NAMES)


def metrics():
    text = (ROOT / "coordinator/runtime/metrics.py").read_text(encoding="utf-8")
    return set(METRIC.findall(text))


ALL = {
    "client_states": lambda: {state.name for state in ClientState},
    "commands": lambda: {f"## muster {point.name}" for point in entry_points(group=ENTRY_POINTS)},
    "errors": lambda: {code.name for code in ErrorCode if code},
    "findings": lambda: set(SCHEMAS),
    "group_settings": lambda: set(GROUP_NAMES),
    "http": lambda: {one.path for one in OPERATIONS},
    "metrics": metrics,
    "problems": lambda: {f"urn:muster:problem:{one}" for one in Kind},
    "reasons": lambda: {reason.code for reason in Reason},
    "settings": settings,
    "views": lambda: set(VIEW_SCHEMAS),
}


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_has_all_that_the_code_has(name):
    text, wanted = TABLES[name](), ALL[name]()
    assert len(wanted) >= 5
    assert [
        one for one in sorted(wanted) if not re.search(rf"{re.escape(one)}(_total)?(?!\w)", text)
    ] == []


def test_each_table_is_on_one_page():
    asked = [name for page in PAGES for name in MARKER.findall(page.read_text(encoding="utf-8"))]
    assert sorted(asked) == sorted(TABLES)


@pytest.mark.parametrize(
    "package", ["assignors", "coordinator", "coordinator.history", "muster", "spark_jobs"]
)
def test_the_reference_has_every_public_name(package):
    page = ROOT / f"docs/reference/api/{package.rpartition('.')[2]}.md"
    text = page.read_text(encoding="utf-8")
    public = importlib.import_module(package).__all__
    assert [name for name in public if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/reference/api").glob("*.md")), ids=lambda page: page.stem
)
def test_what_the_reference_documents_is_there(page):
    """`make docs` refuses what is not there, too, but later."""
    module = ""
    for directive, name in DIRECTIVE.findall(page.read_text(encoding="utf-8")):
        if directive == "currentmodule":
            module = name
        elif not importable(name):
            assert importable(f"{module}.{name}"), name


def importable(name):
    try:
        return bool(pkgutil.resolve_name(name))
    except (ImportError, AttributeError, ValueError):
        return False


def test_every_page_has_its_place_in_the_site():
    """A page that is in no table of contents cannot be found; Sphinx refuses a second place."""
    for page in PAGES:
        folder = page.parent
        index = (
            folder / "index.md" if (folder / "index.md").exists() else folder.parent / "index.md"
        )
        named = str(page.relative_to(index.parent).with_suffix(""))
        if page != index:
            assert re.search(rf"^{re.escape(named)}$", index.read_text(), re.MULTILINE), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_links_to_markdown_beyond_the_site(page):
    """There it is no page: Sphinx would not find it."""
    targets = re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text(encoding="utf-8"))
    beyond = [one for one in targets if (page.parent / one).resolve() not in PAGES]
    assert beyond == []


def test_a_setting_that_differs_from_its_default_is_refused(tmp_path, monkeypatch):
    """The page shows conf/muster.toml; what is not so there must not be shown."""
    build = TABLES["settings"]
    other = tmp_path / "muster.toml"
    other.write_text(
        (ROOT / "conf/muster.toml").read_text().replace("max_failures = 3", "max_failures = 4")
    )
    monkeypatch.setitem(build.__globals__, "SETTINGS", other)
    with pytest.raises(ValueError, match=r"engine\.max_failures"):
        build()
