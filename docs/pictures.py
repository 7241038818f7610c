"""Draw docs/design/assignors.svg from what uniform really answers to examples/group.json.

    python docs/pictures.py

Three bands over the same partitions: who owned what, what no member keeps (the pool) and who takes
it, who owns what now. A test draws it again and compares.
"""

from __future__ import annotations

import json
from pathlib import Path

from assignors import GroupSpec, get_assignor

ROOT = Path(__file__).resolve().parent.parent
CELL, LEFT, GAP, TOP = 36, 150, 18, 48
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2")
INK, FAINT, MOVED = "#222222", "#e9ecef", "#d62728"

Owners = dict[tuple[str, int], str]


class Picture:
    """Shapes of an SVG, in the order they are drawn."""

    def __init__(self, spec: dict) -> None:
        self.spec = spec
        self.members = sorted(spec["members"])
        self.places = {}  # (topic, partition) → x
        x = LEFT
        for topic in sorted(spec["topics"]):
            for partition in range(spec["topics"][topic]):
                self.places[topic, partition] = x
                x += CELL
            x += GAP
        self.width = x + 80
        self.shapes: list[str] = []

    def colour(self, member: str) -> str:
        """Return a member's colour, the same in all bands."""
        return COLOURS[self.members.index(member)]

    def cell(self, x: int, y: int, fill: str, stroke: str = "white", width: int = 1) -> None:
        """Draw a partition."""
        inset = width / 2
        self.shapes.append(
            f'<rect x="{x + inset}" y="{y + inset}" width="{CELL - width}" height="{CELL - width}" '
            f'fill="{fill}" stroke="{stroke}" stroke-width="{width}"/>'
        )

    def text(self, x: float, y: float, words: str, anchor: str = "start", style: str = "") -> None:
        """Write a few words."""
        self.shapes.append(f'<text x="{x}" y="{y}" text-anchor="{anchor}" {style}>{words}</text>')

    def heading(self, y: int, words: str) -> None:
        """Name a band that begins at y."""
        self.text(12, y - 12, words, style='font-weight="bold"')

    def grid(self, y: int, owners: Owners, changed: set[tuple[str, int]]) -> None:
        """Draw one row per member: what it may own is faint, what it owns has its colour."""
        for row, member in enumerate(self.members):
            at = y + row * CELL
            subscribed = self.spec["members"][member]["subscribed"]
            self.text(LEFT - 12, at + 23, f"{member}: {', '.join(subscribed)}", "end")
            for (topic, partition), x in self.places.items():
                if owners.get((topic, partition)) == member:
                    new = (topic, partition) in changed
                    self.cell(x, at, self.colour(member), *((MOVED, 3) if new else ()))
                    self.text(x + CELL / 2, at + 23, str(partition), "middle", 'fill="white"')
                elif topic in subscribed:
                    self.cell(x, at, FAINT)
            load = sum(owner == member for owner in owners.values())
            self.text(self.width - 72, at + 23, f"load {load}")

    def pool(self, y: int, before: Owners, after: Owners) -> None:
        """Draw what no member keeps, in its former owner's colour, and below it who takes it."""
        self.text(LEFT - 12, y + 23, "pool", "end")
        self.text(LEFT - 12, y + CELL + 23, "taken by", "end")
        for place, x in self.places.items():
            if before.get(place) == after[place]:
                continue
            owner = before.get(place)
            self.cell(x, y, self.colour(owner) if owner else "white", INK)
            self.text(
                x + CELL / 2, y + 23, str(place[1]), "middle", f'fill="{"white" if owner else INK}"'
            )
            self.text(x + CELL / 2, y + CELL + 23, after[place], "middle")

    def svg(self, height: int) -> str:
        """Return all shapes as one file."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {height}" '
            f'font-family="sans-serif" font-size="14" fill="{INK}">'
        )
        return "\n".join(
            [head, '<rect width="100%" height="100%" fill="white"/>', *self.shapes, "</svg>\n"]
        )


def draw() -> str:
    """Return the picture."""
    spec = json.loads((ROOT / "examples/group.json").read_text())
    before = {
        (topic, partition): member
        for member, fields in spec["members"].items()
        for topic, owned in fields.get("owned", {}).items()
        for partition in owned
    }
    ranges = get_assignor("uniform").assign(GroupSpec.from_dict(spec))
    after = {
        (topic, partition): member
        for member, topics in ranges.to_dict().items()
        for topic, owned in topics.items()
        for partition in owned
    }
    changed = {place for place, member in after.items() if before.get(place) != member}
    moved = len(changed & before.keys())
    picture = Picture(spec)
    rows = len(picture.members) * CELL
    y = TOP + 20
    for topic in spec["topics"]:
        picture.text(picture.places[topic, 0], 24, topic, style='font-weight="bold"')
    picture.heading(y, "before")
    picture.grid(y, before, set())
    y += rows + TOP
    level = len(after) / len(picture.members)
    picture.heading(
        y, f"plan: everybody gets {level:g}; {ranges.verdict.moved_minimum} must move, no fewer can"
    )
    picture.pool(y, before, after)
    y += 2 * CELL + TOP
    picture.heading(
        y, f"after: {moved} moved, {len(changed) - moved} without an owner placed (red)"
    )
    picture.grid(y, after, changed)
    return picture.svg(y + rows + 16)


if __name__ == "__main__":
    (ROOT / "docs/design/assignors.svg").write_text(draw())
