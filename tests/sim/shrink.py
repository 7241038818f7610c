"""Leave faults out of a failing simulation for as long as it still fails."""

from __future__ import annotations

from .chance import Key
from .run import Outcome, simulate

RUNS_MAX = 400


def shrink(failed: Outcome, runs_max: int = RUNS_MAX) -> Outcome:
    """Return a simulation of the same seed that fails with as few faults as were found.

    Whole halves are left out first, then ever smaller parts. What fails in the end may be another
    violation than the first one: each of them is worth a look.
    """
    best = failed
    dropped: frozenset[Key] = frozenset()
    part = max(len(best.faults) // 2, 1)
    runs = 0
    while runs < runs_max:
        at, smaller = 0, False
        while at < len(best.faults) and runs < runs_max:
            trial = dropped | frozenset(best.faults[at : at + part])
            runs += 1
            outcome = simulate(failed.seed, trial, failed.kind)
            if outcome.violation is not None:
                best, dropped, smaller = outcome, trial, True
            else:
                at += part
        if part == 1 and not smaller:
            break
        part = max(part // 2, 1)
    return best
