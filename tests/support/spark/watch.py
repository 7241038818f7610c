"""What Spark really ran: the plans it executed, and the rows that came to the driver."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps

from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

_GROUP = "spark.jobGroup.id"
_PYTHON = re.compile(r".*(?:Python|Pandas|InArrow).*")
_WINDOW = re.compile(r"^.*[-+ ]Window (\[.*\])$", re.MULTILINE)


@dataclass
class Watch:
    """What happened while it was open.

    Attributes
    ----------
    plans
        Physical plans as Spark executed them.
    collected
        Rows of every frame that was brought to the driver.
    stages
        How many stages had tasks that ran.
    """

    plans: list[str] = field(default_factory=list)
    collected: list[int] = field(default_factory=list)
    stages: int = 0

    def python(self) -> list[str]:
        """Lines of plans in which rows go through Python, other than in whole batches."""
        found = [line for plan in self.plans for line in _PYTHON.findall(plan)]
        return [line for line in found if "MapInArrow" not in line]

    def blocks(self) -> bool:
        """Whether batches go through Python."""
        return any("MapInArrow" in plan for plan in self.plans)

    def windows(self) -> list[str]:
        """Arguments of all windows."""
        return [found for plan in self.plans for found in _WINDOW.findall(plan)]

    def whole_windows(self) -> list[str]:
        """Windows without a partition key: all rows in one task."""
        return [arguments for arguments in self.windows() if not _keyed(arguments)]


def _keyed(arguments: str) -> bool:
    """Tell whether a window has a partition key.

    Spark prints [functions], [partition keys], [order] and leaves out what is empty; only an order
    says where nulls go.
    """
    return any(" NULLS " not in part for part in arguments.split("], [")[1:])


@contextmanager
def watch(spark: SparkSession) -> Iterator[Watch]:
    """Record what Spark executes and collects, in any session of this SparkContext."""
    mode = spark.conf.get("spark.sql.ui.explainMode")
    assert mode == "simple", "windows are found in plans of this form"
    seen, real = Watch(), {}
    for name in ("collect", "toArrow", "toPandas"):
        real[name] = getattr(DataFrame, name)
        setattr(DataFrame, name, _counted(real[name], seen))
    before = {execution.executionId() for execution in _executions(spark)}
    context, tag = spark.sparkContext, f"watch-{uuid.uuid4()}"
    context.setLocalProperty(_GROUP, tag)
    try:
        yield seen
        seen.stages = _count_stages(spark, tag)
        after = [found for found in _executions(spark) if found.executionId() not in before]
        seen.plans += [execution.physicalPlanDescription() for execution in after]
    finally:
        context.setLocalProperty(_GROUP, None)
        for name, method in real.items():
            setattr(DataFrame, name, method)


def _count_stages(spark: SparkSession, tag: str) -> int:
    """Count the stages of this thread's jobs; those that Spark skipped have no task."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(tag)]
    stages = {stage for job in jobs for stage in job.stageIds}
    found = [tracker.getStageInfo(stage) for stage in stages]
    return sum(1 for stage in found if stage is not None and stage.numCompletedTasks)


def _counted(method, seen):
    @wraps(method)
    def wrapper(self, *args, **kwargs):
        rows = method(self, *args, **kwargs)
        seen.collected.append(len(rows))
        return rows

    return wrapper


def _executions(spark: SparkSession) -> list:
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [found.apply(at) for at in range(found.size())]
