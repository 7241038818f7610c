"""`make sim`: run many seeds, two at a time; a failing one is printed with what happened in it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor

from .run import Outcome, simulate

PROCESSES = 2


def main() -> int:
    """Run the seeds asked for; 1 when one of them fails."""
    words = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    words.add_argument("--seeds", type=int, default=10_000, help="how many [10000]")
    words.add_argument("--from", type=int, default=0, dest="first", help="the first seed [0]")
    words.add_argument("--seed", type=int, help="only this one, and tell what happened")
    asked = words.parse_args()
    if asked.seed is not None:
        outcome = simulate(asked.seed)
        tell(outcome)
        return int(outcome.violation is not None)
    seeds = range(asked.first, asked.first + asked.seeds)
    failed = 0
    with ProcessPoolExecutor(PROCESSES) as pool:
        for done, outcome in enumerate(pool.map(simulate, seeds, chunksize=8), start=1):
            if outcome.violation is not None:
                failed += 1
                tell(outcome)
            if sys.stderr.isatty():
                _say(f"\r{done} of {len(seeds)} seeds", end="", file=sys.stderr)
    _say(f"{len(seeds)} seeds from {asked.first}, {failed} failed")
    return int(failed > 0)


def tell(outcome: Outcome) -> None:
    """Print a seed's events, its trace, and what was broken."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    for event in outcome.events:
        _say(event)
    _say("as operations for `muster trace`:")
    for line in outcome.trace:
        _say(line)
    verdict = outcome.violation or "everything held"
    _say(f"seed {outcome.seed} at commit {commit.stdout.strip()}: {verdict}")


if __name__ == "__main__":
    sys.exit(main())
