"""What happens to a Spark job, and to the table it writes, while the driver lives.

One Spark session serves all of it.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest

from coordinator import Coordinator
from coordinator.config import Config, EngineConfig
from coordinator.storage.target_table import targets_path
from tests.support.members import Members, wait_for
from tests.support.table_engine import installed_runs, runs_of, target_basis

from . import drivers
from .crowd import Broken
from .disk import FULL, PAGE, empty, fill, remount, small_disk
from .driver import JVM, SPARK
from .process import PATIENCE_S
from .report import Outcome
from .said import said

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPICS = {"a": 60}
ON_SPARK = replace(
    drivers.CONFIG, engine=EngineConfig(engine="spark", driver_rows=0, max_failures=1_000)
)
HERE = replace(drivers.CONFIG, engine=EngineConfig(engine="local"))
FAILED, LOST = "target computation of group", "its members keep what they have"
IN_DRIVER = replace(
    ON_SPARK, engine=replace(ON_SPARK.engine, driver_rows=EngineConfig().driver_rows)
)
"""Groups are assigned where the coordinator is, and no session is asked."""
IMPATIENT = replace(ON_SPARK, engine=replace(ON_SPARK.engine, timeout_ms=3_000, max_failures=3))
MIB = 64


def spark() -> SparkSession:
    """Return the one session."""
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM)
    from spark_jobs.session.session import spark_session

    found = spark_session("muster-faults", "local[2]", SPARK)
    found.sparkContext.setLogLevel("OFF")  # what fails here is meant to
    return found


class Here:
    """A coordinator in this process, the members of a group, and all that is said.

    Attributes
    ----------
    checked
        How much of what was said is of the past.
    """

    def __init__(self, store: Path, coordinator: Coordinator, heard: list[str]) -> None:
        self.store = store
        self.coordinator = coordinator
        self.members = Members(coordinator, 0.1)
        self.heard = heard
        self.checked = 0

    def hears(self, *texts: str) -> None:
        """Wait until one line since says all of this."""

        def there() -> bool:
            lines = [text for text in self.heard[self.checked :] if "\n" not in text]
            return any(all(t in line for t in texts) for line in lines)

        try:
            wait_for(there)
        except AssertionError:
            raise Broken(f"no log says {texts}, but {self.heard[self.checked :]}") from None

    def keeps(self, owned: dict[str, Any]) -> None:
        """Members beat, and have what they had; newcomers have nothing yet."""
        self.members.beat()
        now = {name: had for name, had in self.members.owned.items() if any(had.values())}
        if now != owned:
            raise Broken(f"members have {now}, they had {owned}")

    def settles(self) -> dict[str, Any]:
        """Wait until the group is at rest; returns who owns what."""
        self.members.settle()
        owned = self.members.owned
        _whole({name: frozenset(had.get("a", ())) for name, had in owned.items()})
        return {name: had for name, had in owned.items() if any(had.values())}


def _whole(shares: dict[str, frozenset[int]]) -> None:
    partitions = sorted(p for share in shares.values() for p in share)
    if partitions != list(range(TOPICS["a"])):
        raise Broken(f"not every partition has one owner: {shares}")


@contextmanager
def here(store: Path, config: Config = ON_SPARK, before: Members | None = None) -> Iterator[Here]:
    """Yield a coordinator that computes targets in the session, and the members from before."""
    from spark_jobs.jobs.spark_engine import SparkEngine

    session = None if config.engine.driver_rows else spark()
    with (
        closing(SparkEngine(session, config)) as engine,  # its threads keep a process from ending
        said() as heard,
        Coordinator.open(store, topics=TOPICS, config=config, engine=engine) as found,
    ):
        there = Here(store, found, heard)
        if before is None:
            there.members.join("m1", "m2")
        else:
            there.members.epochs, there.members.owned = before.epochs, before.owned
        yield there


Fault = Callable[[Here, random.Random], AbstractContextManager[Callable[[], object]]]
"""While it lasts; yields what waits until the fault is felt."""


def disturbed(fault: Fault, promise: str, config: Config = ON_SPARK) -> Callable[..., Outcome]:
    """Return a scenario: a fault during each run, and members that keep what they have."""

    def scenario(store: Path, seed: int, times: int) -> Outcome:
        chance = random.Random(seed)
        with here(store, config) as there:
            for number in range(times):
                owned, there.checked = there.settles(), len(there.heard)
                with fault(there, chance) as felt:
                    there.members.join(f"n{number}")
                    felt()
                    there.keeps(owned)
                there.settles()
        return Outcome(times, promise)

    return scenario


# Jobs --------------------------------------------------------------------------------------------


READ, WRITE = "assign_on_spark", "add_rows"
REPLACED = (READ, "count_and_digest", WRITE)
"""The job's functions that faults replace: at its beginning, in its middle, at its end."""


@contextmanager
def changed(name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Replace one of the job's functions."""
    from spark_jobs.jobs import target_job

    real = getattr(target_job, name)
    setattr(target_job, name, function)
    try:
        yield
    finally:
        setattr(target_job, name, real)


@contextmanager
def fails(there: Here, chance: random.Random) -> Iterator[Callable[[], object]]:
    """A task raises, at the beginning, in the middle, or at the end of the job."""

    def fail(*_: object) -> None:
        spark().range(2).selectExpr("raise_error('the machine is on fire')").collect()

    with changed(chance.choice(REPLACED), fail):
        yield lambda: there.hears(FAILED, "on fire")


@contextmanager
def hangs(there: Here, _chance: random.Random) -> Iterator[Callable[[], object]]:
    """A task never ends."""

    def sleep(*_: object) -> None:
        spark().range(2).selectExpr("java_method('java.lang.Thread', 'sleep', 600000L)").collect()

    def felt() -> None:
        there.hears(FAILED, "timed out after")
        wait_for(lambda: not spark().sparkContext.statusTracker().getActiveJobsIds())

    with changed(READ, sleep):
        yield felt


@contextmanager
def is_cancelled(there: Here, chance: random.Random) -> Iterator[Callable[[], object]]:
    """A user cancels it, at any moment."""

    def felt() -> None:
        time.sleep(chance.uniform(0, 1))
        wait_for(lambda: there.coordinator.cancel_computation("g"))
        there.hears(FAILED, "cancelled")

    yield felt


# The table of targets ----------------------------------------------------------------------------


def spoil(store: Path, chance: random.Random) -> None:
    """Delete the table, or delete or cut the newest file of it."""
    table = Path(targets_path(store))
    file = max(table.rglob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    harm = chance.choice(("table", "file", "cut"))
    if harm == "table":
        shutil.rmtree(table)
    elif harm == "file":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[: chance.randrange(file.stat().st_size)])


def lost(store: Path, seed: int, times: int) -> Outcome:
    """The rows of the last target go while the coordinator lives, which knows it all the same."""
    chance = random.Random(seed)
    with here(store) as there:
        for number in range(times):
            owned = there.settles()
            spoil(there.store, chance)
            there.members.join(f"n{number}")
            now = there.settles()
            for name, had in owned.items():
                if not now[name]["a"] or not set(now[name]["a"]) <= set(had["a"]):
                    raise Broken(f"{name} had {had}, and has {now[name]}")
    with here(store, before=there.members) as there:
        if there.settles() != now:
            raise Broken(f"members had {now}, and have {there.members.owned}")
        if any(LOST in text for text in there.heard):
            raise Broken("the target that came after is lost too")
    return Outcome(times, "the next target was made from what the coordinator knew, and is whole")


@contextmanager
def is_full(there: Here, chance: random.Random) -> Iterator[Callable[[], object]]:
    """The disk of the table has a page left, or none; a small target needs two."""
    disk = Path(targets_path(there.store))
    fill(disk, chance.randrange(2) * PAGE)
    try:
        yield lambda: there.hears(FAILED, FULL)
    finally:
        empty(disk)


@contextmanager
def is_read_only(there: Here, _chance: random.Random) -> Iterator[Callable[[], object]]:
    """The disk of the table no longer takes anything."""
    disk = Path(targets_path(there.store))
    remount(disk, "ro")
    try:
        yield lambda: there.hears(FAILED, targets_path(there.store), "Mkdirs failed")
    finally:
        remount(disk, "rw")


def on_small_disk(scenario: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Return a scenario whose table of targets is on a disk of its own."""

    def there(store: Path, seed: int, times: int) -> Outcome:
        store.mkdir()
        with small_disk(Path(targets_path(store)), MIB):
            return scenario(store, seed, times)

    return there


def lost_before_a_load(store: Path, seed: int, times: int) -> Outcome:
    """The rows of the last target go while no coordinator is there."""
    chance, members = random.Random(seed), None
    for _ in range(times):
        with here(store, before=members) as there:
            owned, members = there.settles(), there.members
        spoil(store, chance)
        with here(store, before=members) as there:
            there.keeps(owned)
            there.hears(LOST)
            metrics = generate_latest(there.coordinator.metrics.registry).decode()
            if 'target_assignment_lost_total{group="g"} 1.0' not in metrics:
                raise Broken("no metric tells of the lost target")
            there.settles()
            members = there.members
    return Outcome(times, "said, and counted by a metric; members keep what they are assigned")


# Two at once -------------------------------------------------------------------------------------


class Gate:
    """Holds up callers of `real` through it, until it is opened."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self._real = real
        self._arrived, self._open = threading.Event(), threading.Event()
        self.words: tuple[Any, ...] = ()

    def __call__(self, *words: Any) -> Any:
        """Wait, then do it."""
        self.words = words
        self._arrived.set()
        assert self._open.wait(PATIENCE_S)
        return self._real(*words)

    def wait(self) -> None:
        """Wait until a caller is held up."""
        assert self._arrived.wait(PATIENCE_S), "no call came"

    def open(self) -> None:
        """Let all callers continue."""
        self._open.set()


def two_jobs(store: Path, _seed: int, times: int) -> Outcome:
    """Another job computes the same epoch of the same group, and commits its rows too."""
    from spark_jobs.jobs import target_job

    with here(store) as there:
        for number in range(times):
            there.settles()
            gate = Gate(getattr(target_job, WRITE))
            with changed(WRITE, gate):
                there.members.join(f"n{number}")
                gate.wait()
            other = _compute(store, f"other-{number}")
            gate.open()
            there.settles()
            runs, named = set(runs_of(store)), set(installed_runs(store))
            if other not in runs or other in named or not named <= runs:
                raise Broken(f"{named} are installed, {runs} have rows")
        owned, members = there.settles(), there.members
    with here(store, before=members) as there:
        there.keeps(owned)
    return Outcome(times, "both have their rows in the table; the record names one of them")


def _compute(store: Path, run_id: str) -> str:
    from spark_jobs.jobs.target_job import compute_on_spark

    compute_on_spark(spark(), target_basis(store, run_id), ON_SPARK)
    return run_id


def late(store: Path, _seed: int, times: int) -> Outcome:
    """A job ends when its coordinator has long been fenced."""
    from spark_jobs.jobs import target_job

    members = None
    for number in range(times):
        with here(store, before=members) as there:
            there.settles()
            gate = Gate(getattr(target_job, WRITE))
            with changed(WRITE, gate):
                there.members.join(f"n{number}")
                gate.wait()
            members = _taken_over(there, gate)
    return Outcome(times, "no record names its rows; its coordinator learns that it is fenced")


def _taken_over(there: Here, gate: Gate) -> Members:
    """Take over by force; then let the old coordinator's job end."""
    with Coordinator.open(there.store, topics=TOPICS, config=HERE, takeover="force") as second:
        members = Members(second, 0.1)
        members.epochs, members.owned = there.members.epochs, there.members.owned
        members.settle()
        epochs = second.group_epochs("g")
        gate.open()
        wait_for(lambda: there.coordinator.status == "fenced")
        members.beat()
        if second.group_epochs("g") != epochs:
            raise Broken(f"a late job moved {epochs}")
        if gate.words[0].computation_id in installed_runs(there.store):
            raise Broken("a late job's target is installed")
    return members


failing = disturbed(fails, "each failure was said, and the computation begun again")
hanging = disturbed(
    hangs, "given up after its time; its Spark jobs ended; then the local engine", IMPATIENT
)
cancelled = disturbed(is_cancelled, "its Spark jobs ended, and it was begun again")
full = on_small_disk(disturbed(is_full, "each failure was said; it went on when there was room"))
full_here = on_small_disk(
    disturbed(is_full, "each failure was said; it went on when there was room", IN_DRIVER)
)
read_only = on_small_disk(disturbed(is_read_only, "each failure was said; it went on afterwards"))
