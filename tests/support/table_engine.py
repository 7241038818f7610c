"""An engine that computes with NumPy and delivers as a Spark job does: through the table of targets.

What happens between a job's commit and its install record is the same for both, and needs no JVM.
"""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

from coordinator.config import Config
from coordinator.core.state.records import TargetMetadata
from coordinator.core.state.target_assignment import StoredTarget
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.compute_here import run_assignor
from coordinator.engines.engine import Engine
from coordinator.engines.stored_target import read_stored_target
from coordinator.history.former_targets import read_basis
from coordinator.history.log_reader import LogReader
from coordinator.storage.delta_log import read_log
from coordinator.storage.tables.store_files import files_at, open_delta
from coordinator.storage.target_digest import digest_rows
from coordinator.storage.target_table import commit_target, make_targets, targets_path


def write_rows(store, group_id, epoch, run_id, rows, parts=1):
    """Write the rows of one target as files, commit them, and return the table's version."""
    store = str(store)
    make_targets(store, 7, sync=True)
    table = rows.append_column("run_id", pa.array([run_id] * len(rows), pa.string()))
    folder = f"run-{uuid.uuid4().hex}"
    files_at(store).make_folder(f"{targets_path(store)}/{folder}")
    for part in range(parts):
        first, end = (len(table) * at // parts for at in (part, part + 1))
        path = f"{targets_path(store)}/{folder}/part-{part}.parquet"
        files_at(store).write_rows(path, table.slice(first, end - first))
    return commit_target(
        store, folder, group_id, epoch, run_id, len(rows), digest_rows(rows), sync=True
    )


def target_basis(store, run_id, group_id="g", assignor="uniform"):
    """Return what the target of a store's group is computed from, as it is now."""
    reading, config = LogReader(store), Config()
    basis = read_basis(reading, config, group_id)
    options = AssignorOptions.of_target(assignor, basis.settings, config)
    return replace(
        basis, assignor=assignor, options=options, computation_id=run_id,
        position=reading.position, store=str(store),
    )  # fmt: skip


def runs_of(store):
    """Return the run of each row in the table of targets, sorted."""
    rows = open_delta(targets_path(str(store))).to_pyarrow_table(columns=["run_id"])
    return sorted(rows["run_id"].to_pylist())


def installed_runs(store):
    """Return the runs whose targets became the groups', in their order."""
    found = [r for b in read_log(store) for r in b.records if isinstance(r, TargetMetadata)]
    return [r.computation_id for r in found if r.computation_id]


def rows_of(ranges, topics):
    """Return ranges as rows of the table, without the columns that name the target."""
    ids = {topic.key.name: topic.key.topic_id for topic in topics}
    rows = ranges.to_arrow()
    topic_id = pa.array([ids[name] for name in rows["topic"].to_pylist()], pa.string())
    return rows.append_column("topic_id", topic_id)


class TableEngine(Engine):
    """Computes once it is let; `spoil` changes rows before they are written.

    `named` are facts that it gets wrong of what it wrote.
    """

    def __init__(self, spoil=None):
        self.let = threading.Event()
        self.let.set()
        self.wrote = threading.Event()
        self.deliver = threading.Event()
        self.deliver.set()
        self.spoil = spoil or (lambda rows: rows)
        self.named = {}
        self.cancelled = []
        self.jobs = []

    at_once = 4

    def compute(self, job):
        self.jobs.append(job)
        self.let.wait()
        spec, run_id = job.input.spec(), job.computation_id
        ranges = run_assignor(spec, job.options)
        rows = self.spoil(rows_of(ranges, job.input.topics))
        version = write_rows(job.store, job.group_id, job.group_epoch, run_id, rows)
        self.wrote.set()
        self.deliver.wait()
        facts = {
            "assignment_epoch": job.group_epoch, "run_id": run_id, "version": version,
            "digest": digest_rows(rows), "members": spec.member_count, "ranges": len(rows),
        }  # fmt: skip
        stored = StoredTarget(job.group_id, **facts | self.named)
        target = TargetCandidate(
            job.group_id, job.group_epoch, job.assignor, stored=stored,
            computation_id=run_id, position=job.position,
        )  # fmt: skip
        return read_stored_target(job.store, target, job.input)

    def cancel(self, group_id):
        self.cancelled.append(group_id)

    def close(self):
        self.let.set()
        self.deliver.set()


@pytest.fixture
def engine():
    """An engine that computes and delivers at once."""
    engine = TableEngine()
    yield engine
    engine.close()
