"""What is left out of the image: no module that Muster names."""

from __future__ import annotations

import ast

import pytest

from deploy.trim import LEFT_OUT
from tests.conftest import ROOT

ROOMS = ("assignors", "coordinator", "muster")


@pytest.mark.parametrize("package", sorted(set(LEFT_OUT) - {"*"}))
def test_no_file_imports_what_is_left_out(package):
    gone = {f"{package}.{name.strip('._*')}" for name in LEFT_OUT[package]}
    named = set()
    for room in ROOMS:
        for file in (ROOT / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    named |= {one.name for one in node.names}
                elif isinstance(node, ast.ImportFrom) and node.module:
                    named |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
    assert {name for name in named if name.startswith(f"{package}.")}
    assert not [name for name in named if any(f"{name}.".startswith(f"{one}.") for one in gone)]
