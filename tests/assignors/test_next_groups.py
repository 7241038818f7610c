"""Weighted groups side by side on the next night have the rows that they get alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import GroupSpec, SpecError, get_assignor, quality
from assignors.groups.assign_groups import assign_groups
from assignors.groups.group_set import GroupSet
from assignors.groups.next_groups import assign_next
from assignors.weighted.exchange import _find_move, _find_swap
from assignors.weighted.levels import levels_of
from assignors.weighted.placement import Placement
from assignors.weighted.problem import pose_problem
from tests.assignors.weighted_twins import random_spec
from tests.support.longer import EVERY

CAPACITIES = ([1.0], [1.0, 2.0, 4.0], [0.1, 7.0], [1.0, 300.0])
OPTIONS = (
    {}, {"tolerance": "10%"}, {"tolerance": "5%", "improvement": "1%"}, {"improvement": "0%"},
    {"max_moves": 3}, {"rack": "ignore"},
)  # fmt: skip


def tables_of(random, groups, most):
    """Return members, topics and weights; capacities differ, and weights by up to much."""
    members, topics, weights = [], [], []
    for at in range(groups):
        group, kinds = {"group_id": f"g{at:02}"}, CAPACITIES[int(random.integers(4))]
        members += [
            {**group, "member_id": f"m{one}", "capacity": random.choice(kinds),
             "subscribed": ["a", "b"]}
            for one in range(int(random.integers(2, 40)))
        ]  # fmt: skip
        sigma, whole = random.choice([0, 0.5, 1, 3]), random.random() < 0.2
        for topic, size in zip("ab", random.integers(1, most, 2).tolist(), strict=True):
            topics.append({**group, "topic": topic, "partitions": size})
            for partition, weight in enumerate(random.lognormal(3, sigma, size).tolist()):
                found = float(max(round(weight), 0)) if whole else weight
                weights.append({**group, "topic": topic, "partition": partition, "weight": found})
    return tuple(map(pa.Table.from_pylist, (members, topics, weights)))


def one_night(seed, share):
    """Return groups in which some members have left, and some weights are others."""
    random = np.random.default_rng(seed)
    members, topics, weights = tables_of(random, 12, [60, 60, 300, 900][seed % 4])
    assignor = get_assignor("weighted", **OPTIONS[seed % len(OPTIONS)])
    first = GroupSet.from_arrow(members, topics, partitions=weights)
    rows = assign_groups(first, get_assignor("weighted")).rows
    stays = random.random(len(members)) >= share
    column = members["member_id"]
    stays |= np.asarray(pc.is_in(column, value_set=pa.array(["m0", "m1"])))
    drift = np.where(random.random(len(weights)) < share, random.uniform(0.5, 2, len(weights)), 1.0)
    changed = pa.array(np.asarray(weights["weight"]) * drift)
    weights = weights.set_column(weights.schema.get_field_index("weight"), "weight", changed)
    left = members.filter(pa.array(stays))
    return GroupSet.from_arrow(left, topics, rows, partitions=weights), assignor


@given(seed=st.integers(0, 2**32), share=st.sampled_from([0.0, 0.02, 0.1, 0.5]))
@settings(max_examples=200 if EVERY else 10, deadline=None)
def test_the_next_night_has_the_rows_of_each_alone(seed, share):
    groups, assignor = one_night(seed, share)
    done = assign_groups(groups, assignor)
    names = done.rows.column_names[1:]
    for at, row in enumerate(done.summary.to_pylist()):
        group = groups.group(at)
        ranges = assignor.assign(group)
        own = done.rows.filter(pc.equal(done.rows["group_id"], row["group_id"]))
        assert own.select(names).to_pylist() == ranges.to_arrow().select(names).to_pylist()
        report = quality.report(group, ranges)
        proof = report.certificate
        for name in ("makespan", "lower_bound", "term", "moved_weight", "moved_weight_bound",
                     "distant_before", "distant_after", "weights_known"):  # fmt: skip
            assert row[name] == getattr(proof, name), name
        assert row["moved"] == report.moved
        assert row["moved_minimum"] == ranges.verdict.moved_minimum
        assert (row["partial"], row["problem"]) == (ranges.partial, None)


@pytest.mark.parametrize(("seed", "share", "least"), [(6, 0.0, 9), (6, 0.03, 6)])
def test_most_groups_are_solved_side_by_side(seed, share, least):
    """Without leavers they stay as they are; what leavers had is placed in all of them at once."""
    groups, assignor = one_night(seed, share)
    rows = assign_next(groups, assignor, np.arange(len(groups)))
    assert len(rows.places) >= least


def test_groups_with_a_budget_are_solved_alone():
    groups, assignor = one_night(4, 0.05)
    assert assignor.max_moves == 3
    assert not len(assign_next(groups, assignor, np.arange(len(groups))).places)


def level(problem, load, member):
    return -(-(int(load) << 20) // int(problem.capacity[member]))


def find_best_swap(problem, placed, own, full):
    """Try all pairs; among equals it is the first unit of the fullest, then the first other."""
    best = (None, level(problem, placed.load[full], full))
    for unit in own.tolist():
        for other, whose in enumerate(placed.owner.tolist()):
            if whose == full or problem.apart[other] >= 0:
                continue
            more = problem.weight[unit] - problem.weight[other]
            extra = problem.count[unit] - problem.count[other]
            fits = placed.used[whose] + extra <= problem.most[whose]
            fits &= placed.used[full] - extra <= problem.most[full]
            pairs = np.array([unit, other]), np.array([whose, full])
            if not problem.admits(*pairs).all() or (problem.limited and not fits):
                continue
            there = level(problem, placed.load[whose] + more, whose)
            after = max(there, level(problem, placed.load[full] - more, full))
            if after < best[1]:
                best = ((unit, other), after)
    return best


def find_best_move(problem, placed, own, full):
    """Try all pairs; among equals it is the first unit of the fullest, then the first member."""
    best = (None, level(problem, placed.load[full], full))
    for unit in own.tolist():
        for member in range(problem.member_count):
            used = placed.used[member] + problem.count[unit]
            fits = not problem.limited or used <= problem.most[member]
            allowed = problem.admits(np.array([unit]), np.array([member])).all()
            if member == full or not allowed or not fits:
                continue
            weight = problem.weight[unit]
            there = level(problem, placed.load[member] + weight, member)
            after = max(there, level(problem, placed.load[full] - weight, full))
            if after < best[1]:
                best = ((unit, member), after)
    return best


@given(seed=st.integers(0, 2**32), plain=st.booleans())
@settings(max_examples=500 if EVERY else 60, deadline=None)
def test_the_best_exchange_is_found_by_looking_at_few(seed, plain):
    spec = random_spec(seed, rules=not plain, racks=not plain, members=7, topics=3, partitions=30)
    if plain:
        for fields in spec["members"].values():
            fields["subscribed"] = sorted(spec["topics"])
    group = GroupSpec.from_dict(spec)
    try:
        problem = pose_problem(group, group.loads, "prefer", soft=False)
    except SpecError:
        return
    if not len(problem.weight):
        return
    owner = np.random.default_rng(seed).integers(0, problem.member_count, len(problem.weight))
    placed = Placement.of(problem, owner)
    levels = levels_of(placed.load, problem.capacity)
    full = int(np.argmax(levels))
    own = np.flatnonzero((owner == full) & (problem.apart < 0))
    if not len(own):
        return
    for find, twin in ((_find_move, find_best_move), (_find_swap, find_best_swap)):
        wanted, gain = twin(problem, placed, own, full)
        found = find(problem, placed, own, int(levels[full]), free=problem.is_free)
        assert found == (wanted, gain) if wanted else found[1] > gain
