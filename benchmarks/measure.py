"""Measuring: CPU time of a piece of work, and the sort that all times are compared with."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from assignors import Assignor, GroupSpec, PartitionRanges

REFERENCE_SORT_MS = 130.0
"""The sort on the machine that the goals are written for."""

SORT_LENGTH = 10_000_000

Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class Figure:
    """Something measured several times.

    Attributes
    ----------
    name
        What it is, in words; unique within its section.
    unit
        "ms" of CPU or elapsed time, "MiB", "ranges" a member, "x" for a ratio, or "%".
    goal
        The most it should be. Goals in ms are for the reference machine and scale with the sort.
    """

    name: str
    unit: str
    median: float
    least: float
    most: float
    runs: int
    goal: float | None = None

    @classmethod
    def of(
        cls, name: str, samples: list[float], unit: str = "ms", goal: float | None = None
    ) -> Figure:
        """Sum up samples; digits beyond the fourth decimal are noise."""
        sums = (statistics.median(samples), min(samples), max(samples))
        return cls(name, unit, *(round(one, 4) for one in sums), len(samples), goal)


@dataclass(frozen=True, slots=True)
class Sort:
    """CPU ms of `np.sort` of 10⁷ float64: as numpy chooses and, where that is AVX-512, without it.

    The unit is the faster: on AMD's Zen 4 numpy's AVX-512 sort is six times slower than its AVX2
    sort (compressed stores to memory are microcode there), and nothing else slows down with it.
    """

    default_ms: float
    plain_ms: float | None

    @property
    def unit_ms(self) -> float:
        """One unit, in ms."""
        return min(self.default_ms, self.plain_ms or self.default_ms)

    @property
    def scale(self) -> float:
        """What a goal in ms is multiplied by on this machine."""
        return self.unit_ms / REFERENCE_SORT_MS


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the benchmarks.

    Attributes
    ----------
    sort
        The unit of this run.
    smoke
        Tiny groups: shows that everything works, measures nothing worth keeping.
    spark_ranges
        Ranges a member of the Spark section.
    say
        Called with what is being measured.
    """

    sort: Sort
    smoke: bool = False
    spark_ranges: tuple[int, ...] = (1, 10, 100)
    say: Callable[[str], None] = field(default=print)


def cpu_ms(
    work: Callable[[], Out], budget_s: float = 1.0, least: int = 3, most: int = 25
) -> tuple[Out, list[float]]:
    """Run work `least` to `most` times, as long as the budget lasts: its result, and ms of CPU."""
    samples: list[float] = []
    while len(samples) < least or (len(samples) < most and sum(samples) < budget_s * 1000):
        out = None  # what the last run made is not part of what this one needs
        start = time.process_time_ns()
        out = work()
        samples.append((time.process_time_ns() - start) / 1e6)
    return out, samples  # type: ignore[return-value] # work ran at least once


def ranges_a_member(count: int) -> str:
    """Say how scattered a previous assignment is."""
    return "1 range a member" if count == 1 else f"{count} ranges a member"


def assign_ms(
    assignor: Assignor, group: GroupSpec, budget_s: float = 1.0, least: int = 3
) -> tuple[PartitionRanges, list[float]]:
    """Assign several times; what left partitions out would not be worth measuring."""
    ranges, samples = cpu_ms(lambda: assignor.assign(group), budget_s, least)
    partitions = int(group.partitions[group.subscribed_topics()].sum())
    assert int(ranges.count.sum(dtype=np.int64)) == partitions, f"not all of {partitions} assigned"
    return ranges, samples


def sort_ms(length: int = SORT_LENGTH) -> float:
    """Return the median CPU ms of sorting `length` random floats."""
    floats = np.random.default_rng(0).random(length)
    _, samples = cpu_ms(lambda: np.sort(floats), least=5, most=5)
    return statistics.median(samples)


def measure_sort(length: int = SORT_LENGTH) -> Sort:
    """Measure the sort in this process, and in one where numpy may not use AVX-512."""
    wide = [
        name
        for name in np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
        if name == "X86_V4" or name.startswith("AVX512")
    ]
    if not wide:
        return Sort(sort_ms(length), None)
    plain = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", f"from benchmarks import measure; print(measure.sort_ms({length}))"],
        env=os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(wide)},
        stdout=subprocess.PIPE,
        check=True,
    )
    return Sort(sort_ms(length), float(plain.stdout))


def cpu_s(process: int) -> float:
    """Return the CPU seconds of another process, all threads, user and system."""
    with open(f"/proc/{process}/stat", encoding="ascii") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(name: str = "VmHWM", process: int | str = "self") -> float:
    """Return a process's memory in MiB: VmRSS now, VmHWM its peak (of this program, not of the
    process that started it, as `getrusage` would say)."""
    with open(f"/proc/{process}/status", encoding="ascii") as lines:
        for line in lines:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/{process}/status has no {name}: memory is measured on Linux only")
