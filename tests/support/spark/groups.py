"""Groups for the tests of the Spark engine, and a look at what Spark did with them.

A tiny group costs Spark as much as a large one, so many random groups are put into one, side by
side: their members and topics have nothing to do with each other.
"""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa

from assignors import GroupSpec, PartitionRanges, get_assignor, quality
from spark_jobs.assignors.frame_assignment import FrameAssignment
from spark_jobs.session.schemas import ASSIGNMENT
from tests.support import twins

COLUMNS = ["member_id", "topic", "first_partition", "partition_count"]
ORDER = [(name, "ascending") for name in COLUMNS]

CORNERS = {
    "one owns everything": {
        "topics": {"a": 9, "b": 4},
        "members": {
            "m1": {"subscribed": ["a", "b"], "owned": {"a": list(range(9)), "b": list(range(4))}},
            "m2": {"subscribed": ["a", "b"]},
            "m3": {"subscribed": ["a"]},
        },
    },
    "two claim the same": {
        "topics": {"a": 12},
        "members": {
            "m1": {"subscribed": ["a"], "owned": {"a": [0, 1, 2, 3, 4, 5]}},
            "m2": {"subscribed": ["a"], "owned": {"a": [3, 4, 5, 6, 7]}},
            "m3": {"subscribed": ["a"], "owned": {"a": [2, 3, 7, 11]}, "instance_id": "first"},
        },
    },
    "gaps, and a topic without partitions": {
        "topics": {"a": 10, "none": 0},
        "members": {
            "m1": {"subscribed": ["a", "none"], "owned": {"a": [1, 4]}},
            "m2": {"subscribed": ["a", "none"], "owned": {"a": [6]}},
        },
    },
    "owned, but no longer subscribed": {
        "topics": {"a": 4, "b": 4},
        "members": {
            "m1": {"subscribed": ["a"], "owned": {"b": [0, 1], "a": [0]}},
            "m2": {"subscribed": ["b"], "owned": {"a": [2, 3], "b": [2]}},
        },
    },
    "no subscriptions, no subscribers": {
        "topics": {"a": 3, "nobody": 5},
        "members": {
            "m1": {"subscribed": [], "owned": {"a": [0], "nobody": [1]}},
            "m2": {"subscribed": ["a"]},
        },
    },
}


def side_by_side(specs: dict[str, twins.Spec]) -> twins.Spec:
    """Put groups into one; every name gets its group's name in front."""
    out: twins.Spec = {"topics": {}, "members": {}}
    for label, spec in specs.items():
        out["topics"] |= {f"{label}/{topic}": count for topic, count in spec["topics"].items()}
        for member, fields in spec["members"].items():
            instance, owned = fields.get("instance_id"), fields.get("owned") or {}
            out["members"][f"{label}/{member}"] = {
                "subscribed": [f"{label}/{topic}" for topic in fields["subscribed"]],
                "owned": {f"{label}/{topic}": list(ps) for topic, ps in owned.items()},
                "instance_id": instance and f"{instance}/{label}",
            }
    return out


def mixed(seeds: range) -> twins.Spec:
    """All corner cases and a random group for each seed."""
    drawn = {f"g{seed}": twins.random_spec(seed) for seed in seeds}
    return side_by_side(CORNERS | drawn)


def crowd(seed: int, *, members: int, classes: int) -> twins.Spec:
    """Many members in a few classes, after churn: few kinds of anything, many rows."""
    draw = random.Random(seed)
    names = [f"t{n:02d}" for n in range(10)]
    spec: twins.Spec = {"topics": {t: draw.randint(members // 7, members // 2) for t in names}}
    lists = [names[3 * c : 3 * c + 6] for c in range(classes)]
    fields = [{"subscribed": lists[n % classes]} for n in range(members)]
    spec["members"] = {f"m{draw.randrange(10**6):06d}-{n}": f for n, f in enumerate(fields)}
    before = get_assignor("uniform").assign(GroupSpec.from_dict(spec)).to_dict()
    for member in draw.sample(sorted(before), members // 20):
        del spec["members"][member]
    for member, fields in spec["members"].items():
        fields["owned"] = before[member]
    for n in range(members // 5):
        spec["members"][f"new-{n}"] = {"subscribed": lists[n % classes]}
    spec["topics"]["t03"] += members // 40
    return spec


def tables(spec: twins.Spec, seed: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return the tables of docs/reference/formats.md#tables: claims cut at random, owners that left, rows shuffled."""
    draw = random.Random(seed)
    claims = [
        (member, topic, *piece)
        for member, fields in spec["members"].items()
        for topic, partitions in (fields.get("owned") or {}).items()
        for piece in _cut(partitions, draw)
    ]
    known = next(iter(spec["topics"]), "gone")
    claims += [("left", known, 0, 7), ("left", "no such topic", 5, 9)]
    members = [(m, f.get("instance_id"), f["subscribed"]) for m, f in spec["members"].items()]
    topics = list(spec["topics"].items())
    for rows in (claims, members, topics):
        draw.shuffle(rows)
    text, number = pa.string(), pa.int64()
    return (
        _table(members, member_id=text, instance_id=text, subscribed=pa.list_(text)),
        _table(topics, topic=text, partitions=number),
        _table(claims, **dict(zip(COLUMNS, (text, text, number, number), strict=True))),
    )


def _cut(partitions: list[int], draw: random.Random) -> list[tuple[int, int]]:
    """Write partitions as ranges, some of which touch."""
    out: list[tuple[int, int]] = []
    for partition in sorted(partitions):
        first, count = out[-1] if out else (-1, 0)
        if first + count == partition and draw.random() < 0.8:
            out[-1] = (first, count + 1)
        else:
            out.append((partition, 1))
    return out


def _table(rows: list[tuple], **columns: pa.DataType) -> pa.Table:
    names = list(columns)
    values = zip(*rows, strict=True) if rows else [[] for _ in names]
    return pa.table([list(column) for column in values], schema=pa.schema(list(columns.items())))


def same_as_numpy(
    assigned: FrameAssignment,
    rows: pa.Table,
    given: tuple[pa.Table, pa.Table, pa.Table | None],
    assignor: str,
    options: dict,
) -> PartitionRanges:
    """Compare rows, verdict, loads and totals with what `assignors` says of the same tables.

    Parameters
    ----------
    rows
        Those that `assigned` has, read.
    """
    group = GroupSpec.from_arrow(*given)
    ranges = get_assignor(assignor, **options).assign(group)
    assert assigned.rows.schema == ASSIGNMENT
    assert rows.sort_by(ORDER).to_pylist() == ranges.to_arrow().sort_by(ORDER).to_pylist()
    assert assigned.verdict == ranges.verdict
    totals = quality.report(group, ranges).totals()
    assert assigned.totals() == {name: totals[name] for name in assigned.totals()}
    loads = zip(group.member_class.tolist(), ranges.loads().tolist(), strict=True)
    counted = assigned.loads
    kinds = zip(counted.class_.tolist(), counted.load.tolist(), strict=True)
    counts = dict(zip(kinds, counted.members.tolist(), strict=True))
    assert {kind: n for kind, n in counts.items() if n} == Counter(loads)
    return ranges
