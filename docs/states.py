"""Draw the states of groups and members into docs/design/coordinator.md, from the code.

    python docs/states.py

A test draws them again and compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

from coordinator.core.reconcile import ALLOWED_MOVES
from coordinator.core.state import GROUP_MOVES

PAGE = Path(__file__).resolve().parent / "design/coordinator.md"


def drawn(moves: Mapping[Enum, frozenset[Enum]]) -> str:
    """Return a mermaid diagram of the moves between different states."""
    arrows = [
        f"    {here.name} --> {there.name}"
        for here, to in moves.items()
        for there in moves
        if there in to and there is not here
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"])


def page(text: str) -> str:
    """Return the page with both diagrams drawn anew."""
    for place, moves in (("groups", GROUP_MOVES), ("members", ALLOWED_MOVES)):
        begin, end = f"<!-- {place} -->\n", "\n<!-- end -->"
        head, rest = text.split(begin)
        text = head + begin + drawn(moves) + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("docs/design/coordinator.md")
