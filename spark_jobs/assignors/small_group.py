"""A group of few rows: assigned on the driver by `assignors`, the code that DataFrames repeat.

A job of DataFrames has some fifty stages, which Spark plans and compiles for seconds, however few
the rows are. Reading few rows takes two.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assignors import GroupSpec, get_assignor
from assignors.quality import count_moved
from assignors.water_level import Histogram
from spark_jobs.assignors.materialize import FrameAssignment
from spark_jobs.session.schemas import frame_of, select_members, select_owned, select_topics
from spark_jobs.session.work_session import WorkSession


def assign_small_group(
    work_session: WorkSession,
    assignor: str,
    members: DataFrame,
    topics: DataFrame,
    previous: DataFrame | None,
    options: Mapping[str, Any],
) -> FrameAssignment | None:
    """Assign on the driver if members and ranges are few; the rows are the same.

    Parameters
    ----------
    members, topics, previous
        As for `spark_jobs.assignors.uniform.assign`.

    Returns
    -------
    FrameAssignment or None
        None if its rows, those of range included, may be more than `WorkSession.driver_rows`.

    Raises
    ------
    SpecError
        Bad input, as on executors.
    """
    frames = {"members": select_members(members), "topics": select_topics(topics)}
    if previous is not None:
        frames["owned"] = select_owned(previous)
    frames = {name: work_session.adopt(frame) for name, frame in frames.items()}
    if not work_session.driver_rows or _count(assignor, frames) > work_session.driver_rows:
        return None
    given = {name: frame.toArrow() for name, frame in frames.items()}
    group = GroupSpec.from_arrow(given["members"], given["topics"], given.get("owned"))
    ranges = get_assignor(assignor, **options).assign(group)
    return FrameAssignment(
        frame_of(work_session.spark, ranges.to_arrow()),
        ranges.verdict,
        Histogram.of(
            len(group.class_offsets) - 1, group.member_class.astype(np.int64), ranges.loads()
        ),
        int(count_moved(group, ranges).sum()),
        group.orphan_count(),
    )


def _count(assignor: str, frames: Mapping[str, DataFrame]) -> int:
    """Count the rows of all frames, and those that range may return."""
    counted = [
        frame.agg(F.lit(name).alias("name"), F.count(F.lit(1)).alias("rows"))
        for name, frame in frames.items()
    ]
    counts = {row["name"]: row["rows"] for row in reduce(DataFrame.unionAll, counted).collect()}
    product = counts["members"] * counts["topics"] if assignor == "range" else 0
    return int(sum(counts.values()) + product)
