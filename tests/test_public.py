"""`import muster`: its names, all of them importable, and quick."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from importlib.metadata import version

import pytest

import muster as public
from tests.conftest import ROOT

NAMES = """
VIEWS __version__ Answers Assignor AsyncCoordinator AsyncMember AsyncStop BusyError Change Config ConfigError
Coordinator DeltaCatalog DictCatalog ErrorCode ExactlyOnceTable Fenced FileCatalog GroupAnswer GroupError
GroupSet GroupSpec GroupsAssignment HeartbeatAnswer KafkaCatalog LogError Member MissingExtraError PartitionRanges
PartitionsRefusedError Push ShownPlan SpecError Stop TopicCatalog TopicPartition UnavailableError Verdict
WeightTables assign_groups assignor_names embed embed_node foreach_partition_owner frame get_assignor parse_config
quality spark_session views Watch watch GroupOffsets starting_offsets
OffsetsGoneError SharedSource shared_source GroupChanges PlannedGroup SubscribedMembers
""".split()  # noqa: SIM905 - five lines, not fifty
"""A name that goes from here breaks programs; a new one is promised to them."""
PAGES = [ROOT / "README.md", ROOT / "docs/index.md", *sorted((ROOT / "docs/guide").glob("*.md"))]
OLD = re.compile(r"^(?:from|import) (?:assignors|coordinator|spark_jobs)\b.*", re.MULTILINE)


def test_the_public_names():
    assert sorted(public.__all__) == sorted(NAMES)
    assert sorted(dir(public)) == sorted(NAMES)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"__version__"}))
def test_a_name_is_what_its_room_defines(name):
    room, _, there = public._PLACES[name].partition(":")
    found = getattr(public, name)
    module = importlib.import_module(room)
    assert found is getattr(module, there)
    assert getattr(found, "__doc__", None)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"__version__", "assignor_names"}))
def test_a_function_says_what_it_takes_returns_and_raises(name):
    """In NumPy's sections; that of `assignor_names` takes nothing, and its line says the rest."""
    function = getattr(public, name)
    if not inspect.isfunction(function):
        return
    doc = inspect.getdoc(function)
    sections = re.findall(r"^(\w+)\n-+$", doc, re.MULTILINE)
    assert sections == ["Parameters", "Returns", "Raises"]
    named = re.split(r"^(?:Parameters|Returns)\n-+\n", doc, flags=re.MULTILINE)[1]
    given = re.findall(r"^(\w[\w, *]*)$", named, re.MULTILINE)
    taken = [one.replace("*", "").strip() for line in given for one in line.split(",")]
    assert sorted(taken) == sorted(inspect.signature(function).parameters)


def test_type_checkers_see_what_is_imported():
    tree = ast.parse((ROOT / "muster/__init__.py").read_text())
    (typed,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname or alias.name: f"{node.module}:{alias.name}"
        for node in typed.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen == public._PLACES


def test_what_the_old_rooms_export_is_public():
    """Only the assignors on DataFrames are not: `range` would hide Python's."""
    rooms = [importlib.import_module(name) for name in ("assignors", "coordinator", "spark_jobs")]
    named = {name for room in rooms for name in room.__all__}
    assert named - set(NAMES) == {"range", "sticky", "uniform", "weighted"}


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="has no attribute 'watch_all'"):
        public.watch_all  # noqa: B018 - asking is the point


def test_the_version_is_the_distribution_s():
    assert public.__version__ == version("muster")


def test_the_docstring_is_true():
    assert doctest.testmod(public).failed == 0


def test_importing_it_imports_nothing_else():
    code = "import sys; before = set(sys.modules); import muster; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if not name.startswith("muster")} <= {
        "importlib", "importlib._abc", "importlib._bootstrap", "importlib._bootstrap_external",
        "typing", "typing.io", "typing.re", "__future__", "warnings", "_collections", "collections",
        "collections.abc", "functools", "operator", "keyword", "reprlib", "re", "contextlib", "copyreg",
        "itertools", "_operator", "_functools", "types", "enum", "_sre", "re._compiler", "re._parser",
        "re._constants", "re._casefix", "_typing",
    }  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_import_muster(page):
    assert OLD.findall(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples").rglob("*.py")), ids=lambda file: file.name
)
def test_examples_import_muster(file):
    assert OLD.findall(file.read_text(encoding="utf-8")) == []


def test_the_module_is_the_command(muster):
    assert muster("--version").stdout.decode() == f"muster {version('muster')}\n"
