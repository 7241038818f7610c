"""Write docs/design/behaviours.md: statements about a group coordinator, each with its tests.

    python docs/behaviours.py

Statements are in design/behaviours.toml and behaviours_classic.toml; tests name them:
@pytest.mark.behaviour("G-31"). A test writes it again and compares.
"""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
HEAD = """# Behaviours

What a group coordinator must do, statement by statement, and the tests that check it.

- **K** is from the pages of KIP-848, **G** what Apache Kafka 4.4.0 does, **S** a scenario.
- **H** are the rules of the classic protocol, **M2** those of the change between both; **W** and
  **P** are the designs that it comes from: where Kafka does otherwise today, its rule stands.
- Where the pages and 4.4.0 differ, 4.4.0 counts; but targets may be computed outside (K-38…K-50).
- A test names what it checks: `@pytest.mark.behaviour("G-31")`. Besides, the traces of Kafka itself
  (`tests/trace`), everything in any order (`tests/core/test_state_machine.py`) and the simulator
  (`tests/sim`) check many of them at once.

This page is made of the markers by `python docs/behaviours.py`; its statements are in
`behaviours.toml` and `behaviours_classic.toml`.
"""
FILES = ("behaviours.toml", "behaviours_classic.toml")


def statements() -> dict:
    """Return sections of statements, and why some have no test."""
    trees = [tomllib.loads((HERE / "design" / name).read_text(encoding="utf-8")) for name in FILES]
    return {
        "section": [section for tree in trees for section in tree["section"]],
        "not": {name: why for tree in trees for name, why in tree["not"].items()},
    }


@cache
def tests_by_id() -> dict[str, list[str]]:
    """Return the tests, as room/file::function, by the statements that their markers name."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                for name in (name for mark in node.decorator_list for name in named_by(mark)):
                    found.setdefault(name, []).append(f"{file.relative_to(TESTS)}::{node.name}")
    return found


def named_by(decorator: ast.expr) -> list[str]:
    """Return the statements that a decorator names."""
    if (
        not isinstance(decorator, ast.Call)
        or ast.unparse(decorator.func) != "pytest.mark.behaviour"
    ):
        return []
    return [ast.literal_eval(argument) for argument in decorator.args]


def render() -> str:
    """Return the page."""
    tree, tests = statements(), tests_by_id()
    lines = [HEAD]
    for section in tree["section"]:
        lines += [f"## {section['title']}", "", "| | says | checked by |", "|---|---|---|"]
        for name, says in section["says"].items():
            where = "<br>".join(f"`{test}`" for test in tests.get(name, []))
            lines.append(f"| {name} | {says} | {where or '*' + tree['not'].get(name, '') + '*'} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    (HERE / "design/behaviours.md").write_text(render(), encoding="utf-8")
    print("docs/design/behaviours.md")
