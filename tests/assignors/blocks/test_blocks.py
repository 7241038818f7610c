"""Groups in blocks: the rows, verdicts, loads and totals of the same group as a whole."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest

from assignors import GroupSpec, SpecError, get_assignor, quality
from assignors.blocks.deal_rows import SAMPLES, DealRows, find_blocks, find_edges
from assignors.blocks.line_blocks import Seams
from assignors.blocks.member_blocks import KnownGroup
from assignors.blocks.packets import CLAIMS, read_packets
from assignors.blocks.read_members import Labels, ReadMembers, raise_fault
from tests.assignors.blocks.engine import assign, divide, rows_of
from tests.support.longer import EVERY

COLUMNS = ["member_id", "topic", "first_partition", "partition_count"]
ORDER = [(name, "ascending") for name in COLUMNS]


def random_group(seed: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Classes that share no topic; claims of members that left, of topics no longer subscribed."""
    draw = random.Random(seed)
    classes = draw.choice([1, 1, 2, 4])
    lists = [[f"t{c}-{n}" for n in range(draw.randint(1, 4))] for c in range(classes)]
    most = draw.choice([3, 20, 200])
    topics = {topic: draw.randint(0, most) for names in lists for topic in names}
    topics[lists[0][0]] += 1  # others assign a group without partitions
    topics["nobody"] = 5
    of_member = {
        f"m{draw.randrange(10**6)}-{n}": draw.choice(lists) for n in range(draw.randint(1, 40))
    }
    gone = {f"gone{n}": draw.choice(lists) for n in range(draw.randint(0, 4))}
    everybody = sorted((of_member | gone).items())
    claims = []
    for topic, size in topics.items():
        at = 0
        while at < size:
            step = min(draw.choice([1, 1, 2, 7, 50]), size - at)
            takers = [who for who, names in everybody if topic in names] or [
                who for who, _ in everybody
            ]
            if draw.random() < 0.9:
                claims.append((draw.choice(takers[: draw.choice([1, 3, 99])]), topic, at, step))
            at += step
    draw.shuffle(claims)
    static = draw.choice([0, 0, 0.5, 1])
    rows = sorted(of_member.items())
    draw.shuffle(rows)
    text, number = pa.string(), pa.int64()
    return (
        pa.table({
            "member_id": pa.array([who for who, _ in rows], text),
            "instance_id": pa.array(
                [f"i{draw.randrange(99)}-{who}" if draw.random() < static else None for who, _ in rows],
                text,
            ),
            "subscribed": pa.array([names for _, names in rows], pa.list_(text)),
        }),
        pa.table({"topic": list(topics), "partitions": pa.array(topics.values(), number)}),
        pa.table(
            {name: pa.array([row[at] for row in claims], text if at < 2 else number)
             for at, name in enumerate(COLUMNS)}
        ),
    )  # fmt: skip


def compete(given, draw: random.Random):
    """Give members lists of topics that they share with others; claims stay as they are."""
    members, topics, owned = given
    names = topics["topic"].to_pylist()
    few = names[: draw.choice([2, 3, 6, 99])]
    lists = [
        sorted(draw.sample(few, draw.randint(1, len(few)))) for _ in range(draw.choice([2, 4, 9]))
    ]
    some = [draw.choice(lists) for _ in range(len(members))]
    return members.set_column(2, "subscribed", pa.array(some, pa.list_(pa.string()))), topics, owned


def claim_twice(given, draw: random.Random):
    """Let some members claim what others own."""
    members, topics, owned = given
    rows, taken = owned.to_pylist(), Counter()
    names, sizes = (
        members["member_id"].to_pylist(),
        dict(zip(*topics.to_pydict().values(), strict=True)),
    )
    mine = {name: [] for name in names}
    for row in rows:
        mine.setdefault(row["member_id"], []).append(row)
    for name in draw.sample(names, draw.randint(1, len(names))):
        topic = draw.choice(list(sizes))
        first = draw.randint(0, sizes[topic])
        count = min(draw.choice([1, 3, 50]), sizes[topic] - first)
        held = [row for row in mine[name] if row["topic"] == topic]
        if count and all(
            row["first_partition"] >= first + count
            or row["first_partition"] + row["partition_count"] <= first
            for row in held
        ):
            rows.append(dict(zip(COLUMNS, (name, topic, first, count), strict=True)))
            taken[name] += 1
    return members, topics, pa.Table.from_pylist(rows, owned.schema)


@pytest.mark.parametrize("seed", range(1_200 if EVERY else 120))
def test_blocks_are_assigned_as_the_whole_group(seed):
    """Members that compete, claim what is another's, may move few, or own in too many ways."""
    draw, given, ran = random.Random(seed), random_group(seed), []
    given = compete(given, draw) if seed % 3 else given
    given = claim_twice(given, draw) if seed % 5 == 1 else given
    options = {"imbalance": draw.choice([0, 0, 1, 3, "30%"])}
    if seed % 4 == 2:
        options["max_moves"] = draw.choice([0, 1, 5, 40])
    if seed % 7 == 3:
        options["exact_edges"] = draw.choice([0, 10, 40])
    found = assign(given, draw.choice([1, 2, 3, 7]), draw, ran, **options)
    same(given, found, get_assignor("sticky", long_ranges=0, **options))


@pytest.mark.parametrize("seed", range(400 if EVERY else 40))
def test_range_in_blocks_is_range(seed):
    draw, given = random.Random(seed), random_group(seed)
    given = compete(given, draw) if seed % 3 else given
    given = claim_twice(given, draw) if seed % 5 == 1 else given
    same(given, divide(given, draw.choice([1, 2, 3, 7]), draw, []), get_assignor("range"))


def same(given, found, assignor):
    group = GroupSpec.from_arrow(*given)
    ranges = assignor.assign(group)
    assert rows_of(found).sort_by(ORDER).equals(ranges.to_arrow().sort_by(ORDER))
    assert found.verdict == ranges.verdict
    report = quality.report(group, ranges)
    assert found.orphans == report.orphans
    if found.verdict.exact:
        assert found.moved == report.moved
    else:  # what classes give up as a whole may come back to who gave it
        assert found.moved >= report.moved
    loads = found.loads
    kinds = zip(loads.class_.tolist(), loads.load.tolist(), strict=True)
    counts = dict(zip(kinds, loads.members.tolist(), strict=True))
    expected = Counter(zip(group.member_class.tolist(), ranges.loads().tolist(), strict=True))
    assert {kind: n for kind, n in counts.items() if n} == expected


def changed(given, rows):
    claims = given[2].to_pylist()
    return given[0], given[1], pa.Table.from_pylist(rows(claims), given[2].schema)


WRONG = {
    "owned twice, by one": lambda rows: [*rows, rows[0]],
    "outside": lambda rows: [rows[0] | {"first_partition": 9}],
    "no partition": lambda rows: [rows[0] | {"partition_count": 0}],
    "before the first": lambda rows: [rows[0] | {"first_partition": -1}],
    "no topic": lambda rows: [rows[0] | {"topic": None}],
    "no owner": lambda rows: [rows[0] | {"member_id": None}],
    "unknown topic": lambda rows: [rows[0] | {"topic": "other"}],
}


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(name, blocks):
    given = (
        pa.table({"member_id": ["m-a", "m-b"], "instance_id": pa.nulls(2, pa.string()),
                  "subscribed": [["t"], ["t"]]}),
        pa.table({"topic": ["t"], "partitions": [10]}),
        pa.table({"member_id": ["m-a"], "topic": ["t"], "first_partition": [2],
                  "partition_count": [3]}),
    )  # fmt: skip
    draw = random.Random(1)
    assert len(rows_of(assign(given, blocks, draw, []))) > 1
    wrong = changed(given, WRONG[name])
    for run in (assign, divide):
        with pytest.raises(SpecError, match=r"owned: |owns partition"):
            run(wrong, blocks, draw, [])


def test_pieces_are_joined_over_several_stretches():
    """Of 5 stretches the second and third are free throughout; the fourth begins free."""
    seams = Seams.of(
        np.array([0, 10, 10, 4, 2]),
        np.array([3, 10, 10, 0, 0]),
        np.array([0, 1, 1, 0, 0]),
        np.ones(4, dtype=np.bool_),
    )
    assert seams.begun.tolist() == [False, True, True, True, False]
    assert seams.last.tolist() == [27, 0, 0, 0, 0]


def test_labels_that_stand_for_two_lists_or_for_none():
    assert Labels.of(np.array([3, -1, 3]), np.array([0, 1, 2])) is None
    labels = Labels.of(np.array([3, -(2**63), 2**63 - 1]), np.array([0, 1, 2]))
    assert labels.find(np.array([3, -(2**63), 2**63 - 1, 4, 2])).tolist() == [0, 1, 2, -1, -1]
    assert Labels.numbers(0).find(np.array([0])).tolist() == [-1]


def test_a_member_with_a_list_that_no_one_had_before_is_refused():
    one, topics = np.ones(1, dtype=np.int64), pa.array(["a"])
    known = KnownGroup.of(topics, one, one, np.array([0, 1]), np.zeros(1, dtype=np.int32))
    for label, refused in ((0, False), (5, True)):
        rows = pa.record_batch(
            [pa.array(["m"]), pa.nulls(1, pa.string()), pa.array([label])],
            ["member_id", "instance_id", "label"],
        )
        dealt = DealRows(pa.array([], pa.string()), np.zeros(1, dtype=np.int32)).run([rows])
        packets = list(read_packets(ReadMembers(known, Labels.numbers(1)).run(dealt)))
        with pytest.raises(SpecError, match="gives other rows") if refused else nullcontext():
            raise_fault(packets)


def test_the_first_member_that_is_wrong_is_named_in_whichever_block_it_is():
    """Rows that say their blocks are in no order; a block has members of all letters."""
    one, topics = np.ones(1, dtype=np.int64), pa.array(["a"])
    known = KnownGroup.of(topics, one, one, np.array([0, 1]), np.zeros(1, dtype=np.int32))
    members = pa.record_batch(
        {
            "member_id": pa.array(["c", "b", "c", "b"]),
            "instance_id": pa.nulls(4, pa.string()),
            "label": pa.array([0, 0, 0, 0]),
            "block": pa.array([0, 1, 0, 1]),
        }
    )
    alone = members.slice(0, 2)

    def claims(first, count, topic="a"):
        return pa.record_batch(
            {
                "member_id": pa.array(["c", "b"]),
                "topic": pa.array([topic] * 2),
                "first_partition": pa.array([first] * 2, pa.int64()),
                "partition_count": pa.array([count] * 2, pa.int64()),
                "block": pa.array([0, 1]),
            }
        )

    wrong = {
        "member 'b' appears twice": ([members], []),
        "member 'b', topic 'a' has first_partition -1": ([alone], [claims(-1, 1)]),
        "member 'b' owns partitions of topic 'x'": ([alone], [claims(0, 1, "x")]),
        "member 'b' owns partition 1 of topic 'a'": ([alone], [claims(1, 1)]),
        "member 'b' owns partition 0 of topic 'a' twice": ([alone], [claims(0, 1)] * 2),
    }
    for message, (rows, claimed) in wrong.items():
        deal = DealRows(None, np.zeros(2, dtype=np.int32))
        dealt = [*deal.run(rows), *deal.run(claimed)]
        packets = list(read_packets(ReadMembers(known, Labels.numbers(1)).run(dealt)))
        with pytest.raises(SpecError, match=message):
            raise_fault(packets)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 100])
def test_rows_are_dealt_to_the_blocks_between_edges(count):
    """As by comparing each id with each edge; in any pieces, null with the first."""
    draw = random.Random(count)
    names = [
        draw.choice(["", "a", "m", "\u00e4", "\U0001f600"]) + str(draw.randrange(50))
        for _ in range(300)
    ]
    edges = sorted({*draw.sample(names, count)}, key=str.encode)
    ids = pa.array([*names, None], pa.string())
    expected = [sum(edge.encode() <= name.encode() for edge in edges) for name in names] + [0]
    assert find_blocks(ids, pa.array(edges, pa.string())).tolist() == expected
    rows = pa.table(
        {
            "member_id": ids,
            "topic": ids,
            "first_partition": pa.array(range(301)),
            "partition_count": pa.array(range(301)),
        }
    )
    seats = np.arange(len(edges) + 1, dtype=np.int32)[::-1]
    dealt = list(
        DealRows(pa.array(edges, pa.string()), seats).run(rows.to_batches(max_chunksize=7))
    )
    assert all(batch["seat"][0].as_py() == seats[batch["block"][0].as_py()] for batch in dealt)
    found = {}
    for packet in read_packets(dealt):
        assert packet.kind == CLAIMS
        found |= dict.fromkeys(packet["first_partition"].tolist(), packet.block)
    assert [found[at] for at in range(301)] == expected


@pytest.mark.parametrize("blocks", [1, 2, 7, 50])
def test_edges_cut_what_samples_stand_for_into_equal_blocks(blocks):
    draw = random.Random(blocks)
    samples = pa.array([f"{draw.random():.6f}" for _ in range(SAMPLES * blocks)])
    edges = find_edges(samples, np.ones(len(samples)), blocks)
    assert len(edges) == blocks - 1
    sizes = np.bincount(find_blocks(samples, edges), minlength=blocks)
    assert sizes.max() <= SAMPLES + 1
    again = find_edges(pa.array(["a"] * 9), np.ones(9), blocks)
    assert len(again) == min(blocks - 1, 1)
    assert len(find_edges(pa.array([], pa.string()), [], blocks)) == 0
