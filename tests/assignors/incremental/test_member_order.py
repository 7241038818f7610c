"""Members in order: few changes in few blocks, and many end to end, as a sorted list has them."""

from __future__ import annotations

import random
from bisect import bisect_left

import numpy as np
import pyarrow as pa
import pytest

from assignors.incremental.equal_members import order_keys, read_keys, sort_keys
from assignors.incremental.member_order import MemberOrder
from tests.support.longer import EVERY

LETTERS = ["\0", "\1", "\2", "a", "b", "ä", "\U0001f600", ""]


@pytest.mark.parametrize("seed", range(300 if EVERY else 20))
@pytest.mark.parametrize("most", [4, 250])
def test_an_order_is_as_a_sorted_list(seed, most):
    """Up to 250 members come or go at a time: more than a block of four has, and than few."""
    draw = random.Random(seed)
    rows = {f"n{at:04d}": (at, draw.randint(0, 3)) for at in draw.sample(range(4000), 300)}
    keys, values = arrow(sorted(rows)), np.array([rows[key] for key in sorted(rows)])
    order = MemberOrder.of(keys, values[:, 0], values[:, 1], block=draw.choice([4, 32, 1024]))
    for _ in range(6):
        names = sorted(rows)
        gone = sorted(draw.sample(names, draw.randint(0, min(most, len(names) - 1))))
        came = draw.sample(sorted({f"n{at:04d}" for at in range(4000)} - {*names}), most)
        came = sorted(came[: draw.randint(0, most)])
        before, there = order.find(arrow(came))
        assert not there.any()
        assert [bisect_left(names, key) for key in came] == ranks(order, before)
        after = order.changed(
            order.find(arrow(gone))[0], before, arrow(came), np.arange(len(came), dtype=np.int64)
        )
        assert shown(order) == rows, "the order before it has changed"
        rows = {key: row for key, row in rows.items() if key not in gone}
        rows |= {key: (at, 0) for at, key in enumerate(came)}
        some = sorted(draw.sample(sorted(rows), draw.randint(1, min(most, len(rows)))))
        places, there = after.find(arrow(some))
        assert there.all()
        loads = np.array([draw.randint(0, 5) for _ in some], dtype=np.int64)
        order = after.put(places, loads, np.arange(len(some), dtype=np.int64))
        rows |= {key: (at, load) for at, (key, load) in enumerate(zip(some, loads, strict=True))}
        assert shown(order) == rows
        check_places(order, rows, draw)


def check_places(order, rows, draw):
    """Find members by load, all, the first and the last of them."""
    least, most = sorted([draw.randint(0, 5), draw.randint(0, 5)])
    at = [rank for rank, key in enumerate(sorted(rows)) if least <= rows[key][1] <= most]
    wanted = draw.randint(0, len(at))
    assert ranks(order, order.all_within(least, most)) == at
    assert ranks(order, order.first_within(wanted, least, most)) == at[:wanted]
    assert ranks(order, order.last_within(wanted, least, most)) == at[len(at) - wanted :]
    assert order.heads == [order.names.text(rows[0]) for rows in order.keys.blocks]
    counts = order.counts
    assert [[*one] for one in zip(*counts.blocks, strict=True)] == [
        [(loads == level).sum() for level in counts.loads] for loads in order.loads.blocks
    ]
    assert counts.members == [count.sum() for count in counts.blocks]


def ranks(order, places):
    """Return how many members are before each place."""
    starts = order.keys.starts()
    return [int(starts[place >> 32]) + (place & (2**32 - 1)) for place in places.tolist()]


def shown(order):
    keys, numbers = order.all()
    loads = order.loads.end_to_end()
    rows = zip(numbers.tolist(), loads.tolist(), strict=True)
    return dict(zip(keys.to_pylist(), rows, strict=True))


def arrow(texts):
    return pa.array(texts, pa.large_string())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("count", [50, 300])
def test_texts_sort_as_members_do(seed, count):
    """Static members by instance id, then the others, whatever letters their ids have."""
    draw = random.Random(seed)

    def text():
        return "".join(draw.choices(LETTERS, k=draw.randint(0, 3)))

    ids = sorted({text() for _ in range(count)}, key=lambda _: draw.random())
    instances = [draw.choice([None, None, text()]) if seed % 2 else None for _ in ids]
    keys = order_keys(pa.array(["-", *ids])[1:], pa.array(instances, pa.string()))
    assert [column.to_pylist() for column in read_keys(keys)] == [ids, instances]
    ordered = sorted(
        range(len(ids)), key=lambda at: (instances[at] is None, instances[at] or "", ids[at])
    )
    assert sort_keys(keys).tolist() == ordered
