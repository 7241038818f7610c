"""Pages, messages and code have the words of docs/design/style.md; the changelog stays short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import ROOT

IN_TESTS = r"told|(?<!made-)anew|who(m)?ever|any more|for ever"
WORDS = rf"nobody|somebody|whatever|said|{IN_TESTS}"
"""Words that read as translated; docs/design/style.md has better ones."""
REFUSED = re.compile(rf"\b({WORDS})\b", re.IGNORECASE)
REFUSED_IN_CODE = re.compile(rf"(?<![a-z])({WORDS})(?![a-z])", re.IGNORECASE)
"""In names, docstrings and comments too: `told_ms` says as little as "it is told"."""
REFUSED_IN_TESTS = re.compile(rf"(?<![a-z])({IN_TESTS})(?![a-z])", re.IGNORECASE)
"""There "nobody" is the id of what does not exist, and "made-anew" of a topic that comes back."""
KEPT = "nobody owned it"  # a reason of `assignment_history`: jobs compare it, old stores have it
GENERATED = ("behaviours", "benchmarks", "faults")
"""Pages that programs write, of what tests and measurements are called."""
ABOUT_WORDS = "docs/design/style.md"
VERSION_LINES = 25


def pages():
    """Yield what people read: pages, settings, the web's templates."""
    found = [*ROOT.glob("*.md"), ROOT / "conf/muster.toml"]
    found += [page for page in (ROOT / "docs").rglob("*.md") if page.stem not in GENERATED]
    found += (ROOT / "coordinator/web/templates").glob("*.html")
    return sorted(page for page in found if page != ROOT / ABOUT_WORDS)


def messages(text):
    """Yield strings of code that are no docstrings: messages, helps of commands, what is printed."""
    tree = ast.parse(text)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef) and node.name in COMMANDS:
            yield node.lineno, ast.get_docstring(node) or ""  # its help


CODE = {".py", ".sql", ".js", ".html", ".toml"}
ROOMS = ("assignors", "benchmarks", "conf", "coordinator", "examples", "muster", "pyspark_muster",
         "spark_jobs", "tools")  # fmt: skip


def code():
    """Yield the files of the product, and of what is beside it for users."""
    for room in ROOMS:
        yield from (file for file in sorted((ROOT / room).rglob("*")) if file.suffix in CODE)
    yield from sorted((ROOT / "docs").glob("*.py"))


COMMANDS = {path.stem for path in ROOT.glob("*/cli/*.py")}


def refused_in(text, refused=REFUSED):
    return [found[0] for found in refused.finditer(text.replace(KEPT, ""))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_the_words_of_the_style(page):
    lines = enumerate(page.read_text().splitlines(), 1)
    assert [(number, found) for number, line in lines if (found := refused_in(line))] == []


def test_messages_have_the_words_of_the_style():
    wrong = [
        (str(file.relative_to(ROOT)), line, found)
        for package in ("assignors", "coordinator", "muster", "spark_jobs")
        for file in sorted((ROOT / package).rglob("*.py"))
        for line, text in messages(file.read_text())
        if (found := refused_in(text))
    ]
    assert wrong == []


def test_code_has_the_words_of_the_style():
    files = dict.fromkeys(code(), REFUSED_IN_CODE)
    files |= dict.fromkeys((ROOT / "tests").rglob("*.py"), REFUSED_IN_TESTS)
    del files[Path(__file__)]
    wrong = [
        (f"{file.relative_to(ROOT)}:{number}", found)
        for file, refused in files.items()
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if (found := refused_in(line, refused))
    ]
    assert wrong == []


@pytest.mark.parametrize("line", ["told_ms = 3", "# nobody waits", "NOBODY = -1", "self._said = 1"])
def test_a_planted_word_in_code_is_found(line):
    assert refused_in(line, REFUSED_IN_CODE)
    assert not refused_in("UNOWNED = 'nobody owned it'; stolder = cold", REFUSED_IN_CODE)


@pytest.mark.parametrize(
    "text", ["Nobody waits", "it is told so", "begins anew", "whomever", "Whatever it is"]
)
def test_a_planted_word_is_found(text):
    assert refused_in(text)
    assert [
        line for line, found in messages(f"def f():\n    raise E({text!r})") if refused_in(found)
    ]
    assert not refused_in("the reason is 'nobody owned it'")


def test_a_version_of_the_changelog_has_few_lines():
    versions = re.split(r"(?m)^## ", (ROOT / "CHANGELOG.md").read_text())[1:]
    long = {
        version.splitlines()[0]: len(lines)
        for version in versions
        if len(lines := [line for line in version.splitlines()[1:] if is_said(line)])
        > VERSION_LINES
    }
    assert long == {}
    assert len(versions) >= 2


def is_said(line):
    return bool(line.strip()) and not line.startswith("#")
