"""A coordinator's group on Spark: its Arrow tables become frames, and its assignor runs on them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from assignors import GroupSpec
from assignors.blocks.read_members import Labels
from coordinator.config import Config
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.basis import Basis
from coordinator.engines.input_tables import make_tables
from spark_jobs.assignors.dispatch import load_twin
from spark_jobs.assignors.labelled_members import LabelledMembers
from spark_jobs.assignors.twin import Twin
from spark_jobs.session.schemas import frame_of


def assign_on_spark(
    spark: SparkSession, basis: Basis, config: Config
) -> tuple[DataFrame, int, TargetCandidate]:
    """Assign a group that is in the driver's memory; its rows stay on Spark.

    Returns
    -------
    frame
        The rows: member_id, topic, first_partition and partition_count.
    members
        How many members were counted on Spark.
    target
        The target without these rows.

    Raises
    ------
    SpecError
        The assignor does not run on Spark, or refuses the group.
    """
    found, options = basis.input, basis.options
    assignor = options.assignor
    twin = load_twin(assignor)
    if isinstance(twin, Twin):
        spec = found.spec(assignor)
        assigned = twin.assign(
            spark, _label(spark, spec), frame_of(spark, spec.topics_to_arrow()),
            frame_of(spark, spec.owned().to_arrow()),
            driver_rows=config.engine.driver_rows, **options.arguments(),
        )  # fmt: skip
        partial = assigned.verdict.partial and not options.waits
        target = basis.candidate(assigned.moved, partial=partial)
        return assigned.rows, assigned.members, target
    tables = make_tables(found, assignor)
    frames = {name: frame_of(spark, table) for name, table in tables.items()}
    done = twin(spark, assignor, frames, options.arguments(), as_of_ms=found.as_of_ms)
    (row,) = done.summary.to_pylist() or [{"members": 0, "moved": 0, "partial": False}]
    target = basis.candidate(row["moved"], partial=row["partial"] and not options.waits)
    return done.rows, row["members"], target


def _label(spark: SparkSession, spec: GroupSpec) -> LabelledMembers:
    """Return members with the numbers of their subscriptions, which are long and few."""
    members = pa.table(
        {
            "member_id": spec.member_ids,
            "instance_id": spec.instance_ids,
            "label": pa.array(spec.member_class.astype(np.int64)),
        }
    )
    labels = Labels.numbers(spec.class_count)
    return LabelledMembers(frame_of(spark, members), labels, spec.class_offsets, spec.class_topics)
