"""What is wrong with the groups of a store: findings, each with its rows."""

from coordinator.history.findings.doctor import Finding, examine, find_end, join_findings, to_json
from coordinator.history.findings.limits import LEVELS, SCHEMAS, TITLES, Level, Limits

__all__ = [
    "LEVELS",
    "SCHEMAS",
    "TITLES",
    "Finding",
    "Level",
    "Limits",
    "examine",
    "find_end",
    "join_findings",
    "to_json",
]
