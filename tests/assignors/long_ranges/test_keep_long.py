"""What keeps ranges long: as an obvious twin does it, as fair, and with no move more."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from assignors.group_spec import GroupSpec
from assignors.long_ranges import keep_long
from assignors.quality import count_moved, find_problems
from assignors.sticky import StickyAssignor
from assignors.uniform import UniformAssignor
from tests.support.longer import EVERY

SEEDS = range(3_000 if EVERY else 100)
LONG, SHORT = {"long_ranges": 1 << 14}, {"long_ranges": 0}

# The obvious twin --------------------------------------------------------------------------------


def slow_give(ranges, certain, may, more, lends, lent):
    """Return the places that go by windows, and what each giver gives besides."""
    certain, may, lends, left = list(certain), list(may), list(lends), more
    gone, ended, freely = set(), {}, set()  # ended: whether it is the first end, and the range
    amount = sum(certain) + more
    for _ in range(keep_long.WINDOW_ROUNDS):
        if not amount:
            break
        ours = [one for one in ranges if one[1] not in gone]
        cells = list_cells(ours, certain, may, left, ended)
        if lent:
            idle = [not certain[one] and not (may[one] and left) for one in range(len(may))]
            more_ranges = [r for r in ours if idle[r[0]] and lends[r[0]] and r[2] == 1]
            cells |= {
                s: (s + 1, m, t, True, (s, 1)) for m, s, _, t in more_ranges if m not in ended
            }
        taken = choose_cells(cells, certain, (may, left), (lends, lent), amount)
        if not taken:
            break
        for at in taken:
            end, whose, _, whole, (start, count) = cells[at]
            gone |= set(range(at, end))
            amount -= end - at
            if certain[whose]:
                certain[whose] -= end - at
            else:
                is_free = may[whose] and left > 0
                left, lent = left - is_free, lent - (not is_free)
                freely |= {whose} if is_free else set()
                may[whose] = lends[whose] = False
            if not whole:
                ended[whose] = at == start, start, count
    others = [one for one in range(len(certain)) if may_at_first(may, freely, one)]
    for one in others[len(others) - left :]:
        certain[one] += 1
    for whose, (is_first, start, count) in ended.items():
        size = min(certain[whose], count - 1)
        certain[whose] -= size
        at = start + 1 if is_first else start + count - 1 - size
        gone |= set(range(at, at + size))
    return gone, certain


def may_at_first(may, freely, one):
    return may[one] and one not in freely


def list_cells(ranges, certain, may, more, ended):
    """Return by where a cell begins: end, whose, topic, whether whole, range."""
    cells = {}
    for whose, start, count, topic in ranges:
        if whose not in ended and (certain[whose] or (may[whose] and more)):
            one = (whose, topic, count <= max(certain[whose], 1), (start, count))
            if one[2]:
                cells[start] = (start + count, *one)
            else:
                cells[start] = (start + 1, *one)
                cells[start + count - 1] = (start + count, *one)
    return cells


def choose_cells(cells, certain, free, lenders, amount):
    """Return which cells one round gives."""
    taken = []
    for window in pick_windows(cells, certain, free, lenders, amount):
        if sum(weigh_cell(cells[at][3], certain[cells[at][1]]) for at in window) >= 3:
            taken += window
    return taken


def pick_windows(cells, certain, free, lenders, amount):
    """Return the windows that all their owners pick, as long as enough may go freely or be lent."""
    (may, more), (lends, lent) = free, lenders

    def fits(owners):
        idle = [one for one in owners if not certain[one]]
        return (
            len(set(owners)) == len(owners) <= amount
            and len(idle) <= more + lent
            and sum(not may[one] for one in idle) <= lent
            and sum(may[one] and not lends[one] for one in idle) <= more
        )

    windows = []
    for start in sorted(cells):
        window, at = [], start
        while at in cells and cells[at][2] == cells[start][2]:
            if not fits([cells[seen][1] for seen in [*window, at]]):
                break
            window.append(at)
            at = cells[at][0]
        windows.append(window)
    windows = [one for one in windows if not any(set(one) < set(other) for other in windows)]
    windows.sort(key=lambda one: (-len(one), -sum(cells[at][3] for at in (one[0], one[-1])), one))
    best = {}
    for window in windows:
        for at in window:
            best.setdefault(cells[at][1], window)
    picked, freely, borrowed, size = [], 0, 0, 0
    for window in windows:
        if any(best[cells[at][1]] != window for at in window):
            continue
        good = True
        for at in window:
            owner = cells[at][1]
            size += cells[at][0] - at
            good &= not lent or size <= amount
            if not certain[owner]:
                freely += may[owner]
                if not may[owner] or freely > more:
                    borrowed += 1
                    good &= lends[owner] and borrowed <= lent
        if good:
            picked.append(window)
    return picked


def weigh_cell(whole, certain):
    return 3 if whole and not certain else 1 + (whole or certain > 1)


def slow_take(ranges, pieces, takers):
    """Return who got which place, and the places that are left."""
    owner = {p: (m, t) for m, s, c, t in ranges for p in range(s, s + c)}
    long = {m for m, _, c, _ in ranges if c > 1}
    ones = {s for m, s, c, _ in ranges if c == 1 and m in long}  # their owners only close gaps
    barred = set()
    for number, (start, count, _) in enumerate(pieces):
        beside = start - 1, start + count
        if owner.get(beside[0]) != owner.get(beside[1]):
            barred |= {(number, side) for side, at in enumerate(beside) if at in ones}
    pieces = [(list(range(s, s + c)), t) for s, c, t in pieces]
    got = []
    for _ in range(keep_long.ROUNDS):
        deals = make_deals(owner, pieces, takers, barred)
        for member, number, side, size in deals:
            places, topic = pieces[number]
            cut = places[len(places) - size :] if side else places[:size]
            got += [(member, place) for place in cut]
            owner |= dict.fromkeys(cut, (member, topic))
            takers.shares[topic] -= size
            if takers.want[member]:
                takers.want[member] -= size
            else:
                takers.may[member] = False
                takers.more[0] -= 1
            pieces[number] = [one for one in places if one not in cut], topic
        if not deals:
            break
    return got, {place for places, _ in pieces for place in places}


def make_deals(owner, pieces, takers, barred):
    offers = []
    for number, (places, topic) in enumerate(pieces):
        if not places:
            continue
        ends = [owner.get(at, (-1, -1)) for at in (places[0] - 1, places[-1] + 1)]
        for side, (member, of) in enumerate(ends):
            free = member >= 0 and takers.may[member] and takers.more[0] > 0
            size = takers.want[member] or int(free) if member >= 0 and of == topic else 0
            size = min(size, len(places), takers.shares[topic])
            kind = 2 if size < len(places) else int(ends[0] != ends[1])
            if size and (number, side) not in barred:
                offers.append((kind, len(places), places[0], member, side, number, size))
    best = {}
    for one in sorted(offers):
        best.setdefault(one[3], one)
    room = {number: len(places) for number, (places, _) in enumerate(pieces)}
    share, more, deals = list(takers.shares), int(takers.more[0]), []
    for *_, member, side, number, wanted in sorted(best.values()):
        fits, topic = min(wanted, room[number]), pieces[number][1]
        room[number] -= fits
        size = min(fits, share[topic])
        share[topic] -= size
        if size and (takers.want[member] or more):
            more -= not takers.want[member]
            deals.append((member, number, side, size))
    return deals


def slow_complete(ranges, takers, scattered):
    """Return who completes windows, in the order in which they are found."""
    found, left = [], min(scattered, int(takers.more[0]))
    able = {member for member in range(12) if not takers.want[member]}
    for _ in range(keep_long.WINDOW_ROUNDS):
        ours = [one for one in ranges if one[0] in able]
        cells = list_cells(ours, [1] * 12, takers.may, left, {}) if left else {}
        free, none = (takers.may, left), ([False] * 12, 0)
        for window in pick_windows(cells, ~takers.may, free, none, 99):
            if len(window) >= 3:
                owners = {cells[at][1] for at in window}
                able -= owners
                found += [one for one in owners if takers.may[one]]
        left = min(scattered, int(takers.more[0])) - len(found)
    return found


def random_line(rng, members=12, topics=3):
    """Return ranges and free pieces of a line, as rows."""
    ranges, pieces, place = [], [], 0
    for topic in range(topics):
        last = None
        for _ in range(rng.randrange(1, 30)):
            count = rng.choice([1, 1, 1, 2, 3, 5])
            if rng.random() < 0.3:
                if pieces and last is None and pieces[-1][2] == topic:
                    continue
                pieces.append((place, count, topic))
                last = None
            else:
                member = rng.randrange(members)
                if member == last:
                    continue
                ranges.append((member, place, count, topic))
                last = member
            place += count
    return ranges, pieces


def as_ranges(rows):
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    return keep_long.LineRanges(*columns)


def test_windows_are_given_as_the_twin_gives_them():
    for seed in SEEDS:
        check_windows(seed)


def check_windows(seed):
    rng = random.Random(seed)
    ranges, _ = random_line(rng)
    load = np.zeros(12, dtype=np.int64)
    for whose, _, count, _ in ranges:
        load[whose] += count
    may = np.array([rng.random() < 0.7 for _ in load]) & (load > 0)
    certain = np.array([rng.randrange(min(one, rng.choice([1, 3, 9])) + 1) for one in load - may])
    more = rng.randrange(int(may.sum()) + 1)
    one_class = np.zeros(12, dtype=np.int64)
    lends = (certain == 0) & np.array([rng.random() < 0.7 for _ in load])
    lent = rng.choice([0, 0, 1, 3, 9])
    givers = keep_long.Givers(certain, may, one_class, np.array([more]), lends, lent)
    given = keep_long.give_windows(as_ranges(ranges), givers)
    gone, besides = slow_give(ranges, certain.tolist(), may, more, lends, lent)
    found = [r[1] + at for r, head in zip(ranges, given.head, strict=True) for at in range(head)]
    for (_, start, count, _), tail in zip(ranges, given.tail, strict=True):
        found += range(start + count - tail, start + count)
    assert set(found) == gone
    assert len(found) == len(gone)
    assert given.give.tolist() == besides
    assert 0 <= len(gone) + given.give.sum() - certain.sum() - more <= lent


def test_ends_are_taken_as_the_twin_takes_them():
    for seed in SEEDS:
        check_ends(seed)


def check_ends(seed):
    rng = random.Random(seed)
    ranges, rows = random_line(rng)
    pieces = keep_long.Pieces(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)

    def takers():
        rng = random.Random(seed)
        may = np.array([rng.random() < 0.5 for _ in range(12)])
        want = np.array([rng.choice([0, 0, 1, 2, 5]) for _ in range(12)])
        more = np.array([rng.randrange(int(may.sum()) + 1)])
        shares = np.array([rng.choice([2, 5, 99]) for _ in range(3)])
        return keep_long.Takers(want, may, more, np.zeros(12, dtype=np.int64), shares)

    ours, theirs = takers(), takers()
    member, got, left = keep_long.take_ends(
        as_ranges(ranges), pieces, ours, lambda topic, class_: topic + class_
    )
    expected, rest = slow_take(ranges, rows, theirs)
    parts = zip(member.tolist(), got.start.tolist(), got.count.tolist(), strict=True)
    assert sorted((who, at) for who, s, c in parts for at in range(s, s + c)) == sorted(expected)
    assert {p for s, c in zip(left.start, left.count, strict=True) for p in range(s, s + c)} == rest
    for one in ("want", "may", "more", "shares"):
        assert getattr(ours, one).tolist() == getattr(theirs, one).tolist()


def test_who_completes_windows_is_whom_the_twin_finds():
    completing = [check_completing(seed) for seed in SEEDS]
    assert sum(completing) > len(SEEDS) / 2


def check_completing(seed):
    rng = random.Random(seed)
    rows, _ = random_line(rng, members=12, topics=2)
    may = np.array([rng.random() < 0.6 for _ in range(12)])
    want = np.array([rng.choice([0, 0, 0, 1]) for _ in range(12)])
    more = np.array([rng.randrange(int(may.sum()) + 1)])
    takers = keep_long.Takers(want, may, more, np.zeros(12, dtype=np.int64), np.array([99, 99]))
    scattered = rng.randrange(12)
    found = keep_long.complete_windows(as_ranges(rows), takers, np.array([scattered])).tolist()
    assert sorted(found) == sorted(slow_complete(rows, takers, scattered))
    assert len(set(found)) == len(found) <= min(scattered, more[0])
    assert all(may[one] and not want[one] for one in found)
    return len(found)


def test_one_more_goes_to_those_with_whom_a_window_is_complete():
    """The window of b, c, d is complete if c and d get the two that are free; b has one more."""
    whole = {"a": (0, 3), "b": (3, 1), "c": (4, 1), "d": (5, 1), "e": (6, 3), "c2": (9, 2)}
    owned = [(name[0], "t", first, count) for name, (first, count) in whole.items()]
    owned += [("b", "u", 0, 3), ("d", "u", 4, 2)]
    members = {name: ["t", "u"] for name in "abcde"}
    topics = {"t": 11, "u": 7}
    long, short = (
        UniformAssignor(**most).assign(spec_of(members, topics, owned)) for most in (LONG, SHORT)
    )
    loads = dict(zip("abcde", long.loads().tolist(), strict=True))
    assert loads == {"a": 3, "b": 4, "c": 4, "d": 4, "e": 3}
    assert short.loads().tolist() != long.loads().tolist()


# Whole groups ------------------------------------------------------------------------------------

OPTIONS = [{}, {"imbalance": 1}, {"max_moves": 2}, {"imbalance": 2, "max_moves": 1}]


class RandomGroup:
    """A group that has changed since its members got what they own, as tables.

    Members subscribe to lists without a common topic; `shared` topics are in several of them.
    """

    def __init__(self, rng, lists=1, shared=0):
        self.topics = {f"t{at}": rng.choice([0, *range(1, 20)]) for at in range(lists * 3 + shared)}
        names = list(self.topics)
        self.lists = [names[at : 3 * lists : lists] for at in range(lists)]
        for name in names[3 * lists :]:
            for some in rng.sample(self.lists, min(lists, 2)):
                some.append(name)
        ids = [f"m{at:02d}" for at in rng.sample(range(50), rng.randrange(1, 12))]
        self.members = {name: rng.choice(self.lists) for name in ids}
        self.owned = []
        for topic, size in self.topics.items():
            some = [
                name for name, names in self.members.items() if topic in names or rng.random() < 0.1
            ]
            drawn = [rng.choice([*some, "gone", None]) for _ in range(size)]
            for at in range(size):
                if owner := drawn[at - at % rng.choice([1, 1, 2, 4])]:
                    self.owned.append((owner, topic, at, 1))

    def spec(self, only=None):
        """Return the group; or of one list, its members and topics alone."""
        members = {m: names for m, names in self.members.items() if only in (None, names)}
        rows = [row for row in self.owned if only is None or (row[0] in members and row[1] in only)]
        topics = self.topics if only is None else {name: self.topics[name] for name in sorted(only)}
        return spec_of(members, topics, rows)


def spec_of(members, topics, rows):
    """Return a group of members with their lists, topics, and rows of what is owned."""
    names = ("member_id", "topic", "first_partition", "partition_count")
    return GroupSpec.from_arrow(
        pa.table({"member_id": list(members), "subscribed": list(members.values())}),
        pa.table({"topic": list(topics), "partitions": list(topics.values())}),
        pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))
        if rows
        else None,
    )


def draw_assignor(rng):
    """Return what makes an assignor, given `long_ranges`."""
    options = rng.choice(OPTIONS)
    kind = StickyAssignor if options or rng.random() < 0.5 else UniformAssignor
    return lambda most: kind(**options, **most)


def test_it_is_as_fair_and_moves_as_little():
    differ = 0
    for seed in SEEDS:
        rng = random.Random(seed)
        lists = rng.choice([1, 1, 2, 4])
        group = RandomGroup(rng, lists, rng.choice([0, 0, 2]) if lists > 1 else 0).spec()
        make = draw_assignor(rng)
        short, long = (make(most).assign(group) for most in (SHORT, LONG))
        assert short.verdict == long.verdict
        assert count_moved(group, short).sum() == count_moved(group, long).sum()
        assert not find_problems(group, long)
        if not short.partial:
            assert loads_by_class(group, short) == loads_by_class(group, long)
        differ += short != long
    assert differ > len(SEEDS) / 4


def loads_by_class(group, ranges):
    return sorted(zip(group.member_class.tolist(), ranges.loads().tolist(), strict=True))


def test_a_class_alone_gets_what_it_gets_as_a_group():
    for seed in SEEDS:
        rng = random.Random(seed)
        drawn, make = RandomGroup(rng, lists=3), draw_assignor(rng)
        if make(LONG).assign(drawn.spec()).partial:
            continue  # the most moves count for all
        found = make(LONG).assign(drawn.spec()).to_arrow().to_pylist()
        for names in drawn.lists:
            if names in drawn.members.values():
                alone = make(LONG).assign(drawn.spec(names)).to_arrow().to_pylist()
                assert alone == [row for row in found if drawn.members[row["member_id"]] == names]


def test_neither_the_order_nor_the_cut_of_rows_matters():
    for seed in SEEDS:
        rng = random.Random(seed)
        drawn = RandomGroup(rng, lists=2)
        whole = UniformAssignor().assign(drawn.spec()).to_arrow()
        rows = [tuple(row.values()) for row in whole.to_pylist()]
        drawn.owned = [row for row in rows if rng.random() < 0.7]
        assigned = UniformAssignor().assign(drawn.spec())
        drawn.members = dict(rng.sample(list(drawn.members.items()), len(drawn.members)))
        drawn.owned = [
            (owner, topic, first + at, 1) for owner, topic, first, count in drawn.owned for at in range(count)
        ]  # fmt: skip
        rng.shuffle(drawn.owned)
        assert UniformAssignor().assign(drawn.spec()) == assigned


def test_large_groups_are_assigned_as_before():
    """What counts is members and partitions, however these are cut into ranges."""
    topics, names = {"t": 255, "unused": 10_000}, ["t"]
    differ = 0
    for count, most in ((2, 256), (2, 255), (3, 256), (1, 256), (2, 254)):
        rows = [(f"m{at // 3 % 5}", "t", at, 1) for at in range(255)]
        group = spec_of(dict.fromkeys((f"m{at}" for at in range(count)), names), topics, rows)
        short, long = (UniformAssignor(long_ranges=to).assign(group) for to in (0, most))
        differ += short != long
        if most < 255 or count * 128 > most:
            assert short == long
    assert differ


def churn(members, lists, each, epochs, most):
    """Return ranges a member after one has left or joined at a time."""
    rng = random.Random(2)
    names = [[f"t{at}"] for at in range(lists)]
    topics = {one[0]: members * each // lists for one in names}
    now = {f"{rng.randrange(10**9):09d}": names[at % lists] for at in range(members)}
    own: list[tuple] = []
    for epoch in range(epochs):
        if epoch % 2:
            del now[rng.choice(sorted(now))]
        else:
            now[f"{rng.randrange(10**9):09d}"] = rng.choice(names)
        ranges = UniformAssignor(long_ranges=most).assign(spec_of(now, topics, own))
        own = [tuple(row.values()) for row in ranges.to_arrow().to_pylist()]
    return len(own) / len(now)


def test_ranges_stay_long_under_churn():
    short, long = (churn(40, 1, 12, 200, most) for most in (0, 1 << 14))
    assert long < 0.6 * short
