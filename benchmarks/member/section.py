"""Very many members in one process: what they cost while nothing changes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section

TITLE = "Members: very many in one process"
TEXT = """\
One group with a partition for each member, at Kafka's default settings: a heartbeat every 5 s.
1,000 `Member`s are in a process of their own and reach the coordinator over the wire, each on a
connection of its own; 10,000 `AsyncMember`s are in the process of their coordinator. *Joined* is
elapsed time until each owns its partition. CPU is that of the process in percent of one core, once
nothing changes any longer; memory is what is resident then, libraries included.
"""
ROOT = Path(__file__).resolve().parent.parent.parent
MIB_MAX, PERCENT_MAX = 200.0, 10.0


def run(bench: Bench) -> Section:
    """Start a process a case."""
    figures = []
    for kind, count, goals in (
        ("wire", 1_000, (MIB_MAX, PERCENT_MAX)),
        ("asyncio", 10_000, (None, None)),
    ):
        members = count // 100 if bench.smoke else count
        bench.say(f"member: {members:,} members, {kind}")
        found = measure(kind, members, 2 if bench.smoke else 30)
        name = (
            f"{members:,} {'Members' if kind == 'wire' else 'AsyncMembers, with their coordinator'}"
        )
        figures += [
            Figure.of(f"{name}: joined", [found["joined_ms"]], "ms"),
            Figure.of(f"{name}: memory", [found["mib"]], "MiB", goals[0]),
            Figure.of(f"{name}: CPU", [found["percent"]], "%", goals[1]),
        ]
    return Section(TITLE, TEXT, figures)


def measure(kind: str, members: int, steady_s: float) -> dict[str, float]:
    """Let members join in a process of their own, and measure it."""
    words = [sys.executable, "-m", "benchmarks.member.process", kind, str(members), str(steady_s)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout)
    return found
