"""A store and an output read by DuckDB, whose reader of Delta is not ours and not delta-rs's."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coordinator import Coordinator
from coordinator.config import Config, LogConfig
from coordinator.storage.tables.store_files import open_delta
from tests.clients.foreign import python_packages
from tests.conftest import ROOT
from tests.storage.test_store_by_url import join
from tests.support.table_engine import write_rows

LOCK = ROOT / "tests" / "storage" / "readers.lock"
pytestmark = pytest.mark.skipif(
    not os.environ.get("MUSTER_READERS"), reason="fetches DuckDB's extensions: make test-readers"
)
BUSY = Config(log=LogConfig(reopen_commits=5, pack_commits=7, snapshot_rows=10))
READER = """
import json, os, sys
import duckdb
connection = duckdb.connect()
for name in ("httpfs", "delta"):
    inside = f"duckdb_extension_{name}/extensions/v{duckdb.__version__}/{name}.duckdb_extension"
    connection.load_extension(os.path.join(os.environ["PYTHONPATH"], inside))
if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
    key, secret = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    connection.sql(
        f"create secret (type s3, key_id '{key}', secret '{secret}', region 'us-east-1', "
        f"endpoint '{endpoint.removeprefix('http://')}', use_ssl false, url_style 'path')"
    )
print(json.dumps([connection.sql(query).fetchall() for query in sys.argv[1:]]))
"""


@pytest.fixture(scope="module")
def packages():
    return python_packages("readers-py", LOCK)


@pytest.fixture(params=["disk", "s3"])
def place(request, tmp_path):
    """A store on a disk, or in an object store."""
    if request.param == "disk":
        return str(tmp_path / "a store")
    return request.getfixturevalue("s3").new_store()


def ask(packages, *queries):
    done = subprocess.run(
        [sys.executable, "-c", READER, *queries], env=os.environ | {"PYTHONPATH": packages},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [[tuple(row) for row in rows] for rows in json.loads(done.stdout)]


def test_duckdb_reads_every_table_of_a_store(packages, place, muster_here):
    """Our entries, delta-rs's checkpoints over them, packed files, statistics and partitions."""
    with Coordinator.open(place, topics={"clicks": 6}, config=BUSY) as coordinator:
        for number in range(20):
            join(coordinator, f"m{number}")
        assert muster_here("compact", "--store", place).returncode == 0  # there is a snapshot now
    ranges = {"member_id": ["m", "ü m"], "topic_id": ["i", "i"], "topic": ["a", "a"]}
    ranges |= {n: pa.array([0, 3], pa.int32()) for n in ("first_partition", "partition_count")}
    for group_id in ("g", "a b/ü%20='"):
        write_rows(place, group_id, 1, f"run {group_id}", pa.table(ranges))
    log, snapshots = (
        open_delta(f"{place}/{name}").to_pyarrow_table() for name in ("log", "snapshots")
    )
    kinds = (
        log.filter(pa.compute.greater(log["position"], 20))
        .group_by("kind")
        .aggregate([([], "count_all")])
    )
    found = ask(
        packages,
        f"select position, kind, member_id from delta_scan('{place}/log') order by 1",
        f"select kind, count(*) from delta_scan('{place}/log') where position > 20 group by 1 order by 1",
        f"select count(*) from delta_scan('{place}/log') where group_id = 'nobody'",
        f"select position, kind from delta_scan('{place}/snapshots') order by snapshot_position, 1",
        f"select group_id, assignment_epoch, run_id, member_id, first_partition "
        f"from delta_scan('{place}/targets') order by 1, 4",
    )
    wanted = [
        log.sort_by("position").select(["position", "kind", "member_id"]),
        kinds.sort_by("kind"),
        pa.table({"n": [0]}),
        snapshots.sort_by([("snapshot_position", "ascending"), ("position", "ascending")]).select(["position", "kind"]),
        pa.table(
            {
                "group_id": ["a b/ü%20='"] * 2 + ["g"] * 2,
                "epoch": [1] * 4,
                "run_id": ["run a b/ü%20='"] * 2 + ["run g"] * 2,
                "member_id": ["m", "ü m"] * 2,
                "first": [0, 3] * 2,
            }
        ),
    ]  # fmt: skip
    assert len(log) > 60
    assert len(snapshots)
    assert found == [[tuple(row.values()) for row in table.to_pylist()] for table in wanted]


def test_duckdb_reads_an_output(packages, place, tmp_path, muster_here):
    """Of two nights: the second replaces the files of the first."""
    pq.write_table(pa.table({"topic": ["clicks"], "partitions": [6]}), tmp_path / "topics.parquet")
    for night in (["a"], ["a", "b"]):
        members = {"member_id": night, "subscribed": [["clicks"]] * len(night)}
        pq.write_table(pa.table(members), tmp_path / "members.parquet")
        words = ("--members", tmp_path / "members.parquet", "--topics", tmp_path / "topics.parquet")
        done = muster_here("assign", *map(str, words), "--output", place)
        assert done.returncode == 0, done.stderr
    (found,) = ask(
        packages,
        "select member_id, topic, first_partition, partition_count "
        f"from delta_scan('{place}') order by 1, 3",
    )
    assert found == [("a", "clicks", 0, 3), ("b", "clicks", 3, 3)]
