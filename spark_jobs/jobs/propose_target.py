"""`assign.py --store … --group …`: compute a group's target in a job, and propose it.

The job commits its rows to the table `targets`, proposes them to the store's coordinator, and waits
for the verdict in the log. If the store has no coordinator, the job opens one until the proposal is
decided. Only that coordinator writes the log.
"""

from __future__ import annotations

import logging
import time
import uuid
from dataclasses import dataclass
from typing import Any

import msgspec

from coordinator import Coordinator, progress
from coordinator.clock import wall_ms
from coordinator.compute import proposal_inbox
from coordinator.compute.engine import TargetRequest
from coordinator.compute.proposal import Proposal
from coordinator.config import Config
from coordinator.core.plan_steps.inputs import PlanBasis
from coordinator.core.plans.approval import IMBALANCE, MAX_MOVES
from coordinator.core.plans.assignor_options import AssignorOptions
from coordinator.core.records import ACCEPTED, ProposalJudged
from coordinator.history.former_targets import read_basis
from coordinator.history.log_reader import LogReader
from coordinator.kafka_config import group_settings
from coordinator.storage.lease import Lease
from coordinator.storage.tables.store_files import root_of
from coordinator.storage.tables.table_io import BusyError
from spark_jobs.jobs.target_job import compute_on_spark
from spark_jobs.session.cluster import await_executors, try_again_if_lost
from spark_jobs.session.session import active_tasks, scratch_warehouse, spark_session

LOOK_S = 0.25
logger = logging.getLogger("muster.spark")


@dataclass(frozen=True, slots=True)
class ProposalOptions:
    """The options of the job. Options that are None follow from the group.

    Attributes
    ----------
    run_id
        A repeated run with the same id writes nothing.
    """

    store: str
    group_id: str
    assignor: str | None = None
    imbalance: str | None = None
    max_moves: int | None = None
    run_id: str | None = None


def propose_target(wanted: ProposalOptions, config: Config) -> dict[str, Any]:
    """Compute a group's target, propose it, and return the outcome.

    Raises
    ------
    SpecError
        There is no such group, or the assignor refuses it.
    NoLog
        There is no store.
    BusyError
        No executor ran a task in time, or no coordinator decided the proposal: it is withdrawn.
    RuntimeError
        The proposal was refused. The message begins with the error's name.
    """
    store = root_of(wanted.store)
    reading = LogReader(store)
    basis = read_basis(reading, config, wanted.group_id)
    before = _find_earlier_verdict(store, wanted.run_id)
    if before is not None:
        return _describe_outcome(before, {"run_id": wanted.run_id, "already_judged": True})
    facts = {"group_id": wanted.group_id, "group_epoch": basis.group_epoch}
    if basis.group_epoch <= basis.assignment_epoch:
        return facts | {"verdict": "nothing to compute", "position": reading.position}
    run_id = wanted.run_id or str(uuid.uuid4())
    options = _choose_options(wanted, basis, config)
    request = TargetRequest(
        wanted.group_id,
        run_id,
        basis.group_epoch,
        reading.position,
        options.assignor,
        basis.settings,
        options,
        basis.input,
        store,
    )
    with progress.task("starting Spark"):
        spark = spark_session("muster-assign", conf=scratch_warehouse())
    with progress.task("tasks of Spark's stages", poll=active_tasks):
        await_executors(spark, config.engine.timeout_ms / 1000)
        found = try_again_if_lost(lambda: compute_on_spark(spark, request, config, _say))
    proposal = Proposal.of(found)
    proposal_inbox.put_proposal(store, proposal)
    with progress.task("waiting for the coordinator's verdict"):
        verdict = _await_verdict(store, proposal, config)
    return _describe_outcome(verdict, msgspec.structs.asdict(proposal))


def _choose_options(wanted: ProposalOptions, basis: PlanBasis, config: Config) -> AssignorOptions:
    """Return how to assign: as requested, else as for the last target, else the default."""
    asked = {IMBALANCE: wanted.imbalance, MAX_MOVES: wanted.max_moves}
    given = {name: value for name, value in asked.items() if value is not None}
    settings = {**basis.settings, **group_settings(config.kafka, given)}
    return AssignorOptions.of_group(wanted.assignor or basis.assignor, settings, config)


def _find_earlier_verdict(store: str, run_id: str | None) -> ProposalJudged | None:
    """Return the verdict on an earlier run with this id, if any."""
    return None if run_id is None else proposal_inbox.find_verdict(store, run_id, after=0)[0]


def _await_verdict(store: str, proposal: Proposal, config: Config) -> ProposalJudged:
    """Wait for the coordinator's verdict; if there is no coordinator, open one."""
    lease = Lease(store, "", "", config.lease, wall_ms)
    after = proposal.position
    until = time.monotonic() + config.engine.timeout_ms / 1000
    while time.monotonic() < until:
        found, after = proposal_inbox.find_verdict(store, proposal.run_id, after)
        if found is not None:
            return found
        if lease.holder() is None:
            _judge(store, proposal, config)
        else:
            time.sleep(LOOK_S)
    proposal_inbox.remove_proposal(store, proposal.run_id)
    raise BusyError(
        f"the coordinator of {store} did not decide run {proposal.run_id} within "
        f"{config.engine.timeout_ms / 1000:g} s (engine.timeout_ms): check the coordinator, and "
        "try again"
    )


def _judge(store: str, proposal: Proposal, config: Config) -> None:
    """Open a coordinator until the proposal is decided, unless another one has the store."""
    try:
        coordinator = Coordinator.open(store, config=config, takeover="refuse")
    except BusyError:
        return
    with coordinator:
        while coordinator.status == "active" and proposal.run_id in proposal_inbox.list_proposals(
            store
        ):
            time.sleep(LOOK_S)


def _describe_outcome(found: ProposalJudged, facts: dict[str, Any]) -> dict[str, Any]:
    if found.reason != ACCEPTED:
        raise RuntimeError(found.reason)
    return facts | {"verdict": found.reason}


def _say(stage: str, rows: int) -> None:
    logger.info("%s%s", stage, f" {rows:,} rows" if rows else "")
