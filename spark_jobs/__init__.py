"""Assignors as DataFrame operations, and the jobs around them.

>>> import spark_jobs
>>> coordinator = spark_jobs.embed(spark, "store")  # doctest: +SKIP
>>> spark_jobs.views.register(spark, "store")  # doctest: +SKIP

It may import all other rooms, and only `muster` names what is here. The coordinator finds it by
entry points. Importing this package starts no JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assignors.late_names import late_names
from coordinator.extras import explain

if TYPE_CHECKING:
    from spark_jobs.assignors import range, sticky, uniform, weighted  # noqa: A004 - the assignor's name
    from spark_jobs.jobs.embedding import embed, embed_node
    from spark_jobs.jobs.foreach_owner import foreach_partition_owner
    from spark_jobs.sql import views
    from spark_jobs.streams.group_offsets import GroupOffsets
    from spark_jobs.streams.shared_source import OffsetsGoneError, SharedSource, shared_source
    from spark_jobs.streams.starting_offsets import starting_offsets

__all__ = [
    "GroupOffsets",
    "OffsetsGoneError",
    "SharedSource",
    "embed",
    "embed_node",
    "foreach_partition_owner",
    "range",
    "shared_source",
    "starting_offsets",
    "sticky",
    "uniform",
    "views",
    "weighted",
]

_ROOMS = {
    "GroupOffsets": "spark_jobs.streams.group_offsets",
    "OffsetsGoneError": "spark_jobs.streams.shared_source",
    "SharedSource": "spark_jobs.streams.shared_source",
    "embed": "spark_jobs.jobs.embedding",
    "embed_node": "spark_jobs.jobs.embedding",
    "foreach_partition_owner": "spark_jobs.jobs.foreach_owner",
    "range": "spark_jobs.assignors",
    "shared_source": "spark_jobs.streams.shared_source",
    "starting_offsets": "spark_jobs.streams.starting_offsets",
    "sticky": "spark_jobs.assignors",
    "uniform": "spark_jobs.assignors",
    "views": "spark_jobs.sql",
    "weighted": "spark_jobs.assignors",
}

__getattr__ = late_names(__name__, _ROOMS, explain)  # set-up imports this before its dependencies
