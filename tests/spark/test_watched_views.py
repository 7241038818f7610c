"""The views of a store that shows the groups of a Kafka cluster: in SQL as by Arrow."""

import pytest

from coordinator.history import frame
from tests.support.longer import EVERY, longer
from tests.watcher.test_watched_store import feed

from .test_views import IN_ORDER, compared, computed_views

LONG = longer("all views once more, of other groups: test-spark")
SOME = IN_ORDER if EVERY else ("epochs", "partition_owners", "groups")


@pytest.mark.parametrize(
    "name", ["wide-00.jsonl", pytest.param("classic-02.jsonl", marks=LONG, id="classic-02.jsonl")]
)
def test_frames_equal_the_views(spark, tmp_path, name):
    feed(tmp_path, name)
    views = computed_views(spark, tmp_path, SOME)
    views.pop("log", None)  # the bytes of classic members are no JSON
    sizes = dict(compared(views, tmp_path))
    assert sizes["epochs"] > 5
    found = frame(tmp_path, "groups").to_pylist()
    assert {row["observed"] for row in found} == {"records"}
    assert {row["observed_since"].timestamp() for row in found} == {0.001}
