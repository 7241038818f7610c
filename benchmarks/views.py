"""Views: what a store says, in Spark SQL and as Arrow tables, beside a sort of its log."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section, Table, number
from benchmarks.shape import GROUP, member_id, small_group_id
from benchmarks.store import BATCH, temporary_store, write_small_groups
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.reasons import Reason
from coordinator.core.state.groups import Topic
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    Record,
    TargetMetadata,
    TopicChanged,
)
from coordinator.history import frame
from coordinator.runtime.topic_catalog import topic_id_of
from coordinator.storage.delta_log import DeltaLog

TITLE = "Views of a store: 100,000 members"
TEXT = """\
The store has a group of 100,000 members that joined one by one, half of which got more partitions
by a second target, and 10 small groups. Times are elapsed seconds, and multiples of sorting all
rows of the log in the same session: `local[2]`, warm (each query ran before). The frames need no
JVM.
"""
EACH = 100
RUNS = 3
SORTED = "the log, sorted by group and member"
GOALS = {
    "views.register": 2.0,
    "groups": 3.0,
    "assignment_history, counted": 15.0,
    "assignment_history of a small group": 5.0,
    "frame of assignment_history": 3.0,
}
HISTORY = "SELECT count(*) FROM assignment_history"
SQL = {
    "groups": "SELECT * FROM groups",
    "assignment_history, counted": HISTORY,
    "assignment_history of a small group": f"{HISTORY} WHERE group_id = '{small_group_id(0)}'",
    SORTED: "SELECT * FROM log ORDER BY group_id, member_id, position",
}


def run(bench: Bench) -> Section:
    """Write a store and ask it."""
    members = 400 if bench.smoke else 100_000
    with temporary_store() as store:
        bench.say(f"views: writing the log of {members:,} members")
        write_log(store, members)
        write_small_groups(store, 10)
        taken = _asked(store, bench) | _framed(store, bench)
    once = statistics.median(taken[SORTED])
    figures, rows = [], []
    for name, seconds in taken.items():
        goal = GOALS.get(name)
        figures.append(Figure.of(name, [one * 1000 for one in seconds], goal=goal and goal * 1000))
        median = statistics.median(seconds)
        rows.append([name, number(median), number(median / once), str(len(seconds))])
    return Section(
        TITLE, TEXT, figures, [Table("", ("what", "s", "sorts of the log", "runs"), rows)]
    )


def _asked(store: Path, bench: Bench) -> dict[str, list[float]]:
    """Return the seconds of each question in SQL."""
    from spark_jobs.session.session import (  # noqa: PLC0415 - only this needs Java
        scratch_warehouse,
        spark_session,
    )
    from spark_jobs.sql.views import register  # noqa: PLC0415 - the same

    conf = {"spark.driver.memory": "2g", **scratch_warehouse()}
    spark = spark_session("muster-bench", "local[2]", conf)
    work: dict[str, Callable[[], object]] = {"views.register": lambda: register(spark, store)}
    for name, query in SQL.items():
        work[name] = lambda query=query: (
            spark.sql(query).write.format("noop").mode("overwrite").save()
        )
    return _taken(work, bench)


def _framed(store: Path, bench: Bench) -> dict[str, list[float]]:
    """Return the seconds of frames."""
    small = small_group_id(0)
    return _taken(
        {
            "frame of groups": lambda: frame(store, "groups"),
            "frame of assignment_history": lambda: frame(store, "assignment_history"),
            "frame of assignment_history of a small group": lambda: frame(
                store, "assignment_history", group_id=small
            ),
        },
        bench,
    )


def _taken(work: dict[str, Callable[[], object]], bench: Bench) -> dict[str, list[float]]:
    """Do all of it in turn, once more than is measured."""
    taken: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(2 if bench.smoke else RUNS + 1):
        for name, do in work.items():
            bench.say(f"views: {name}, {turn or 'warming up'}")
            start = time.perf_counter()
            do()
            if turn:
                taken[name].append(time.perf_counter() - start)
    return taken


def write_log(store: Path, members: int) -> None:
    """Write the log of a group whose members joined one by one, and of whom half got more then."""
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", wall_ms())
    records = _records(members)
    while batch := list(islice(records, BATCH)):
        log.append(batch, 1)
    log.close()


def _records(members: int) -> Iterator[Record]:
    first, more = (
        Topic.of(name, topic_id_of(name), count, ())
        for name, count in (("first", members * EACH), ("more", members // 2))
    )
    yield TopicChanged(first.key.name, first.key.topic_id, first.partitions)
    for at in range(members):
        yield MemberMetadata(
            GROUP,
            member_id(at),
            client_id="client",
            client_host="host",
            subscribed_topic_names=("first", "more"),
            rebalance_timeout_ms=60_000,
        )
        yield GroupMetadata(GROUP, at + 2, first.hash, Reason.MEMBER_JOINED, member_id(at))
    epoch = members + 1
    yield TargetMetadata(GROUP, epoch, 1, "uniform")
    held = [(first.key, at * EACH, (at + 1) * EACH, epoch) for at in range(members)]
    for at in range(members):
        yield CurrentMember(GROUP, member_id(at), epoch, assigned=(held[at],))
    yield TopicChanged(more.key.name, more.key.topic_id, more.partitions)
    hash_ = (first.hash + more.hash) % 2**64
    yield GroupMetadata(GROUP, epoch + 1, hash_, Reason.TOPICS_CHANGED, member_id(0))
    yield TargetMetadata(GROUP, epoch + 1, 2, "uniform")
    for at in range(members // 2):
        got = (more.key, at, at + 1, epoch + 1)
        yield CurrentMember(GROUP, member_id(at), epoch + 1, epoch, assigned=(held[at], got))
    rest = tuple(member_id(at) for at in range(members // 2, members))
    yield MembersAdvanced(GROUP, epoch + 1, rest)
