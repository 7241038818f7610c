"""A log that is followed has the rows of one that is read from the start."""

from __future__ import annotations

import random

import pytest

from coordinator.history.followed_log import FollowedLog
from coordinator.history.frames import VIEWS, compute_view, read_view
from coordinator.history.log_reader import LogReader
from tests.support.longer import EVERY
from tests.support.stories import many_groups, stored
from tests.web.browsing import five_groups

LIMITS = [{}, {"bytes_max": 40_000}, {"tail_max": 5}]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return [
        stored(five_groups(), tmp_path_factory.mktemp("stories")),
        many_groups([5, 11], ["batching", "coordinator"], tmp_path_factory.mktemp("many")),
    ]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_views_of_a_followed_log_are_those_of_the_log(stores, limits):
    """However far it goes at once, and also when a former position is asked again."""
    chance = random.Random(str(limits))
    for store in stores:
        last = LogReader(store).position
        groups = [None, *read_view(LogReader(store), "groups")["group_id"].to_pylist()]
        position = chance.randint(1, last // 2)
        followed, before = FollowedLog(LogReader(store, position), **limits), None
        while position <= last:
            reading = LogReader(store, position)
            followed.advance(reading)
            for at in filter(None, (reading, before)):
                for view in chance.sample(sorted(VIEWS.keys() - {"targets"}), 4 if EVERY else 2):
                    group = None if view == "topics" else chance.choice(groups)
                    found = compute_view(followed.rows(at, group), view)
                    assert found.equals(read_view(at, view, group)), (view, group, at.position)
            before, position = reading, position + chance.randint(1, 1 + last // 4)


def test_what_is_kept_is_bounded(stores):
    reading = LogReader(stores[1])
    followed = FollowedLog(reading, bytes_max=40_000)
    for view in sorted(VIEWS.keys() - {"targets"}):
        compute_view(followed.rows(reading), view)
        assert sum(kept.rows.nbytes for kept in followed._kept.values()) <= 40_000
