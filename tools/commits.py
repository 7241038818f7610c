"""Check the subjects of commits: imperative, at most 72 characters, one line alone.

    python tools/commits.py [RANGE]

Part of `make check`. Commits up to the last one of this file were written by another rule. In a
clone without its history, and outside of one, what is not there is not checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = "tools/commits.py"
SUBJECT_MAX = 72
WORD = re.compile(r"[A-Z][a-z]+(-[a-z]+)?")
NOT_IMPERATIVE = re.compile(r"(ed|ing|[^s]s)$")
"""Ends of words in another form: added, adding, adds; and of plurals."""
VERBS = {"Embed", "Exceed", "Feed", "Need", "Proceed", "Seed", "Shed", "Speed", "Bring", "String"}
"""Imperatives that end alike."""
OTHERS = {"A", "An", "The", "One", "Two", "More", "What", "When", "Only", "No", "Not", "Now"}


def fault(subject: str, second: str = "") -> str | None:
    """Return what is wrong with the first two lines of a message; None when nothing is.

    >>> fault("Group current-member runs by group")
    >>> fault("Grouped runs")
    "begins with 'Grouped': say what it does, in the imperative"
    """
    first = subject.partition(" ")[0]
    if len(subject) > SUBJECT_MAX:
        return f"has {len(subject)} characters: {SUBJECT_MAX} at most"
    ends = NOT_IMPERATIVE.search(first) and first not in VERBS
    if first in OTHERS or ends or not WORD.fullmatch(first):
        return f"begins with {first!r}: say what it does, in the imperative"
    if subject.endswith("."):
        return "ends with a full stop"
    if second:
        return "is not followed by an empty line"
    return None


def messages(commits: str, folder: Path = ROOT) -> list[tuple[str, list[str]]]:
    """Return (hash, lines of the message) of commits that are no merges."""
    command = ["git", "log", "--no-merges", "--format=%h%n%B%x00", commits, "--"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    found = [message.strip("\n").split("\n") for message in done.stdout.split("\0")]
    return [(lines[0], lines[1:]) for lines in found if len(lines) > 1]


def find_rule(folder: Path) -> str:
    """Return the last commit of this file; nothing outside of a clone."""
    command = ["git", "log", "-1", "--format=%H", "--", FILE]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    ).stdout.strip()


def main(commits: str | None = None, folder: Path = ROOT) -> None:
    """Print the faults of commits, by default of those after the rule; exit 1 if there are any."""
    commits = commits or f"{find_rule(folder)}..HEAD"
    faults = [
        f"{commit} {lines[0]!r} {wrong}"
        for commit, lines in messages(commits, folder)
        if (wrong := fault(lines[0], "".join(lines[1:2])))
    ]
    print(*faults, sep="\n", end="\n" if faults else "")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main(*sys.argv[1:2])
