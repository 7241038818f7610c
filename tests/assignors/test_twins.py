"""Fast algorithms against obvious twins and an independent flow, on many random groups.

`make test` takes a sixth of them, `make sim` (MUSTER_LONG=1) all.
"""

from __future__ import annotations

from math import ceil, floor

import pytest

from assignors import GroupSpec, get_assignor, quality
from tests.support import twins
from tests.support.longer import EVERY

STEP = 1 if EVERY else 6
SMALL, LARGE, TINY, EQUAL, LONG = (
    range(first, first + count, STEP)
    for first, count in ((0, 2400), (10_000, 400), (20_000, 400), (30_000, 300), (40_000, 500))
)


def chunks(seeds, size=100):
    return [seeds[at : at + size] for at in range(0, len(seeds), size)]


def name(seeds):
    return f"seeds {seeds[0]}-{seeds[-1]}"


def solve(spec, assignor, **options):
    group = GroupSpec.from_dict(spec)
    ranges = get_assignor(assignor, **options).assign(group)
    assignment = ranges.to_dict()
    twins.check_valid(spec, assignment)
    assert quality.report(group, ranges).valid
    return ranges, assignment


def check_uniform(spec, seed):
    ranges, assignment = solve(spec, "uniform")
    loads, moves = twins.fairest(spec)
    assert sorted(ranges.loads().tolist()) == loads, seed
    assert twins.moves(spec, assignment) == moves == ranges.verdict.moved_minimum, seed
    assert get_assignor("sticky").assign(GroupSpec.from_dict(spec)) == ranges, seed


@pytest.mark.parametrize("seeds", chunks(SMALL), ids=name)
def test_uniform_is_fairest_with_fewest_moves(seeds):
    for seed in seeds:
        check_uniform(twins.random_spec(seed), seed)


@pytest.mark.parametrize("seeds", chunks(LARGE), ids=name)
def test_uniform_in_larger_groups(seeds):
    for seed in seeds:
        check_uniform(twins.random_spec(seed, members=16, topics=9, partitions=30), seed)


@pytest.mark.parametrize("seeds", chunks(TINY), ids=name)
def test_uniform_against_enumeration(seeds):
    """The flow that judges the others is judged here."""
    for seed in seeds:
        spec = twins.random_spec(seed, members=3, topics=3, partitions=2)
        expected = twins.enumerate_fairest(spec)
        assert twins.fairest(spec) == expected, seed
        ranges, assignment = solve(spec, "uniform")
        assert (sorted(ranges.loads().tolist()), twins.moves(spec, assignment)) == expected, seed


@pytest.mark.parametrize("seeds", chunks(SMALL[: len(SMALL) // 2]), ids=name)
def test_range_cuts_topic_by_topic(seeds):
    for seed in seeds:
        spec = twins.random_spec(seed)
        assert solve(spec, "range")[1] == twins.range_twin(spec), seed


@pytest.mark.parametrize("seeds", chunks(SMALL[: len(SMALL) // 3]), ids=name)
@pytest.mark.parametrize("imbalance", [1, 3])
def test_sticky_stays_within_bounds_with_fewest_moves(seeds, imbalance):
    for seed in seeds:
        spec = twins.random_spec(seed)
        ranges, assignment = solve(spec, "sticky", imbalance=imbalance)
        bounds = {
            member: (max(0, floor(level) - imbalance), ceil(level) + imbalance)
            for member, level in twins.levels(spec).items()
        }
        for member, topics in assignment.items():
            load = sum(map(len, topics.values()))
            assert bounds[member][0] <= load <= bounds[member][1], (seed, member)
        fewest = twins.fewest_moves(spec, bounds)
        assert twins.moves(spec, assignment) == fewest == ranges.verdict.moved_minimum, seed


def test_sticky_without_imbalance_is_fair_before_it_is_sticky():
    """Loads of 1, 1, 1 and 3, 3, 2 are within the levels of 1 1/3 and 2 1/3, and not the fairest."""
    owned = {
        "m1": {"a": [1]}, "m2": {"a": [2]}, "m3": {"a": [3]},
        "m4": {"a": [0], "b": [0, 1]}, "m5": {"b": [2, 3, 4]}, "m6": {"b": [5, 6]},
    }  # fmt: skip
    members = {
        m: {"subscribed": ["a"] if m < "m4" else ["a", "b"], "owned": own}
        for m, own in owned.items()
    }
    spec = {"topics": {"a": 4, "b": 7}, "members": members}
    bounds = {m: (floor(level), ceil(level)) for m, level in twins.levels(spec).items()}
    assert twins.fewest_moves(spec, bounds) == 0
    ranges, assignment = solve(spec, "sticky", imbalance=0)
    assert ranges == solve(spec, "uniform")[0]
    assert sorted(ranges.loads().tolist()) == twins.fairest(spec)[0] == [1, 1, 2, 2, 2, 3]
    assert twins.moves(spec, assignment) == 1
    assert twins.moves(spec, solve(spec, "sticky", imbalance=1)[1]) == 0


@pytest.mark.parametrize("seeds", chunks(EQUAL), ids=name)
def test_sticky_is_fairest_among_the_fewest_moves_for_equal_subscriptions(seeds):
    """The loads are those of cutting the fullest and filling the emptiest, as docs/design/algorithm.md says."""
    for seed in seeds:
        spec = twins.random_spec(seed)
        some = sorted(spec["topics"])
        for fields in spec["members"].values():
            fields["subscribed"] = some
        ranges, _ = solve(spec, "sticky", imbalance=2)
        assert sorted(ranges.loads().tolist()) == twins.fairest_equal(spec, 2), seed


@pytest.mark.parametrize("seeds", chunks(LONG), ids=name)
def test_beyond_exact_edges_the_plan_is_valid_and_its_bound_holds(seeds):
    gap = total = 0
    for seed in seeds:
        spec = twins.random_spec(seed, members=14, topics=6, partitions=20)
        loads, moves = twins.fairest(spec)
        ranges, assignment = solve(spec, "uniform", exact_edges=0)
        assert sorted(ranges.loads().tolist()) == loads, seed
        made = twins.moves(spec, assignment)
        assert ranges.verdict.moved_minimum <= moves <= made, seed
        assert made == moves or not ranges.verdict.exact, seed
        solve(spec, "sticky", imbalance=2, exact_edges=0)
        gap, total = gap + made - moves, total + moves
    assert gap <= 0.1 * total


@pytest.mark.parametrize("seeds", chunks(range(50_000, 50_400, STEP)), ids=name)
@pytest.mark.parametrize("max_moves", [1, 3])
def test_max_moves_comes_to_an_end_and_always_places_orphans(seeds, max_moves):
    for seed in seeds:
        spec = twins.random_spec(seed)
        left = None
        for _ in range(200):
            ranges, assignment = solve(spec, "sticky", imbalance=1, max_moves=max_moves)
            made, least = twins.moves(spec, assignment), ranges.verdict.moved_minimum
            assert made == min(max_moves, least), seed
            assert ranges.partial == (made < least), seed
            assert left is None or least <= left, seed
            left = least - made
            for member, fields in spec["members"].items():
                fields["owned"] = assignment[member]
            if not ranges.partial:
                break
        assert left == 0, seed
        assert solve(spec, "sticky", imbalance=1, max_moves=max_moves)[1] == assignment, seed
