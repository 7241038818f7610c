"""The algebra of ranges against sets of points."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assignors import GroupSpec, PartitionRanges, SpecError, get_assignor
from assignors.arrays import label_lists, offsets_of, rank_in_runs, sort_lists
from assignors.partition_ranges import (
    complement,
    cut_at,
    find_first_claims,
    merge_touching,
    overlay,
    subtract,
)

LINE = 40
spans = st.lists(st.tuples(st.integers(0, LINE - 1), st.integers(1, 12)), max_size=12)


def longs(values):
    return np.array(list(values), dtype=np.int64)


def points(start, end):
    return {p for a, b in zip(start, end, strict=True) for p in range(a, b)}


def disjoint(rows):
    """Keep, in order of start, what does not overlap what came before."""
    out, until = [], 0
    for start, length in sorted(rows):
        if start >= until:
            out.append((start, length))
            until = start + length
    return longs(s for s, _ in out), longs(n for _, n in out)


@given(spans)
def test_complement(rows):
    start, length = disjoint(rows)
    gap, size = complement(start, length, LINE + 12)
    assert points(gap, gap + size) == set(range(LINE + 12)) - points(start, start + length)
    assert (size > 0).all()


@given(spans, st.lists(st.integers(0, LINE + 12), max_size=10))
def test_cut_at(rows, at):
    start, length = disjoint(rows)
    cut, size = cut_at(start, length, longs(at))
    assert points(cut, cut + size) == points(start, start + length)
    inside = {p for p in at if p in points(start + 1, start + length)}
    assert set(cut.tolist()) == set(start.tolist()) | inside


@given(spans, spans)
def test_subtract(rows, less):
    start, length = disjoint(rows)
    less_start, less_length = disjoint(less)
    left, until = subtract(start, start + length, less_start, less_start + less_length)
    assert points(left, until) == points(start, start + length) - points(
        less_start, less_start + less_length
    )


@given(st.lists(st.integers(1, 9), max_size=8), st.integers(1, 30))
def test_overlay(left, seed):
    draw, total = np.random.default_rng(seed), sum(left)
    cuts = np.unique(draw.integers(0, total, 5)) if total else longs([])
    right = np.diff(np.unique(np.concatenate([[0], cuts, [total]])))
    i, j, at, count = overlay(longs(left), right, total)
    assert count.sum() == total
    assert (count > 0).all()
    for piece in zip(i, j, at, count, strict=True):
        for lengths, index in ((longs(left), piece[0]), (right, piece[1])):
            low = offsets_of(lengths)[index]
            assert low <= piece[2] < piece[2] + piece[3] <= low + lengths[index]


@given(
    st.lists(st.tuples(st.integers(0, LINE), st.integers(1, 30), st.integers(0, 5)), max_size=15)
)
def test_first_claims(rows):
    start, length = longs(r[0] for r in rows), longs(r[1] for r in rows)
    owner: dict[int, int] = {}
    for first, size, claimant in rows:
        for point in range(first, first + size):
            owner[point] = min(claimant, owner.get(point, claimant))
    won, until, by = find_first_claims(start, start + length, longs(r[2] for r in rows))
    got = {p: c for a, b, c in zip(won, until, by, strict=True) for p in range(a, b)}
    assert got == owner
    assert len(points(won, until)) == (until - won).sum()


@given(st.lists(st.lists(st.integers(0, 3), max_size=4).map(sorted), max_size=12))
def test_label_lists_numbers_equal_lists_by_first_appearance(lists):
    offsets = offsets_of(longs(map(len, lists)))
    labels, heads = label_lists(offsets, longs(v for row in lists for v in row))
    seen: dict[tuple[int, ...], int] = {}
    expected = [seen.setdefault(tuple(row), len(seen)) for row in lists]
    assert labels.tolist() == expected
    assert [expected.index(n) for n in range(len(seen))] == heads.tolist()


def test_label_lists_survives_collisions(monkeypatch):
    """The digest only groups; what it groups is compared in full."""
    from assignors import arrays

    honest = arrays._mix
    monkeypatch.setattr(
        arrays,
        "_mix",
        lambda v, salt: np.zeros(len(v), np.uint64) if salt == 0 else honest(v, salt),
    )
    labels, _ = label_lists(longs([0, 1, 2, 3]), longs([5, 6, 5]))
    assert labels.tolist() == [0, 1, 0]


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), max_size=8))
def test_sorted_lists(lists):
    offsets, values = sort_lists(
        offsets_of(longs(map(len, lists))), longs(v for row in lists for v in row), 6
    )
    got = [values[a:b].tolist() for a, b in pairwise(offsets)]
    assert got == [sorted(set(row)) for row in lists]


def test_merge_touching_keeps_members_and_topics_apart():
    columns = merge_touching(*map(longs, ([0, 0, 0, 1], [0, 0, 1, 1], [0, 2, 4, 5], [2, 2, 1, 1])))
    assert [c.tolist() for c in columns] == [[0, 0, 1], [0, 1, 1], [0, 4, 5], [4, 1, 1]]


def test_rank_in_runs():
    assert rank_in_runs(longs([7, 7, 3, 3, 3, 7])).tolist() == [0, 1, 0, 1, 2, 0]


@pytest.fixture
def ranges() -> PartitionRanges:
    members = {m: {"subscribed": ["a", "b"]} for m in ("m1", "m2", "m3")}
    return get_assignor("uniform").assign(
        GroupSpec.from_dict({"topics": {"a": 4, "b": 3}, "members": members})
    )


def test_faces_of_an_assignment(ranges):
    assert ranges.to_dict() == {
        "m1": {"a": [0, 1, 2]},
        "m2": {"a": [3], "b": [0]},
        "m3": {"b": [1, 2]},
    }
    assert ranges.to_dict(lists=False)["m2"] == {"a": [[3, 1]], "b": [[0, 1]]}
    assert ranges.to_arrow().column_names == list(ranges.to_pandas().columns) == [
        "member_id", "topic", "first_partition", "partition_count",
    ]  # fmt: skip
    assert ranges.of_member("m2").to_arrow().num_rows == 2
    assert [c.tolist() for c in ranges.of_member("m3").explode()] == [[2, 2], [1, 1], [1, 2]]
    with pytest.raises(KeyError):
        ranges.of_member("m4")


def test_an_assignment_of_another_group_is_refused(ranges):
    with pytest.raises(SpecError, match="member 'm1' is not in the group"):
        PartitionRanges.from_arrow(pa.array(["x"]), ranges.topics, ranges.to_arrow())
