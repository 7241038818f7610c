"""What a target costs on each engine: the constants of `[cost]`, by which `auto` chooses.

Measured on groups of several shapes, and fitted so that the relative error is least. They are
written where they are read: conf/muster.toml, and the defaults in coordinator/config/settings.py;
unless one cannot be, as a member that takes no memory, or they are far from what was measured.
"""

from __future__ import annotations

import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.optimize import nnls

from benchmarks.measure import Bench, Figure, ranges_a_member, resident_mib
from benchmarks.report import Section
from benchmarks.shape import EPOCH, GROUP, Shape
from benchmarks.spark import cpu_s
from benchmarks.store import temporary_store, write_group
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput, Basis, MemberChange, build_input
from coordinator.engines.engine import compute_target
from coordinator.engines.stored_target import read_stored_target
from coordinator.history.former_targets import read_basis
from coordinator.history.log_reader import LogReader
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.state_loader import load_state
from coordinator.table_jobs.assignment_job import AssignmentJob
from coordinator.table_jobs.inputs import find_input
from coordinator.table_jobs.run_job import run_job

TITLE = "What a target costs"
TEXT = """\
CPU ms of one computation after one member in a hundred has left: with NumPy in the coordinator's
process, and as a Spark job that gets the group and writes the table `targets`, including reading
back and checking (warm, `local[2]`; of the JVM, its Python tasks and the driver). *Tables*: what a
process takes at its peak to read a group from Parquet, ten topics a member, and to assign it. The
constants of `[cost]` in conf/muster.toml are fitted to these figures.
"""
LOCAL = (
    Shape(2_000, 100),
    Shape(20_000, 100),
    Shape(100_000, 100),
    Shape(200_000, 100),
    Shape(100_000, 100, ranges=5),
    Shape(50_000, 100, ranges=20),
    Shape(100_000, 100, classes=1_000),
)
SPARK = (
    Shape(2_000, 100),
    Shape(100_000, 100),
    Shape(200_000, 100),
    Shape(100_000, 100, ranges=5),
    Shape(20_000, 100, ranges=50),
    Shape(100_000, 100, classes=1_000),
)
TABLES = (
    Shape(100_000, 100),
    Shape(300_000, 100),
    Shape(1_000_000, 100),
    Shape(300_000, 100, ranges=5),
    Shape(100_000, 100, ranges=20),
)
RUNS = 3
"""The least CPU of so many computations counts."""
MEMORY_MIN_MIB = 8.0
"""Less says nothing of members and ranges."""
ERROR_MAX = 0.5
"""How far a fit may be from what was measured, by that."""
LEAST = {
    "local_ns_member": 100, "local_ns_range": 100, "local_bytes_member": 8, "local_bytes_range": 16,
    "table_bytes_member": 64, "table_bytes_range": 32,
    "spark_ms": 200, "spark_ns_member": 500, "spark_ns_range": 500,
}  # fmt: skip
"""What constants are at least: an id and a place take bytes, and to look at each takes time. Less
is no fit: the shapes or the machine's other work hide it."""
SMOKE = (
    Shape(400, 100),
    Shape(800, 100, ranges=2),
    Shape(1_000, 100, classes=10),
    Shape(2_000, 100),
)
MIB = 1 << 20
ROOT = Path(__file__).resolve().parent.parent
FILES = {
    ROOT / "conf/muster.toml": r"^({name} = )\d+$",
    ROOT / "coordinator/config/settings.py": r"^(    {name}: int = )[\d_]+$",
}


def run(bench: Bench) -> Section:
    """Measure both engines, fit the constants, and write them where they are read."""
    local = SMOKE if bench.smoke else LOCAL
    figures, rows, local_s, mib = [], [], [], []
    for shape in local:
        bench.say(f"costs: local, {_name(shape)}")
        took, memory = _local(shape)
        rows.append(_row(shape))
        local_s.append(took)
        mib.append(memory)
        figures.append(Figure.of(f"local, {_name(shape)}", [took * 1000]))
    fits = [_fitted("local", np.array(rows), np.array(local_s))]
    fits.append(_fitted_memory("local", np.array(rows), np.array(mib)))
    if not bench.smoke:
        read = []
        for shape in TABLES:
            bench.say(f"costs: tables, {_name(shape)}")
            read.append(_tables(shape))
            figures.append(Figure.of(f"tables, {_name(shape)}, memory", [read[-1]], "MiB"))
        fits.append(_fitted_memory("table", np.array([_row(it) for it in TABLES]), np.array(read)))
        spark_s = []
        for shape in SPARK:
            bench.say(f"costs: Spark, {_name(shape)}")
            spark_s.append(_spark(shape))
            figures.append(Figure.of(f"Spark, {_name(shape)}", [spark_s[-1] * 1000]))
        fits.append(_fitted("spark", np.array([_row(it) for it in SPARK]), np.array(spark_s)))
    found = {name: value for fit in fits for name, value in fit.constants.items()}
    doubts = [doubt for fit in fits for doubt in fit.doubts()]
    if not bench.smoke and not doubts:
        for path, form in FILES.items():
            path.write_text(_replaced(path.read_text(), form, found))
    words = ", ".join(f"{name} {value:,}" for name, value in found.items()) + "."
    if doubts:
        words += f"\n\nNot taken over: {'; '.join(doubts)}."
    return Section(TITLE, f"{TEXT}\nFitted: {words}\n", figures)


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants, and how far what they say is from what was measured, at most, by that."""

    constants: dict[str, int]
    error: float

    def doubts(self) -> list[str]:
        """Return why this is no fit."""
        found = [
            f"{name} is {value}, less than {LEAST[name]}"
            for name, value in self.constants.items()
            if value < LEAST.get(name, 0)
        ]
        if self.error > ERROR_MAX:
            what = next(iter(self.constants)).partition("_")[0]
            found.append(f"{what}'s figures are up to {self.error:.0%} from their fit")
        return found


def _row(shape: Shape) -> tuple[int, int, int, int]:
    return 1, shape.members, shape.classes, shape.members * shape.ranges


def _name(shape: Shape) -> str:
    classes = f", {shape.classes:,} classes" if shape.classes > 1 else ""
    return f"{shape.members:,} members, {ranges_a_member(shape.ranges)}{classes}"


def _fitted(engine: str, rows: np.ndarray, seconds: np.ndarray) -> Fit:
    """Return what seconds cost: for any, a member, a class, a range; none below nothing."""
    (any_s, member_s, class_s, range_s), error = _fit(rows, seconds)
    constants = {
        f"{engine}_ms": round(any_s * 1e3),
        f"{engine}_ns_member": round(member_s * 1e9),
        f"{engine}_us_class": round(class_s * 1e6),
        f"{engine}_ns_range": round(range_s * 1e9),
    }
    return Fit(constants, error)


def _fitted_memory(what: str, rows: np.ndarray, mib: np.ndarray) -> Fit:
    some = mib >= MEMORY_MIN_MIB
    (member, piece), error = _fit(rows[some][:, [1, 3]], mib[some]) if some.any() else ((0, 0), 0.0)
    constants = {
        f"{what}_bytes_member": round(member * MIB), f"{what}_bytes_range": round(piece * MIB)
    }  # fmt: skip
    return Fit(constants, error)


def _fit(rows: np.ndarray, measured: np.ndarray) -> tuple[np.ndarray, float]:
    """Return factors, none below nothing, and the greatest relative error."""
    by_measured = rows / measured[:, None]
    found = nnls(by_measured, np.ones(len(measured)))[0]
    return found, float(np.abs(by_measured @ found - 1).max())


def _replaced(text: str, form: str, found: dict[str, int]) -> str:
    for name, value in found.items():
        pattern = form.format(name=name)
        shown = f"{value:_}" if "_]" in form else str(value)
        text, count = re.subn(pattern, rf"\g<1>{shown}", text, flags=re.MULTILINE)
        assert count == 1, f"{name} is there {count} times"
    return text


# Engines -----------------------------------------------------------------------------------------


def _local(shape: Shape) -> tuple[float, float]:
    """Return the CPU seconds and the MiB that a computation takes in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_compute, shape).result()


def _compute(shape: Shape) -> tuple[float, float]:
    """Do so in this process: memory is of the first one, for the next would use it again."""
    with temporary_store() as store:
        write_group(store, shape, snapshot=True)
        log = DeltaLog.open(store, Config().log)
        log.claim("benchmark", "", wall_ms())
        state, _, _ = load_state(log)
        log.close()
    gone = frozenset(shape.ids()[::100])
    given = build_input(state, state.groups[GROUP], MemberChange(removed=gone))
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = resident_mib("VmRSS")
    compute_target(_basis(given, shape))
    memory, taken = resident_mib() - before, []
    for _ in range(RUNS):
        began = time.process_time()
        compute_target(_basis(given, shape))
        taken.append(time.process_time() - began)
    return min(taken), memory


def _tables(shape: Shape) -> float:
    """Return the MiB that a process takes to read a group from tables and to assign it."""
    with (
        tempfile.TemporaryDirectory(prefix="muster-bench-") as folder,
        ProcessPoolExecutor(1, get_context("spawn")) as process,
    ):
        return process.submit(_assign_tables, shape, Path(folder)).result()


def _assign_tables(shape: Shape, folder: Path) -> float:
    """Do so in this process: members subscribe to ten topics, one in a hundred is new."""
    small = replace(shape, topic_count=10)
    topics, ids = small.topics(), pa.array(shape.ids())
    names, size = pa.array(topics), shape.members * shape.each // len(topics)
    lists = pa.ListArray.from_arrays(
        np.arange(shape.members + 1, dtype=np.int32) * len(topics),
        names.take(pa.array(np.tile(np.arange(len(topics)), shape.members))),
    )
    piece = shape.each // shape.ranges
    start = np.arange(shape.members * shape.ranges, dtype=np.int64) * piece
    owner = (start // piece * 7_919 + shape.members // 100) % shape.members
    tables = {
        "members": {"member_id": ids, "subscribed": lists},
        "topics": {"topic": names, "partitions": pa.array(topics.values())},
        "previous": {
            "member_id": ids.take(pa.array(owner)), "topic": names.take(pa.array(start // size)),
            "first_partition": start % size, "partition_count": np.full(len(start), piece),
        },
    }  # fmt: skip
    given = {}
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
        given[name] = find_input(str(folder / f"{name}.parquet"), f"--{name}", "local")
    del tables, ids, lists, start, owner
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
    before = resident_mib("VmRSS")
    output = str(folder / "out.parquet")
    job = AssignmentJob(
        **given, owned=None, output=output, options=AssignorOptions("sticky"), engine="local"
    )
    run_job(job, Config())
    return resident_mib() - before


def _basis(given: AssignorInput, shape: Shape) -> Basis:
    options = AssignorOptions("uniform")
    return Basis(
        GROUP,
        EPOCH + 1,
        "uniform",
        {},
        options,
        given,
        computation_id="benchmark",
        classes=shape.classes,
    )


def _spark(shape: Shape) -> float:
    """Return the CPU s of a job, from the store to a target that was read back and checked."""
    from spark_jobs.jobs.target_job import compute_on_spark as delegated  # noqa: PLC0415 - imports pyspark
    from spark_jobs.session.session import spark_session  # noqa: PLC0415 - the same

    spark = spark_session("muster-bench", "local[2]", {"spark.driver.memory": "4g"})
    with temporary_store() as store:
        write_group(store, shape, snapshot=True)
        basis = read_basis(LogReader(store), Config(), GROUP)
        taken = []
        for run_id in ("warm", "measured", "again"):
            began = cpu_s(spark)
            asked = replace(_basis(basis.input, shape), computation_id=run_id, store=str(store))
            found = delegated(spark, asked, Config())
            read_stored_target(str(store), found, basis.input)
            taken.append(cpu_s(spark) - began)
        return min(taken[1:])
