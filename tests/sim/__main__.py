"""python -m tests.sim: run many seeds, or play one again (`make sim`)."""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from .classic.mixed import MixedWorld
from .classic.world import ClassicWorld
from .objects.store import ObjectWorld
from .run import Outcome, simulate
from .shards.world import ShardWorld
from .shrink import shrink
from .world import World

KINDS: dict[str, type[World]] = {
    "mixed": MixedWorld, "classic": ClassicWorld, "objects": ObjectWorld, "shards": ShardWorld
}  # fmt: skip
PROGRESS_S = 2.0


def main() -> int:
    """Run the seeds asked for; 1 when one of them fails."""
    options = _options()
    commit = _commit()
    kind = next((kind for name, kind in KINDS.items() if getattr(options, name)), World)
    if options.seed is not None:
        return _again(options.seed, kind, commit)
    began = shown = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    done, excused, failed = 0, 0, 0
    for outcome in _outcomes(seeds, kind, options.processes):
        done += 1
        excused += outcome.excused
        if outcome.violation is not None:
            failed += 1
            _tell_failure(outcome, commit)
        if sys.stderr.isatty() and time.monotonic() - shown > PROGRESS_S:
            shown = time.monotonic()
            sys.stderr.write(f"{done} of {len(seeds)} seeds, {failed} failed\r")
    _say(
        f"{done} seeds from {options.first}, {failed} failed, in {time.monotonic() - began:.0f} s "
        f"({options.processes} processes, commit {commit}); {excused} times the protocol itself "
        "let two members believe that they own a partition"
    )
    return int(failed > 0)


def _again(seed: int, kind: type[World], commit: str) -> int:
    """Play one seed, and tell everything."""
    outcome = simulate(seed, kind=kind)
    _say("\n".join(outcome.events))
    if outcome.violation is None:
        _say(f"seed {seed} at commit {commit}: everything held")
        return 0
    _tell_failure(outcome, commit)
    return 1


def _tell_failure(outcome: Outcome, commit: str) -> None:
    """Tell what was broken, and the smallest story in which something is."""
    _say(f"seed {outcome.seed} at commit {commit} failed: {outcome.violation}")
    small = shrink(outcome)
    _say(f"with {len(small.faults)} of its {len(outcome.faults)} faults: {small.violation}")
    if small.untold:
        _say(f"no trace can tell: {', '.join(sorted(small.untold))}; what happened:")
        _say("\n".join(small.events))
    else:
        _say("as operations for `muster trace`:")
        _say("\n".join(small.trace))
    _say("the last events, as commands for tests/traces:")
    _say(small.commands)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _options() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    words.add_argument("--seeds", type=_whole, default=10_000, help="how many [10000]")
    words.add_argument("--from", type=_whole, default=0, dest="first", help="the first seed [0]")
    words.add_argument("--seed", type=_whole, help="only this one, and tell what happened")
    words.add_argument("--classic", action="store_true", help="classic groups")
    words.add_argument("--mixed", action="store_true", help="groups that change their protocol")
    words.add_argument("--objects", action="store_true", help="a store in an object store")
    words.add_argument("--shards", action="store_true", help="nodes that share a store of shards")
    words.add_argument("--processes", type=_whole, default=2, help="how many at a time [2]")
    return words.parse_args()


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 0 or more")
    return int(text)


def _outcomes(seeds: range, kind: type[World], processes: int) -> Iterator[Outcome]:
    one = partial(simulate, kind=kind)
    if processes <= 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(one, seeds, chunksize=8)


def _commit() -> str:
    """Return what is simulated: the commit, and whether files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
