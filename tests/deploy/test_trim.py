"""What is left out of the image: no module that Muster names."""

from __future__ import annotations

import ast

import pytest

from deploy.trim import LEFT_OUT
from tests.conftest import ROOT

ROOMS = ("assignors", "coordinator", "muster")


def names_in(text):
    """Return what a module imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{one.name}" for one in node.names))


@pytest.mark.parametrize("package", sorted(set(LEFT_OUT) - {"*"}))
def test_no_file_imports_what_is_left_out(package):
    gone = {f"{package}.{name.strip('._*')}" for name in LEFT_OUT[package]}
    files = (file for room in ROOMS for file in (ROOT / room).rglob("*.py"))
    texts = (file.read_text(encoding="utf-8") for file in files)
    named = {name for text in texts if package in text for name in names_in(text)}
    assert {name for name in named if name.startswith(f"{package}.")}
    assert not [name for name in named if any(f"{name}.".startswith(f"{one}.") for one in gone)]
