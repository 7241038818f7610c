"""Classic groups in the views: Spark's queries have the rows of `coordinator.history.frame`."""

from __future__ import annotations

import json

import pytest

from coordinator.history import frame
from coordinator.history.json_rows import to_json_rows
from coordinator.history.view_schemas import VIEW_SCHEMAS
from tests.spark.test_views import computed_views
from tests.support.classic_stories import classic_log

pytestmark = pytest.mark.spark
VIEWS = sorted(
    VIEW_SCHEMAS.keys() - {"audit", "offset_commits", "offsets", "plans", "topics", "waits"}
)
"""Those of groups; of a classic group's rebalance the log has its end, not who was waited for."""


@pytest.fixture(scope="module")
def store(spark, tmp_path_factory):
    store = tmp_path_factory.mktemp("classic")
    classic_log(store, 5)
    computed_views(spark, store, only=VIEWS)
    return store


@pytest.mark.parametrize("view", VIEWS)
def test_both_engines_have_the_same_rows(spark, store, view):
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    from spark_jobs.sql.query import AS_JSON

    lines = spark.table(view).select(F.to_json(F.struct("*"), AS_JSON)).collect()
    queried = [json.loads(line) for (line,) in lines]
    read = to_json_rows(frame(store, view))
    texts = [sorted(json.dumps(row, sort_keys=True) for row in rows) for rows in (queried, read)]
    assert texts[0] == texts[1]
    assert len(read) > 1
    assert spark.table(view).columns == VIEW_SCHEMAS[view].names
