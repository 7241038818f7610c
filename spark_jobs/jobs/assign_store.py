"""`muster assign --store … --group …`: plan a group's target on Spark, and apply the plan.

It is `muster plan --engine spark` and `muster apply` in one, for a group that waits for a target.
The store's coordinator decides; if none is running, this process is the coordinator until then.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from assignors import SpecError
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.config.kafka import group_settings
from coordinator.core.plans.planner import PlanOptions, make_plan
from coordinator.core.state.records import ACCEPTED
from coordinator.core.targets.approval import IMBALANCE, MAX_MOVES
from coordinator.display import progress
from coordinator.engines.plan_answers import find_answer
from coordinator.history.former_targets import read_basis
from coordinator.history.log_reader import LogReader
from coordinator.history.watched import refuse_watched
from coordinator.runtime.ask_coordinator import ask_coordinator, user_name
from coordinator.storage.tables.store_files import root_of
from spark_jobs.jobs.spark_engine import SparkEngine
from spark_jobs.session.session import scratch_warehouse, spark_session


@dataclass(frozen=True, slots=True)
class StoreJob:
    """What to assign. Options that are None follow from the group.

    Attributes
    ----------
    run_id
        A repeated run with the same id does nothing.
    """

    store: str
    group_id: str
    assignor: str | None = None
    imbalance: str | None = None
    max_moves: int | None = None
    run_id: str | None = None


def assign_store(job: StoreJob, config: Config) -> dict[str, Any]:
    """Plan the target of a store's group, apply the plan, and return the outcome.

    Raises
    ------
    SpecError
        The group does not exist, or the assignor refuses it.
    NoLog
        The store is missing.
    BusyError
        No executor ran a task in time, or no coordinator answered: nothing is changed.
    RuntimeError
        The coordinator refused the plan; the message says why.
    """
    store, run_id = root_of(job.store), job.run_id or str(uuid.uuid4())
    reading = LogReader(store)
    refuse_watched(reading)
    basis = read_basis(reading, config, job.group_id)
    if job.run_id is not None:
        before, _ = find_answer(store, run_id, after=0)
        if before is not None and before.reason != ACCEPTED:
            raise RuntimeError(before.reason)
        if before is not None:
            return {"run_id": run_id, "already_judged": True, "verdict": ACCEPTED}
    facts = {"group_id": job.group_id, "group_epoch": basis.group_epoch}
    if basis.group_epoch <= basis.assignment_epoch:
        return facts | {"verdict": "nothing to compute", "position": reading.position}
    asked = {IMBALANCE: job.imbalance, MAX_MOVES: job.max_moves}
    given = {name: value for name, value in asked.items() if value is not None}
    settings = group_settings(config.kafka, given)
    options = PlanOptions(job.assignor or "", settings, owner=user_name(), reason=f"run {run_id}")
    with progress.task("starting Spark"):
        spark = spark_session("muster-assign", conf=scratch_warehouse())
    engine = SparkEngine(spark, config)
    plan = make_plan(basis, options, config, wall_ms(), engine.compute)
    made = plan.plan
    with progress.task("waiting for the coordinator's answer"):
        try:
            epoch = ask_coordinator(
                store, config, "apply", job.group_id, made.plan_id, made, request_id=run_id
            )
        except SpecError as error:
            raise RuntimeError(str(error)) from None
    return {
        "group_id": job.group_id,
        "group_epoch": epoch,
        "position": reading.position,
        "run_id": run_id,
        "plan_id": made.plan_id,
        "assignor": made.assignor,
        "members": made.summary.members,
        "moved": made.summary.moved,
        "placed": made.summary.placed,
        "verdict": ACCEPTED,
    }
