"""A store written by version 0.1 opens, and answers as it did then.

`tests/golden/store-0.1` was written before modules and classes got the names that they have now. It
has every kind of record: static and dynamic members, a pattern, topics that grew and went, offsets, a
deleted group, a group's settings, an audit record, a target that a job wrote; and two snapshots.
`answers.json` is what version 0.1 said of it.
"""

from __future__ import annotations

import json
import shutil

import msgspec
import pytest

from coordinator import Coordinator
from coordinator.config import parse
from coordinator.history import VIEWS, frame
from coordinator.verify import verify
from tests.conftest import ROOT

FOLDER = ROOT / "tests" / "golden" / "store-0.1"
TOPICS = {
    "orders": 8, "parcels": 4, "entries": 4, "pages": 8, "clicks": 12,
}  # fmt: skip


@pytest.fixture
def store(tmp_path):
    return shutil.copytree(FOLDER / "store", tmp_path / "store")


@pytest.fixture(scope="module")
def answers():
    return json.loads((FOLDER / "answers.json").read_text())


def as_json(told):
    return json.loads(msgspec.json.encode(told))


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_its_views_have_the_same_rows(view, answers):
    found = frame(FOLDER / "store", view)
    rows = json.loads(json.dumps(found.to_pylist(), default=str))
    since = dict.fromkeys(found.column_names)  # columns that came later are null
    assert rows == [since | row for row in answers["views"][view]]


def test_a_coordinator_answers_the_same(store, answers):
    config = parse("[log]\nsnapshot_rows = 40\n", "the test")
    with Coordinator.open(store, config=config, topics=TOPICS, takeover="force") as coordinator:
        groups = coordinator.list_groups()["groups"]
        assert as_json(groups) == answers["groups"]
        ids = [group["group_id"] for group in groups]
        assert as_json(coordinator.consumer_group_describe(ids)) == answers["described"]
        configs = {group: coordinator.describe_group_config(group) for group in ids}
        assert configs == answers["configs"]
        fetched = {group: coordinator.offset_fetch(group_id=group) for group in ids}
        assert as_json(fetched) == answers["offsets"]


def test_it_is_sound(store):
    verify(store)
