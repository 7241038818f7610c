"""Compare Muster's assignments with those of Kafka 4.4.0's assignors, for 220 groups."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from assignors import GroupSpec, PartitionRanges, SpecError, quality
from assignors.parse import parse_json_objects
from assignors.registry import BUILT_IN, knows_loads
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions

VERDICTS = ("the same", "fewer moves", "fairer", "worse")
"""How Muster's assignment compares with Kafka's. A more even load may need more moves."""
COMPARED = tuple(name for name in BUILT_IN if not knows_loads(name))
"""The assignors that Kafka's are compared with: its groups have no loads."""
_SETTINGS = Config()


def read_cases(path: Path) -> list[dict[str, Any]]:
    """Return the groups of a file, each with Kafka's answers.

    Raises
    ------
    SpecError
        The file cannot be read.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise SpecError(
            f"--cases {str(path)!r} cannot be read ({error.strerror}): name a file of groups with "
            "Kafka's answers, or omit --cases"
        ) from None
    return [case for _, case in parse_json_objects(text)]


def compare_with_kafka(assignor: str, cases: list[dict[str, Any]]) -> Counter[str]:
    """Assign each group in this process, and count the results of the comparison."""
    return Counter(_judge_case(assignor, case) for case in cases)


def _assign_case(name: str, case: dict[str, Any]) -> tuple[PartitionRanges, quality.Report]:
    group = GroupSpec.from_dict(case)
    ranges = AssignorOptions(name).make_assignor().assign(group)
    return ranges, quality.report(group, ranges)


def _judge_case(name: str, case: dict[str, Any]) -> str:
    """Assign one group, and compare it with Kafka's answer."""
    ranges, report = _assign_case(name, case)
    if not report.valid:
        return "worse"
    return _verdict(name, case["kafka"], ranges.to_dict(), report.members.to_pylist())


def _verdict(
    assignor: str,
    kafka: dict[str, Any],
    assignment: dict[str, Any],
    members: list[dict[str, Any]],
) -> str:
    """Compare one assignment with Kafka's; `members` are rows of a report."""
    if assignor == "range":
        return "the same" if assignment == kafka["range"] else "worse"
    loads, moved = sorted(row["load"] for row in members), sum(row["lost"] for row in members)
    theirs = kafka["uniform"]
    if loads != theirs["loads"]:  # lists compare from the smallest load up
        return "fairer" if loads > theirs["loads"] else "worse"
    if moved != theirs["moved"]:
        return "fewer moves" if moved < theirs["moved"] else "worse"
    return "the same"
