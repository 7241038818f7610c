"""python -m tests.faults: make every fault, again and again, and write docs/design/faults.md."""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from . import (
    crash,
    damage,
    disk,
    drivers,
    drivers_here,
    object_store,
    plans,
    registers,
    session,
    standby,
    zombie,
)
from .report import Outcome, Row, write
from .shards import nodes


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault, what makes it in a store with a seed so many times, and how often by default."""

    fault: str
    make: Callable[[Path, int, int], Outcome]
    times: int


SCENARIOS = {
    "kill": Scenario("kill -9 under load", crash.killed, 100),
    "plans": Scenario("kill -9 while a plan is approved", plans.killed, 20),
    "zombie": Scenario("SIGSTOP, takeover, SIGCONT", zombie.woken, 20),
    "kill-s3": Scenario("kill -9 under load on S3", object_store.killed, 100),
    "zombie-s3": Scenario("SIGSTOP, takeover, SIGCONT on S3", object_store.woken, 20),
    "clocks-s3": Scenario("kill -9 on S3, clocks of two regions", object_store.skewed, 20),
    "weather-s3": Scenario("requests to S3 fail in every way", object_store.braved, 100),
    "linear": Scenario("histories of offsets and epochs", registers.checked, 20),
    "linear-s3": Scenario("histories of offsets and epochs on S3", object_store.checked, 10),
    "nodes": Scenario("nodes of a store of shards fail in turns", nodes.broken_up, 18),
    "nodes-s3": Scenario(
        "nodes of a store of shards on S3 fail in turns", object_store.broken_up, 8
    ),
    "late": Scenario("takeover by force from a live one", zombie.confirms, 20),
    "standby": Scenario("two stand-bys", standby.two_wait, 10),
    "full": Scenario("full disk", disk.full, 20),
    "read-only": Scenario("read-only disk", disk.read_only, 20),
    "damage": Scenario("damaged files", damage.damaged, 300),
    "driver": Scenario("driver killed during a run", drivers.killed, 20),
    "between": Scenario("driver killed between the two commits", drivers.between, 3),
    "driver-here": Scenario("driver killed that assigns by itself", drivers_here.killed, 20),
    "stopped-here": Scenario("driver suspended that assigns by itself", drivers_here.suspended, 6),
    "session": Scenario("session stopped during a run", drivers.session_stopped, 2),
    "fails": Scenario("Spark job fails", session.failing, 3),
    "hangs": Scenario("Spark job hangs", session.hanging, 2),
    "cancelled": Scenario("Spark job cancelled", session.cancelled, 3),
    "two-jobs": Scenario("two jobs for one group", session.two_jobs, 2),
    "late-job": Scenario("late job of a fenced coordinator", session.late, 2),
    "lost": Scenario("targets lost behind their record", session.lost, 4),
    "lost-before": Scenario("targets lost before a load", session.lost_before_a_load, 4),
    "full-targets": Scenario("full disk for targets", session.full, 3),
    "full-here": Scenario("full disk for a driver's targets", session.full_here, 3),
    "read-only-targets": Scenario("read-only disk for targets", session.read_only, 3),
}


def main() -> int:
    """Make the faults asked for; 1 when something did not hold."""
    options = _options()
    where = f"{datetime.now(UTC):%Y-%m-%d}, {_machine()}"
    broken = []
    names = options.only or list(SCENARIOS)
    if any(name.endswith("-s3") for name in names):
        object_store.serve_s3()  # before any process is started that is to find it
    for name in names:
        scenario = SCENARIOS[name]
        times = options.times or scenario.times
        _say(f"{name}: {scenario.fault}, {times} times, --seed {options.seed}")
        began = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="muster-faults-") as folder:
                outcome = scenario.make(Path(folder) / "store", options.seed, times)
        except Exception:  # noqa: BLE001 - the next faults are made all the same
            _say(traceback.format_exc())
            broken.append(name)
            continue
        seconds = time.monotonic() - began
        _say(f"  {outcome.seen}; {seconds:.0f} s")
        if options.write:
            row = Row(scenario.fault, outcome, options.seed, seconds, where)
            write(row, [scenario.fault for scenario in SCENARIOS.values()])
    if broken:
        _say(f"did not hold: {', '.join(broken)}")
    return int(bool(broken))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def _options() -> argparse.Namespace:
    words = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    words.add_argument("--seed", type=_whole, default=random.SystemRandom().randrange(10_000))
    words.add_argument("--times", type=_whole, help="instead of each one's own number")
    words.add_argument("--only", nargs="+", choices=SCENARIOS, metavar="NAME", help=_names())
    words.add_argument("--no-write", dest="write", action="store_false", help="leave docs alone")
    return words.parse_args()


def _names() -> str:
    return f"some of {', '.join(SCENARIOS)}"


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: give a whole number, 0 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
