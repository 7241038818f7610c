"""The view `plans` in Spark's SQL: the rows of its frame, of plans with several ends."""

from __future__ import annotations

import pytest

from coordinator import Coordinator
from coordinator.history import frame
from coordinator.history.view_rows import to_json_rows
from tests.spark.test_views import rows_of

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path):
    with Coordinator.open(tmp_path / "store", topics={"crates": 4}) as coordinator:
        for member in ("d1", "d2"):
            coordinator.consumer_group_heartbeat(
                group_id="depot", member_id=member, member_epoch=0, rebalance_timeout_ms=60_000,
                subscribed_topic_names=["crates"], topic_partitions={},
            )  # fmt: skip

        def plan(**options):
            return coordinator.plan("depot", assignor="weighted", owner="User:ann", **options)

        coordinator.apply_plan(plan(drain=["d2"]), by="User:bob", reason="at night")
        coordinator.propose_plan(plan(undrain=["d2"], reason="repaired"))
        other = coordinator.propose_plan(plan(undrain=["d2"], reason="repaired again"))
        coordinator.reject_plan("depot", other["plan_id"], by="User:bob")
    return tmp_path / "store"


def test_the_view_has_the_rows_of_its_frame(spark, store):
    from spark_jobs.sql.views import register

    register(spark, store, only=["plans"], engine="spark")
    wanted = frame(store, "plans")
    assert sorted(wanted["status"].to_pylist()) == ["applied", "rejected", "waiting"]
    found = rows_of(spark.sql("SELECT * FROM plans ORDER BY group_id, position"))
    assert found == to_json_rows(wanted)
