"""The result of each fault, on the terminal and in docs/design/faults.md."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/design/faults.md"
BEGIN, END = "<!-- outcomes -->\n", "<!-- end -->"
HEAD = "| fault | times | seed | result | seconds | when, where |\n|---|---|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a scenario in which everything held; what does not hold is raised.

    Attributes
    ----------
    times
        How often the fault was made.
    seen
        What was seen, in words.
    """

    times: int
    seen: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; `fault` names it."""

    fault: str
    outcome: Outcome
    seed: int
    seconds: float
    where: str

    def __str__(self) -> str:
        cells = (
            self.fault,
            self.outcome.times,
            self.seed,
            self.outcome.seen,
            f"{self.seconds:.0f}",
            self.where,
        )
        return f"| {' | '.join(map(str, cells))} |\n"


def with_row(text: str, row: Row, order: list[str]) -> str:
    """Return the page with this row in the place of an older one of the same fault."""
    head, rest = text.split(BEGIN)
    table, _, tail = rest.partition(END)
    lines = {line.split("|")[1].strip(): f"{line}\n" for line in table.splitlines()[2:]}
    lines[row.fault] = str(row)
    kept = "".join(lines[fault] for fault in order if fault in lines)
    return f"{head}{BEGIN}{HEAD}{kept}{END}{tail}"


def write(row: Row, order: list[str]) -> None:
    """Put a row into docs/design/faults.md."""
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_row(text, row, order), encoding="utf-8")
