"""Where the time of one join goes in a large group: `python -m benchmarks.one_join`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.coordinator import CHANGED, CHANGED_EACH, PATIENT, join_one
from benchmarks.shape import in_thousands
from benchmarks.store import write_group
from coordinator import Coordinator
from coordinator.core.targets import compute_here
from coordinator.engines.engine import LocalEngine
from coordinator.engines.group_columns import GroupColumns
from coordinator.engines.kept_plan import KeptPlan
from coordinator.runtime.event_decider import EventDecider
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.log_writer import LogWriter
from coordinator.storage import data_files, delta_log
from coordinator.storage.tables import fenced_table
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.filesystem import Filesystem

LATER: Sequence[tuple[str, Sequence[tuple[Any, str]]]] = (
    ("the batch of the join", [(EventProcessor, "run")]),
    ("decide: steps, records replayed", [(EventDecider, "decide")]),
    ("of that the target", [(LocalEngine, "compute_now")]),
    ("of that compare the group with the last plan", [(KeptPlan, "list_changes")]),
    ("of that check what the plan changed, and list it", [(KeptPlan, "continue_with")]),
    ("write: all of the commit", [(LogWriter, "append")]),
    ("of that encode the rows", [(delta_log, "encode_records")]),
    ("of that the data file", [(Filesystem, "write_rows")]),
    ("of that the entry", [(FencedTable, "_land")]),
    ("of that wait for the disk", [(data_files, "sync_named"), (fenced_table, "sync_named")]),
)
FIRST: Sequence[tuple[str, Sequence[tuple[Any, str]]]] = (
    ("the group and its targets as columns", [(GroupColumns, "of")]),
    ("the assignor", [(compute_here, "run_assignor")]),
    ("the check of what it returned", [(compute_here, "check_ranges")]),
    ("the comparison with the target that was loaded", [(compute_here, "diff_targets")]),
    ("the plan that is kept for the next", [(KeptPlan, "of")]),
)
"""What is timed, in the order of the table: functions by the object that calls look them up in."""


@dataclass(slots=True)
class Part:
    """The CPU ms of the thread and the elapsed ms of a part, a join each."""

    cpu: list[float] = field(default_factory=list)
    elapsed: list[float] = field(default_factory=list)


class Stopwatch:
    """Times calls of functions, in all threads."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self._spent: dict[str, tuple[float, float]] = {}

    @contextmanager
    def over(self, parts: Sequence[tuple[str, Sequence[tuple[Any, str]]]]) -> Iterator[None]:
        """Time these parts meanwhile."""
        with ExitStack() as opened:
            for name, places in parts:
                self.parts[name] = Part()
                for owner, attribute in places:
                    there = vars(owner)[attribute]
                    opened.callback(setattr, owner, attribute, there)
                    is_of_class = isinstance(there, classmethod)
                    timed = self._timed(name, getattr(owner, attribute))
                    setattr(owner, attribute, staticmethod(timed) if is_of_class else timed)
            yield

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            began, begun = time.perf_counter(), time.thread_time()
            try:
                return function(*given, **more)
            finally:
                cpu, elapsed = self._spent.get(name, (0.0, 0.0))
                cpu += time.thread_time() - begun
                self._spent[name] = cpu, elapsed + time.perf_counter() - began

        return call

    def note(self, work: Callable[[], None]) -> float:
        """Do one piece of work, note what each part took of it, and return its elapsed ms."""
        self._spent.clear()
        began = time.perf_counter()
        work()
        took = (time.perf_counter() - began) * 1000
        for name, (cpu, elapsed) in self._spent.items():
            self.parts[name].cpu.append(cpu * 1000)
            self.parts[name].elapsed.append(elapsed * 1000)
        return took

    def rows(self) -> Iterator[str]:
        """Yield a row of a table for each part that was called."""
        for name, part in self.parts.items():
            if part.cpu:
                cpu, elapsed = map(statistics.median, (part.cpu, part.elapsed))
                yield f"| {name} | {cpu:.2f} | {elapsed:.2f} |"


def profile(store: Path, members: int, joins: int) -> Iterator[str]:
    """Yield tables of a join right after the load, and of the median of some after it."""
    shape = in_thousands(members, CHANGED_EACH)
    write_group(store, shape, CHANGED, snapshot=True)
    first, later = Stopwatch(), Stopwatch()
    with Coordinator.open(store, config=PATIENT, topics=shape.topics()) as coordinator:
        join = partial(join_one, coordinator, shape)
        with first.over(FIRST):
            took = first.note(partial(join, "first"))
        yield f"| the first of {members:,} after a load | CPU, ms | elapsed, ms |\n|---|---|---|"
        yield from first.rows()
        yield f"| until its target is durable | | {took:.0f} |\n"
        join("second")
        with later.over(LATER):
            each = [later.note(partial(join, f"new{number}")) for number in range(joins)]
        yield f"| one joins {members:,}, median of {joins} | CPU, ms | elapsed, ms |\n|---|---|---|"
        yield from later.rows()
        yield f"| until its target is durable | | {statistics.median(each):.1f} |"
