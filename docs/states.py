"""Draw the states of groups and members into the pages of docs/design, from the code.

    python docs/states.py

A test draws them again and compares.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import Path

from coordinator.core.consumer.reconcile import ALLOWED_MOVES
from coordinator.core.state.groups import GROUP_MOVES
from coordinator.member.states import MOVES

DESIGN = Path(__file__).resolve().parent / "design"


def arrows_between(moves: Mapping[Enum, frozenset[Enum]]) -> list[str]:
    """Return an arrow for each move between different states."""
    return [
        f"    {here.name} --> {there.name}"
        for here, to in moves.items()
        for there in moves
        if there in to and there is not here
    ]


def labelled_arrows(moves: Mapping[Enum, Mapping[Enum, Enum]]) -> list[str]:
    """Return an arrow for each pair of states, with all that leads from one to the other."""
    causes: dict[tuple[str, str], list[str]] = {}
    for here, to in moves.items():
        for cause, there in to.items():
            causes.setdefault((here.name, there.name), []).append(str(cause.value))
    return [f"    {a} --> {b}: {' / '.join(why)}" for (a, b), why in causes.items()]


def drawn(arrows: Iterable[str]) -> str:
    """Return arrows as a mermaid diagram."""
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"])


PAGES = {
    "coordinator.md": {
        "groups": drawn(arrows_between(GROUP_MOVES)),
        "members": drawn(arrows_between(ALLOWED_MOVES)),
    },
    "member.md": {"client states": drawn(labelled_arrows(MOVES))},
}


def page(name: str) -> str:
    """Return a page of docs/design with its diagrams redrawn."""
    text = (DESIGN / name).read_text(encoding="utf-8")
    for place, diagram in PAGES[name].items():
        begin, end = f"<!-- {place} -->\n", "<!-- end -->"
        head, rest = text.split(begin)
        text = head + begin + diagram + "\n" + end + rest.partition(end)[2]
    return text


if __name__ == "__main__":
    for name in PAGES:
        (DESIGN / name).write_text(page(name), encoding="utf-8")
        print(f"docs/design/{name}")
