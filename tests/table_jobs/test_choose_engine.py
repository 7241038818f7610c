"""Where a job on tables runs, if it may choose."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from deltalake import write_deltalake

from coordinator.config import Config, CostConfig, EngineConfig
from coordinator.engines.cost_model import GroupSize, fits_memory
from coordinator.table_jobs.inputs import find_input
from coordinator.table_jobs.run_job import run_job
from tests.table_jobs.test_run_job import FakeSpark, job_on

MEMBERS = pa.table({"member_id": ["m1", "m2"], "subscribed": [["a"], ["a"]]})
OWNED = pa.table(
    {
        "member_id": ["m1"] * 3,
        "topic": ["a"] * 3,
        "first_partition": [0, 2, 4],
        "partition_count": [1, 1, 1],
    }
)


def test_auto_leaves_tables_to_spark_that_take_more_memory_than_there_may_be(tmp_path):
    """To read a group takes more than one takes that is there, which a coordinator has."""
    topics = pa.table({"topic": ["a"], "partitions": [5]})
    for name, table in (("members", MEMBERS), ("topics", topics), ("owned", OWNED)):
        write_deltalake(str(tmp_path / name), table)
    owned = find_input(str(tmp_path / "owned"), "--owned", "auto")
    job = replace(job_on(tmp_path, "auto"), owned=owned)
    cost = CostConfig(table_bytes_member=3 << 20, table_bytes_range=5 << 20)
    mib = 3 * len(MEMBERS) + 5 * len(OWNED)
    for most, engine in ((mib, "local"), (mib - 1, "spark")):
        config = Config(cost=cost, engine=EngineConfig(local_mib_max=most))
        assert run_job(job, config, FakeSpark()).engine == engine
        assert fits_memory(config, GroupSize(len(MEMBERS), 1, len(OWNED)))
