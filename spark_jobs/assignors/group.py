"""A group as DataFrames, subscriptions compressed.

This is the twin of `assignors.group_spec`. Classes and topics fit the driver: they are arrays
there, and the same code handles them. Members and ranges stay distributed. Bad input is refused
before anything is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from assignors import SpecError
from assignors.arrays import PARTITIONS_MAX, Ints, Longs
from assignors.blocks.read_members import CHANGED
from assignors.parse_tables import parse_topics_table
from spark_jobs.session.schemas import select_topics
from spark_jobs.session.work_session import WorkSession


@dataclass(frozen=True, slots=True)
class TopicTable:
    """The topics table, on the driver: sorted by name."""

    names: pa.StringArray
    partitions: Longs

    @classmethod
    def of(cls, frame: DataFrame) -> TopicTable:
        """Read and check the topics.

        Raises
        ------
        SpecError
            A topic is listed twice, has no name, or has an invalid partition count.
        """
        return cls(*parse_topics_table(select_topics(frame).toArrow()))


@dataclass(frozen=True, slots=True)
class Classes:
    """The subscription classes, on the driver: how many members each has, and its topics."""

    size: Longs
    offsets: Longs
    topics: Ints


@dataclass(frozen=True, slots=True)
class FrameGroup:
    """A group whose partitions are rows of frames.

    Attributes
    ----------
    work_session
        The session of its frames.
    topics
        The topics, on the driver.
    """

    work_session: WorkSession
    topics: TopicTable

    @property
    def spark(self) -> SparkSession:
        """The session to work in."""
        return self.work_session.spark


def refuse_changed(expected: npt.ArrayLike, found: npt.ArrayLike) -> None:
    """Compare the numbers of members, counted when subscriptions were read and when members were.

    A frame is read for each. To keep its rows for the second time would cost more than to read them
    again: ids and lists of topics, before lists are numbers.

    Raises
    ------
    SpecError
        They differ: members with a subscription that no member had before would be lost.
    """
    if not np.array_equal(expected, found):
        raise SpecError(CHANGED)


def refuse_too_large(topics: TopicTable, classes: Classes) -> None:
    """Refuse a group that subscribes to more partitions than can be assigned.

    Raises
    ------
    SpecError
        It does.
    """
    used = np.unique(classes.topics)
    total = int(topics.partitions[used].sum())
    if total > PARTITIONS_MAX:
        raise SpecError(
            f"the group subscribes to {total} partitions, above the limit of {PARTITIONS_MAX} "
            "(2^30): split the group"
        )
