"""Weighted groups side by side have the rows and the certificates that they get alone."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assignors import SpecError, get_assignor, quality
from assignors.groups.assign_groups import assign_groups
from assignors.groups.fresh_groups import assign_fresh
from assignors.groups.group_set import GroupSet
from assignors.weighted.fill import fill_members
from assignors.weighted.fill_many import fill_many

CAPACITIES = ([1.0], [1.0, 2.0, 4.0], [0.1, 7.0], [1.0, 3000.0])


@st.composite
def rows_to_fill(draw):
    """Rows of weights, descending, and of capacities; each of its own length."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        sigma, scale = (
            draw(st.sampled_from([0, 0.1, 1, 3])),
            draw(st.sampled_from([300, 1e6, 2**41])),
        )
        weight = random.lognormal(0, sigma, draw(st.integers(0, 120)))
        weight = np.maximum(np.rint(weight * scale / weight.sum()), 1).astype(np.int64)
        capacity = random.choice(draw(st.sampled_from([[1], [1, 2, 4], [2**17, 2**20]])), (
            draw(st.integers(2, 12))
        ))  # fmt: skip
        rows.append((-np.sort(-weight), capacity))
    return rows


def pad(rows):
    out = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for at, row in enumerate(rows):
        out[at, : len(row)] = row
    return out, np.array(list(map(len, rows)))


@settings(deadline=None)
@given(rows_to_fill())
def test_many_are_filled_as_one(rows):
    (weight, units), (capacity, members) = (pad(list(one)) for one in zip(*rows, strict=True))
    chosen, load = fill_many(weight, units, capacity, members)
    for at, (own, sizes) in enumerate(rows):
        wanted = fill_members(own, np.zeros(len(sizes), dtype=np.int64), sizes)
        assert chosen[at, : len(own)].tolist() == wanted.tolist()
        sums = np.bincount(wanted, weights=own, minlength=len(sizes))
        assert load[at, : len(sizes)].tolist() == sums.tolist()


OWNED = pa.schema(
    [
        ("group_id", pa.string()), ("member_id", pa.string()), ("topic", pa.string()),
        ("first_partition", pa.int32()), ("partition_count", pa.int32()),
    ]
)  # fmt: skip
WEIGHTS = pa.schema(
    [
        ("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int64()),
        ("weight", pa.float64()), ("racks", pa.list_(pa.string())),
    ]
)  # fmt: skip
RULES = pa.schema([(name, pa.string()) for name in ("group_id", "kind", "selector")])


def tables_of(random, groups, partitions, racks=0.0, holes=0.0):
    """Groups of all sizes; some have what keeps them from being assigned side by side."""
    members, topics, weights, owned, rules = [], [], [], [], []

    def by_chance(share):
        return random.random() < share

    for at in range(groups):
        group = {"group_id": f"g{at}"}
        kinds, alike = CAPACITIES[int(random.integers(len(CAPACITIES)))], by_chance(0.8)
        members += [
            {
                **group, "member_id": f"m{one}", "capacity": random.choice(kinds),
                "subscribed": ["a", "b"] if alike else ["a", "b"][one % 2 :],
                "state": "draining" if one and by_chance(0.03) else "active",
            }
            for one in range(int(random.integers(1, 9)))
        ]  # fmt: skip
        sizes, sigma = random.integers(0, partitions, 2).tolist(), random.choice([0, 0.5, 2])
        idle = random.choice([0, 0, 0.3, 0.95])
        for topic, size in zip("ab", sizes, strict=True):
            topics.append({**group, "topic": topic, "partitions": size})
            weights += [
                {
                    **group, "topic": topic, "partition": partition,
                    "weight": None if by_chance(holes)
                    else float(random.lognormal(3, sigma)) * (not by_chance(idle)),
                    "racks": ["r1"] if by_chance(racks) else None,
                }
                for partition in range(size)
            ]  # fmt: skip
        if by_chance(0.1) and sizes[0]:
            one = {"topic": "a", "first_partition": 0, "partition_count": 1}
            owned.append({**group, "member_id": "m0", **one})
        if by_chance(0.1):
            rules.append({**group, "kind": "drain", "selector": "m1"})
    return (
        pa.Table.from_pylist(members),
        pa.Table.from_pylist(topics),
        pa.Table.from_pylist(owned, OWNED),
        pa.Table.from_pylist(weights, WEIGHTS),
        pa.Table.from_pylist(rules, RULES),
    )


OPTIONS = (
    {}, {"tolerance": "10%"}, {"max_moves": 0, "rack": "ignore"}, {"improvement": "0%"},
    {"least_share": "90%"},
)  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_groups_side_by_side_have_the_rows_of_each_alone(seed):
    random = np.random.default_rng(seed)
    chances = {"racks": 0.01 * (seed % 4 == 3), "holes": 0.01 * (seed % 4 == 2)}
    tables = tables_of(random, 24, 700 if seed < 2 else 60, **chances)
    members, topics, owned, weights, rules = tables
    if seed % 4 == 1:
        weights = weights.drop_columns(["racks"])
    groups = GroupSet.from_arrow(members, topics, owned, partitions=weights, constraints=rules)
    assignor = get_assignor("weighted", **OPTIONS[seed % len(OPTIONS)])
    fresh = assign_fresh(groups, assignor)
    assert len(fresh.places) > 2 or chances["racks"]
    done = assign_groups(groups, assignor)
    names = done.rows.column_names[1:]
    for at, row in enumerate(done.summary.to_pylist()):
        group = groups.group(at)
        ranges = assignor.assign(group)
        own = done.rows.filter(pa.compute.equal(done.rows["group_id"], row["group_id"]))
        wanted = ranges.to_arrow().select(names)
        assert own.select(names).to_pylist() == wanted.to_pylist(), row["group_id"]
        proof = quality.report(group, ranges).certificate
        row_values = [row[name] for name in ("makespan", "lower_bound", "term", "weights_known")]
        assert row_values == [proof.makespan, proof.lower_bound, proof.term, proof.weights_known]
        assert (row["moved_weight"], row["problem"]) == (proof.moved_weight, None)


def test_a_bad_group_among_good_ones_is_named():
    members = pa.table(
        {
            "group_id": ["a", "a", "b", "b"], "member_id": ["m1", "m2"] * 2,
            "subscribed": [["t"]] * 4, "capacity": [1.0, 2.0, 1.0, 5000.0],
        }
    )  # fmt: skip
    groups = GroupSet.from_arrow(members, pa.table({"topic": ["t"], "partitions": [9]}))
    with pytest.raises(
        SpecError, match=r"group 'b': member 'm1' has capacity 1\.0 and another 5000"
    ):
        assign_groups(groups, get_assignor("weighted"))
