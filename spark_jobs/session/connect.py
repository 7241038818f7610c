"""A session of Spark Connect: a client of a driver elsewhere, without a JVM to ask.

Its server has no place for sessions of a job of ours beside the user's, and no way to move frames
between sessions that every server has; so jobs work in the user's session, whose settings stay as
they are.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

_MODULE = "pyspark.sql.connect"
_ENOUGH_ROWS = 1 << 20
_parallelism: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def is_connect(spark: SparkSession) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith(_MODULE)


@dataclass(slots=True, eq=False)
class Shared:
    """A value that travels with each task's code."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class ConnectSession:
    """What `spark_jobs` needs of a session of Spark Connect: the same as of `ClassicSession`.

    Attributes
    ----------
    spark
        The session.
    made
        Whether it was made here, in place of one that has ended.
    """

    spark: Any
    made: bool = False
    _progress: dict[str, tuple[int, int]] = field(default_factory=dict)

    def place(self) -> str:
        """Return where it runs, for messages."""
        client = self.spark.client
        return f"sc://{client.host}"

    def why_idle(self) -> str:
        """Return why no task may run, for messages."""
        return "its server may be down, or have no free executors"

    def is_local(self) -> bool:
        """Whether tasks see this process's files: unknown, so False."""
        return False

    def has_own_python(self) -> bool:
        """Whether tasks run with this process's Python: unknown, so False."""
        return False

    def new_session(self) -> SparkSession:
        """Return the session itself."""
        session: SparkSession = self.spark
        return session

    def move(self, frame: DataFrame, session: SparkSession) -> DataFrame:  # noqa: ARG002 - the same
        """Return the frame itself: all are in one session."""
        return frame

    def keep(self, frame: DataFrame) -> tuple[DataFrame, Callable[[bool], object]]:
        """Compute a frame now; the server releases its rows when no frame refers to them."""
        level = StorageLevel.MEMORY_AND_DISK_DESER
        return frame.localCheckpoint(eager=True, storageLevel=level), _nothing

    def keep_and_measure(
        self, frame: DataFrame, measures: Mapping[str, Column]
    ) -> tuple[DataFrame, Callable[[bool], object], dict[str, Any]]:
        """Do as `keep`, and return aggregates of the rows, by name."""
        kept, release = self.keep(frame)
        row = kept.agg(*[column.alias(name) for name, column in measures.items()]).collect()[0]
        return kept, release, row.asDict()

    def keep_and_collect(
        self, frame: DataFrame, collect: Callable[[DataFrame], pa.Table]
    ) -> tuple[DataFrame, Callable[[bool], object], pa.Table]:
        """Do as `keep`, and return what `collect` reads of the kept frame."""
        kept, release = self.keep(frame)
        return kept, release, collect(kept)

    def parallelism(self) -> int:
        """Return how many tasks run at once, about."""
        client = self.spark.client
        if client not in _parallelism:
            # Spark cuts a range into as many pieces; Connect has no other word for it.
            pieces = self.spark.range(_ENOUGH_ROWS).select(F.spark_partition_id().alias("piece"))
            _parallelism[client] = int(pieces.agg(F.max("piece")).collect()[0][0]) + 1
        return _parallelism[client]

    def executors(self) -> int:
        """Return the number of executors: 0, as if unknown."""
        return 0

    def alive(self) -> bool:
        """Whether the session was not stopped, as far as is known."""
        return not self.spark.is_stopped

    def again(self) -> ConnectSession:
        """Return a new session of the same server: sessions end when it is started again."""
        client, kind = self.spark.client, type(self.spark)
        builder, user = client._builder, client._user_id  # noqa: SLF001 - how to log in there
        self.spark.stop()
        session = kind(connection=builder, userId=user)
        kind._set_default_and_active_session(session)  # noqa: SLF001 - as its builder does
        return ConnectSession(session, made=True)

    def end(self) -> None:
        """Close a session that was made here: at its exit, Python would wait for it endlessly."""
        if self.made:
            self.spark.stop()

    @contextmanager
    def tagged(self, tag: str, description: str) -> Iterator[None]:  # noqa: ARG002 - Connect shows tags
        """Run this thread's operations with a tag."""

        def note(stages: Any, **_: Any) -> None:  # noqa: ANN401 - Connect's progress
            if stages and tag in self.spark.getTags():
                self._progress[tag] = (
                    sum(stage.num_completed_tasks for stage in stages),
                    sum(stage.num_tasks for stage in stages),
                )

        self.spark.addTag(tag)
        self.spark.registerProgressHandler(note)
        try:
            yield
        finally:
            self.spark.removeProgressHandler(note)
            self.spark.removeTag(tag)
            self._progress.pop(tag, None)

    def cancel(self, tag: str) -> None:
        """End the operations with a tag, from any thread."""
        self.spark.interruptTag(tag)

    def tasks(self, tag: str) -> tuple[int, int]:
        """Return how many tasks of the running operation are done, and their number."""
        return self._progress.get(tag, (0, 0))

    def add_python(self, path: str) -> None:
        """Give tasks a zip of Python modules; those that executors have count less."""
        self.spark.addArtifacts(path, pyfile=True)

    def share(self, value: Any) -> Any:  # noqa: ANN401 - tasks read anything
        """Return a value for tasks, as an attribute `value`: it is sent with their code."""
        return Shared(value)


def _nothing(_wait: bool, /) -> None:  # noqa: FBT001 - as in the other session
    """Release nothing."""
