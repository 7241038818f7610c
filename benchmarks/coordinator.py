"""The coordinator: heartbeats, commits, joins, loads, on a Delta store on this disk."""

from __future__ import annotations

import gc
import statistics
import threading
import time
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path

from benchmarks.measure import Bench, Figure, resident_mib
from benchmarks.report import Section
from benchmarks.shape import EPOCH, GROUP, Shape, in_thousands, member_id
from benchmarks.store import epoch_records, member_records, temporary_store, write_group
from coordinator import Coordinator
from coordinator.__main__ import spare_pandas
from coordinator.cli.service import GC_THRESHOLDS
from coordinator.clock import wall_ms
from coordinator.config import Config, parse
from coordinator.core.events import LEAVE, Heartbeat
from coordinator.core.state.groups import State
from coordinator.core.state.records import OffsetCommitted
from coordinator.core.state.replay import replay
from coordinator.core.state.rows.fold_rows import RowFolder, count_objects
from coordinator.storage.delta_log import DeltaLog

TITLE = "The coordinator"
TEXT = """\
Elapsed ms (not CPU) with default settings: one process, a Delta store on this machine's disk,
fsync and maintenance on. A rate is given as the time for a number of requests.

A commit reads nothing: it writes the data file and the entry of Delta's log, and syncs both and
their folders. One member joins 100,000: the store has a snapshot, so none is written meanwhile. The
first join plans from nothing; each later one continues from the last plan, in 3 to 4 ms of CPU with
its checks, within the batch of its join, so that both are one commit. One leaves 1,000,000: until
the target that the next heartbeat of another member asks for is durable.
Loading: each member has three records, which stay columns, as the snapshot has them; of a member
only its id becomes an object. A thread reads the next rows meanwhile.

Members that come one by one are objects until most rest, and then rows, made of them in pieces: the
memory is that of the state alone, without sessions and the log.
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large each measurement is."""

    steady: int
    beats: int
    commits: int
    batches: int
    joiners: int
    advance: int
    load: int
    grown: int
    each: int
    change: int
    classes: int


FULL = Sizes(
    100_000, 150_000, 5_000, 50, 1_000, 1_000_000, 1_000_000, 1_000_000, 100, 1_000_000, 1_000
)
SMOKE = Sizes(100, 1_000, 60, 3, 20, 200, 200, 2_000, 5, 200, 10)
CHANGED_EACH = 10
"""Partitions a member of the group of which one joins or leaves."""
PATIENT = parse('[kafka]\n"group.consumer.max.session.timeout.ms" = 3600000\n', "benchmark")
"""Its members need not beat while they are only there to be many."""
CHANGED = {
    "consumer.session.timeout.ms": "3600000",
    "consumer.assignment.interval.ms": "0",
    "consumer.assignor.engine": "local",
}


def run(bench: Bench) -> Section:
    """Measure; each on a store of its own."""
    sizes = SMOKE if bench.smoke else FULL
    figures: list[Figure] = []
    for work in (
        _commits,
        _durable,
        _join_at_once,
        _beats_while_one_keeps,
        _beats_and_join,
        _advance_and_load if bench.smoke else _advance_and_load_apart,
        _grow if bench.smoke else _grow_apart,
        _changes if bench.smoke else _changes_apart,
    ):
        bench.say(f"coordinator: {work.__name__.strip('_').replace('_', ' ')}")
        with temporary_store() as store:
            figures += work(store, sizes)
    return Section(TITLE, TEXT, figures)


def _commits(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """One offset a commit, as a slow trickle of requests would do it."""
    with Coordinator.open(store, topics={"t": 1}) as coordinator:
        took = []
        for number in range(sizes.commits):
            began = time.perf_counter()
            coordinator.offset_commit(group_id="simple", topics={"t": {0: number}})
            took.append((time.perf_counter() - began) * 1000)
    took.sort()
    yield _figure(f"commit, median of {sizes.commits:,}", statistics.median(took), 15.0)
    yield _figure(f"commit, p99 of {sizes.commits:,}", took[int(len(took) * 0.99)], 60.0)


def _durable(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """Records through the log alone, 1,000 a commit, its care among them."""
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", wall_ms())
    count = 1_000
    offsets = [OffsetCommitted("g", "t", "id", p, p, commit_timestamp=1) for p in range(count)]
    began = time.perf_counter()
    for _ in range(sizes.batches):
        log.append(offsets, wall_ms())
        if log.is_maintenance_due():
            log.maintain()
    took = (time.perf_counter() - began) * 1000
    log.close()
    rows = sizes.batches * count
    yield _figure("50,000 records made durable, 1,000 a commit", took * 50_000 / rows, 1_000.0)


def _join_at_once(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """Members join an empty group; each beats as fast as it is answered, until all are settled."""
    topics = {f"t{n}": 100 for n in range(max(1, sizes.joiners // 10))}
    with Coordinator.open(store, topics=topics) as coordinator:
        names = tuple(sorted(topics))
        epochs = {f"m{n:06}": 0 for n in range(sizes.joiners)}
        owned: dict[str, dict[str, list[int]]] = {member: {} for member in epochs}
        began = time.perf_counter()
        while True:
            beats = [
                Heartbeat(
                    GROUP,
                    member,
                    epoch,
                    rebalance_timeout_ms=60_000 if epoch == 0 else -1,
                    subscribed_topic_names=names if epoch == 0 else None,
                    topic_partitions=owned[member],
                )
                for member, epoch in epochs.items()
            ]
            for answer in coordinator.consumer_group_heartbeats(beats).raise_for_error():
                assert answer.member_id is not None
                epochs[answer.member_id] = answer.member_epoch
                if answer.assignment is not None:
                    owned[answer.member_id] = answer.assignment
            (group,) = coordinator.consumer_group_describe(GROUP)
            if group["group_state"] == "Stable":
                break
        took = (time.perf_counter() - began) * 1000
    yield _figure(f"{sizes.joiners:,} members join at once, until all are stable", took, 5_000.0)


def _beats_while_one_keeps(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """Heartbeats of members that wait for what one never confirms to have given up; then at rest.

    The first member owns all partitions of the topic, of which each of the others gets one.
    """
    keeper, *others = (f"m{n:06}" for n in range(sizes.joiners))
    with Coordinator.open(store, topics={"t": sizes.joiners}) as coordinator:
        joins = [
            Heartbeat(
                GROUP,
                member,
                0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=("t",),
                topic_partitions={},
            )
            for member in (keeper, *others)
        ]
        epochs: dict[str, int] = {}
        _beat(coordinator, joins[:1], epochs)
        _beat(coordinator, joins[1:], epochs)
        time.sleep(1.1)  # the assignment interval
        assigned = _beat(coordinator, [Heartbeat(GROUP, keeper, epochs[keeper])], epochs)[keeper]
        for _ in range(3):  # until all of them wait, and have looked
            _beat(coordinator, _heartbeats(others, epochs), epochs)
        waiting = _time_beats(coordinator, others, epochs)
        gone = Heartbeat(GROUP, keeper, epochs[keeper], topic_partitions=assigned)
        _beat(coordinator, [gone], epochs)
        while coordinator.consumer_group_describe(GROUP)[0]["group_state"] != "Stable":
            _beat(coordinator, _heartbeats(others, epochs), epochs)
        resting = _time_beats(coordinator, others, epochs)
    name = f"heartbeats of {len(others):,} members that wait for one, by those of the same at rest"
    yield Figure.of(name, [statistics.median(waiting) / statistics.median(resting)], "x", 1.1)


def _heartbeats(members: list[str], epochs: dict[str, int]) -> list[Heartbeat]:
    return [Heartbeat(GROUP, member, epochs[member]) for member in members]


def _beat(
    coordinator: Coordinator, beats: list[Heartbeat], epochs: dict[str, int]
) -> dict[str, dict[str, list[int]]]:
    """Note the epochs of the answers; return the assignments among them."""
    assigned = {}
    for answer in coordinator.consumer_group_heartbeats(beats).raise_for_error():
        assert answer.member_id is not None
        epochs[answer.member_id] = answer.member_epoch
        if answer.assignment is not None:
            assigned[answer.member_id] = answer.assignment
    return assigned


def _time_beats(
    coordinator: Coordinator, members: list[str], epochs: dict[str, int]
) -> list[float]:
    """Return the CPU ms of some rounds of heartbeats that change nothing."""
    beats = _heartbeats(members, epochs)
    took = []
    for _ in range(25):
        began = time.process_time()
        coordinator.consumer_group_heartbeats(beats).raise_for_error()
        took.append((time.process_time() - began) * 1000)
    return took


def _beats_and_join(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """Steady heartbeats of a large group; then one more member joins it while others beat."""
    shape = in_thousands(sizes.steady, 10)
    write_group(store, shape, snapshot=True)
    ids = shape.ids()
    with Coordinator.open(store, topics=shape.topics()) as coordinator:
        epochs = [EPOCH] * len(ids)
        coordinator.steady_heartbeats(GROUP, ids[:10], epochs[:10])
        began = time.perf_counter()
        done = 0
        while done < sizes.beats:
            part = ids[: min(len(ids), sizes.beats - done)]
            answers = coordinator.steady_heartbeats(GROUP, part, epochs[: len(part)])
            answers[-1].raise_for_error()
            done += len(part)
        took = (time.perf_counter() - began) * 1000
        yield _figure(
            f"150,000 steady heartbeats, {len(ids):,} members",
            took * 150_000 / sizes.beats,
            1_000.0,
        )
        yield from _one_joins(coordinator, shape)


def _one_joins(coordinator: Coordinator, shape: Shape) -> Iterator[Figure]:
    """Until the group's target for the newcomer is durable; others beat one by one meanwhile."""
    waits: list[float] = []
    ids = shape.ids()
    epochs = dict.fromkeys(ids, EPOCH)
    over = threading.Event()

    def beat() -> None:
        at = 0
        while not over.is_set():
            member_id = ids[at % len(ids)]
            began = time.perf_counter()
            answer = coordinator.consumer_group_heartbeat(
                group_id=GROUP, member_id=member_id, member_epoch=epochs[member_id]
            )
            waits.append((time.perf_counter() - began) * 1000)
            epochs[member_id] = answer.member_epoch
            at += 1
            time.sleep(0.001)

    others = threading.Thread(target=beat)
    others.start()
    took = []
    for number in range(5):
        time.sleep(1.1)  # the assignment interval
        took.append(_took(partial(join_one, coordinator, shape, f"new{number}")))
    over.set()
    others.join()
    waits.sort()
    label = f"one member joins {len(ids):,}"
    yield replace(Figure.of(f"{label}: durable target", took), goal=60.0)
    yield _figure(f"{label}: heartbeats of others, p99", waits[int(len(waits) * 0.99)], 25.0)


def _changes_apart(store: Path, sizes: Sizes) -> Iterator[Figure]:
    """Write and change each group in processes of their own."""
    for classes in (1, sizes.classes):
        for work in (_write_for_change, _change):
            with ProcessPoolExecutor(1, get_context("spawn")) as apart:
                found = apart.submit(work, store / str(classes), sizes, classes).result()
        yield from found


def _changes(store: Path, sizes: Sizes) -> Iterator[Figure]:
    for classes in (1, sizes.classes):
        _write_for_change(store / str(classes), sizes, classes)
        yield from _change(store / str(classes), sizes, classes)


def _shape_to_change(sizes: Sizes, classes: int) -> Shape:
    if classes == 1:
        return in_thousands(sizes.change, CHANGED_EACH)
    return Shape(sizes.change, CHANGED_EACH, classes=classes)


def _write_for_change(store: Path, sizes: Sizes, classes: int) -> list[Figure]:
    store.parent.mkdir(parents=True, exist_ok=True)
    write_group(store, _shape_to_change(sizes, classes), CHANGED, snapshot=True)
    return []


def _change(store: Path, sizes: Sizes, classes: int) -> list[Figure]:
    """One joins a very large group that was loaded; then others join, leave and change lists."""
    shape = _shape_to_change(sizes, classes)
    names = f", {classes:,} classes" if classes > 1 else ""
    label = f"{shape.members:,} x {shape.members * shape.each:,}{names}"
    with Coordinator.open(
        store, config=PATIENT, topics=shape.topics(), takeover="force"
    ) as coordinator:
        first = _took(partial(join_one, coordinator, shape, "first"))
        joined = [f"new{number}" for number in range(10)]
        joins = [_took(partial(join_one, coordinator, shape, one)) for one in joined]
        other = Heartbeat(GROUP, shape.ids()[0], EPOCH)
        leaves = []
        for member_id in joined:
            began = time.perf_counter()
            coordinator.consumer_group_heartbeat(
                group_id=GROUP, member_id=member_id, member_epoch=LEAVE
            )
            (answer,) = coordinator.consumer_group_heartbeats([other]).raise_for_error()
            _wait_for_target(coordinator)
            leaves.append((time.perf_counter() - began) * 1000)
            other = Heartbeat(GROUP, other.member_id, answer.member_epoch)
        changing = [shape.members * at // 20 for at in range(5, 15)]
        changed = [_took(partial(_change_list, coordinator, shape, at)) for at in changing]
    return [
        _figure(f"{label}: one joins right after the load", first, 1_000.0),
        Figure.of(f"{label}: one joins, durable target", joins, goal=20.0),
        Figure.of(f"{label}: one leaves, durable target", leaves, goal=20.0),
        Figure.of(f"{label}: one changes its list, durable target", changed),
    ]


def _change_list(coordinator: Coordinator, shape: Shape, at: int) -> None:
    """Let a member subscribe to half of the topics, or to one more; others have these too."""
    names, topics = shape.names(at), list(shape.topics())
    more = topics[(topics.index(names[0]) + 1) % len(topics)]
    coordinator.consumer_group_heartbeat(
        group_id=GROUP,
        member_id=member_id(at),
        member_epoch=EPOCH,
        subscribed_topic_names=names[: len(names) // 2] if len(names) > 1 else (*names, more),
    )
    _wait_for_target(coordinator)


def join_one(coordinator: Coordinator, shape: Shape, member_id: str) -> None:
    """Let a member join, and wait until the target with it is durable."""
    coordinator.consumer_group_heartbeat(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=shape.names(0),
        topic_partitions={},
    )
    _wait_for_target(coordinator)


def _wait_for_target(coordinator: Coordinator, pause_s: float = 0.001) -> None:
    """Wait until the group's target is for its present epoch."""
    while coordinator.status == "active":
        (row,) = coordinator.group_epochs(GROUP)
        if row[0] == row[1]:
            break
        time.sleep(pause_s)


def _took(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def _advance_and_load_apart(store: Path, sizes: Sizes) -> list[Figure]:
    """Write and load in two processes, so that the memory of the second is that of a load."""
    apart = partial(ProcessPoolExecutor, 1, get_context("spawn"))
    with apart() as writer:
        writer.submit(_write_for_load, store, sizes).result()
    with apart() as loader:
        return loader.submit(_load, store, sizes).result()


def _advance_and_load(store: Path, sizes: Sizes) -> list[Figure]:
    _write_for_load(store, sizes)
    return _load(store, sizes)


def _write_for_load(store: Path, sizes: Sizes) -> None:
    shape = in_thousands(sizes.load, sizes.each)
    write_group(store, shape, snapshot=True)
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", wall_ms())
    log.append(epoch_records(shape, EPOCH + 1), wall_ms())
    log.close()


def _load(store: Path, sizes: Sizes) -> list[Figure]:
    """A very large group is loaded, and advances to an epoch that changes nothing for it."""
    shape, figures = in_thousands(sizes.load, sizes.each), []
    begun = time.process_time()
    began = time.perf_counter()
    with Coordinator.open(store, topics=shape.topics(), takeover="force") as coordinator:
        took = (time.perf_counter() - began) * 1000
        cpu = (time.process_time() - begun) * 1000
        label = f"{sizes.load:,} members, {sizes.load * sizes.each:,} partitions"
        figures.append(_figure(f"load {label}, from snapshot and log", took, 2_400.0))
        figures.append(Figure.of("CPU of that load", [cpu], "ms"))
        figures.append(
            Figure.of("memory of that process at its peak", [resident_mib()], "MiB", 717.0)
        )
        ids = shape.ids()
        began = time.perf_counter()
        for at in range(0, sizes.advance, 50_000):
            part = ids[at : at + 50_000]
            answers = coordinator.steady_heartbeats(GROUP, part, [EPOCH] * len(part))
            assert answers[-1].member_epoch == EPOCH + 1, answers[-1]
        took = (time.perf_counter() - began) * 1000
        label = f"{len(ids):,} members advance to an epoch without change"
        figures.append(_figure(label, took, 10_000.0))
    return figures


def _grow_apart(store: Path, sizes: Sizes) -> list[Figure]:
    with ProcessPoolExecutor(1, get_context("spawn")) as apart:
        return apart.submit(_grow, store, sizes).result()


def _grow(_: Path, sizes: Sizes) -> list[Figure]:
    """A group grows by members who come one by one, and once they rest, they are rows."""
    spare_pandas()
    gc.collect()
    gc.freeze()  # as `muster serve` does
    gc.set_threshold(*GC_THRESHOLDS)
    before = resident_mib("VmRSS")
    state, shape = State(), Shape(sizes.grown, 1, topic_count=10)
    for record in chain(epoch_records(shape, EPOCH), member_records(shape)):
        replay(state, record)
    objects = resident_mib("VmRSS") - before
    folder, more = RowFolder(lambda *_: True), True
    pieces = array("d")  # no objects among those that go, whose memory would stay for them
    folder.note(GROUP)
    while more:
        began = time.thread_time()
        more = folder.fold(state)
        pieces.append((time.thread_time() - began) * 1000)
    assert count_objects(state.groups[GROUP]) == 0
    rows = resident_mib("VmRSS") - before
    label = f"{sizes.grown:,} members that came one by one"
    return [
        Figure.of(f"memory of {label}, as objects", [objects], "MiB"),
        Figure.of(f"memory of {label}, as rows", [rows], "MiB"),
        Figure.of("CPU to make rows of them", [sum(pieces)], "ms"),
        Figure.of("CPU of the longest piece of that", [max(pieces)], "ms", 20.0),
    ]


def _figure(name: str, took_ms: float, goal: float) -> Figure:
    return Figure.of(name, [took_ms], "ms", goal)
