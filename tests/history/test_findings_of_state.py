"""Findings about groups as they are, and about who comes and goes, equal a fold of the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random

import pytest

from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.plan_values import MemberLoad, TopicWeights
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberWritten,
    ClassicRange,
    GroupMetadata,
    GroupUnread,
    LoadsNoted,
    MemberMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.replay import replay
from coordinator.history.findings import Limits, examine
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.storage.delta_log import read_log
from coordinator.storage.record_log import Batch
from tests.history.test_findings_by_fold import by_partition, fold_rebalances, ms, owned_in_turn
from tests.support.stories import NOON, SECOND, many_groups, stored

LIMITS = Limits(window_ms=600_000, patience_ms=4_000, flaps=2, rebalances=30, skew=1.3)
TOPICS = {"t": 6, "u": 3}


@pytest.fixture(scope="module", params=["whole", 1, 2, 14])
def store(request, tmp_path_factory):
    """A log of stories and recorded lives, or of a walk through records of classic groups."""
    path = tmp_path_factory.mktemp("state") / "store"
    if request.param == "whole":
        return many_groups(range(3, 31, 18), ["coordinator"], path)
    records = list(walk(Random(request.param)))
    batches = [Batch(0, NOON, 1, [])]
    batches += [Batch(0, NOON + n * SECOND, 1, [one]) for n, one in enumerate(records)]
    return stored(batches, path)


def walk(random):
    """Generations of groups whose members come, go and restart; groups that cannot be read."""
    yield from (TopicChanged(name, f"id-{name}", size, version=1) for name, size in TOPICS.items())
    groups = {f"g{number}": {} for number in range(5)}
    for generation in range(1, 90):
        group_id = random.choice(list(groups))
        if random.random() < 0.1:
            yield GroupUnread(group_id, random.randrange(3), generation, random.choice("ab"))
        if random.random() < 0.07:
            yield Tombstone(GroupUnread.kind, group_id)
        if random.random() < 0.1:
            yield loads_of(random, group_id)
        if random.random() < 0.04:
            groups[group_id] = {}
            yield Tombstone(ClassicGroupWritten.kind, group_id)
            continue
        members = change_members(random, groups[group_id], generation)
        kind = "connect" if group_id == "g4" else "consumer"
        reason = random.choice(["member joined", "member left", "topics changed"])
        yield ClassicGroupWritten(
            group_id, generation, kind, "range", None, NOON, share(random, members),
            reason=reason, member_id=random.choice([None, *sorted(members)]),
        )  # fmt: skip


def loads_of(random, group_id):
    weights = tuple(
        TopicWeights(name, tuple(random.choice([0.0, 1.0, 1.0, 7.0]) for _ in range(size)))
        for name, size in TOPICS.items()
    )
    capacities = (MemberLoad("m", 2.0),) if random.random() < 0.3 else ()
    return LoadsNoted(group_id, weights if random.random() < 0.8 else (), capacities=capacities)


def change_members(random, members, generation):
    """Let members go, restart under another id or the same, and come; return who is there."""
    for member_id in list(members):
        chance = random.random()
        if chance < 0.4:
            who = members.pop(member_id)
            if chance < 0.25:
                again = f"{member_id.split('+')[0]}+{generation}"
                members[again if chance < 0.15 else member_id] = who
    for number in range(random.randrange(3)):
        who = random.choice([("", "", ""), ("", "c", "/h"), ("", "d", "/h"), ("i", "c", "/h")])
        if who[0] and who in members.values():
            continue
        name = f"{'-'.join(who)}-{random.choice([number, generation + number])}"
        members.setdefault(name, who)
    return members


def share(random, members):
    """Who owns what: cut at random, and maybe not all of it."""
    found = []
    at = dict.fromkeys(TOPICS, 0)
    for member_id, (instance, client, host) in sorted(members.items()):
        names = random.choice([("t",), ("t", "u"), ()])
        ranges = []
        for name in names:
            count = random.randrange(min(4, TOPICS[name] - at[name] + 1))
            ranges += [ClassicRange(name, f"id-{name}", at[name], count)] if count else []
            at[name] += count
        found.append(
            ClassicMemberWritten(
                member_id, instance or None, client_id=client, client_host=host,
                subscribed_topic_names=names, assigned=tuple(ranges),
            )
        )  # fmt: skip
    return tuple(found)


def look(store, name, now_ms):
    found = examine(LogRows(LogReader(store)), now_ms, LIMITS, [name])
    return [row for one in found for row in one.rows.to_pylist()]


class Member:
    """Of a group as it is: what it subscribes to, and the partitions that it has."""

    def __init__(self, member_id, wants, ranges):
        self.member_id, self.wants = member_id, wants
        self.owned = [(key, p) for key, first, end in ranges for p in range(first, end)]


class Log:
    """What a log says, record by record."""

    def __init__(self, store):
        self.state, self.classic, self.unread = State(), {}, {}
        self.turns, self.epochs = [], []
        """(time, group, member id, (instance, client, host), whether it came), and
        (time, group, reason, member)."""
        self._there = defaultdict(dict)
        for batch in read_log(store):
            for record in batch.records:
                self._tell(record, batch.at_ms)
                if not isinstance(record, ClassicGroupWritten | GroupUnread):
                    replay(self.state, record)
        self.end_ms = LogReader(store).at_ms

    def _tell(self, record, at_ms):
        group_id = getattr(record, "group_id", "")
        there = self._there[group_id]
        ends = record.of if isinstance(record, Tombstone) else None
        if isinstance(record, GroupMetadata):
            self.epochs.append((at_ms, group_id, record.reason, record.member_id))
        elif isinstance(record, MemberMetadata):
            if record.member_id not in there:
                self.turns.append((at_ms, group_id, record.member_id, identity(record), True))
            there[record.member_id] = identity(record)
        elif ends == MemberMetadata.kind:
            self.turns.append(
                (at_ms, group_id, record.member_id, there.pop(record.member_id), False)
            )
        elif isinstance(record, GroupUnread):
            self.unread[group_id] = (record.partition, record.offset, record.reason)
        elif ends == GroupUnread.kind:
            self.unread.pop(group_id, None)
        elif isinstance(record, ClassicGroupWritten) or ends == ClassicGroupWritten.kind:
            self._tell_generation(group_id, None if ends else record, at_ms)

    def _tell_generation(self, group_id, record, at_ms):
        there = self._there[group_id]
        now = {one.member_id: identity(one) for one in record.members} if record else {}
        for member_id in sorted(there.keys() - now.keys()):
            self.turns.append((at_ms, group_id, member_id, there.pop(member_id), False))
        for member_id in sorted(now.keys() - there.keys()):
            self.turns.append((at_ms, group_id, member_id, now[member_id], True))
        there |= now
        before = self.classic.pop(group_id, None)
        if record is not None:
            self.classic[group_id] = record
            if before is None or before.generation != record.generation:
                self.epochs.append((at_ms, group_id, record.reason, record.member_id))

    def groups(self):
        """The groups that there are: id → (whether Stable, of consumers, members)."""
        found = {}
        for group_id, group in self.state.groups.items():
            members = [
                Member(
                    one.member_id, (one.meta.subscribed_topic_names, one.meta.subscribed_topic_regex),
                    [span[:3] for span in (*one.current.assigned, *one.current.pending)],
                )
                for one in group.members.values()
            ]  # fmt: skip
            found[group_id] = group.state.value == "Stable", True, members
        for group_id, one in self.classic.items():
            members = [
                Member(
                    m.member_id, (m.subscribed_topic_names, ""),
                    [range_of(r) for r in m.assigned],
                )
                for m in one.members
            ]  # fmt: skip
            found[group_id] = bool(members), one.protocol_type == "consumer", members
        return found


def range_of(one):
    key = TopicKey(one.topic, one.topic_id)
    return key, one.first_partition, one.first_partition + one.partition_count


def identity(one):
    return one.instance_id or "", one.client_id or "", one.client_host or ""


@pytest.fixture(scope="module")
def log(store):
    return Log(store)


def test_groups_that_cannot_be_read(store, log):
    rows = look(store, "unreadable_groups", log.end_ms)
    found = {row["group_id"]: (row["partition"], row["offset"], row["reason"]) for row in rows}
    assert found == log.unread
    assert len(found) == len(rows)


def test_classic_groups(store, log):
    rows = look(store, "classic_groups", log.end_ms)
    assert {row["group_id"]: (row["state"], row["generation"], row["members"]) for row in rows} == {
        group_id: ("Stable", one.generation, len(one.members))
        for group_id, one in log.classic.items()
        if one.members and one.protocol_type == "consumer"
    }


def test_idle_members(store, log):
    wanted = {}
    for group_id, (is_stable, is_ours, members) in log.groups().items():
        idle = sorted(m.member_id for m in members if any(m.wants) and not m.owned)
        if is_stable and is_ours and idle:
            owned = sum(len(m.owned) for m in members)
            wanted[group_id] = (len(idle), len(members), owned, idle[:10])
    rows = look(store, "idle_members", log.end_ms)
    names = ("idle", "members", "partitions", "member_ids")
    assert {row["group_id"]: tuple(row[n] for n in names) for row in rows} == wanted


def weigh(loads, group_id, member):
    """The load of a member, and the heaviest partition, where weights are known."""
    noted = loads.get(group_id)
    if noted is None or not noted.weights:
        return len(member.owned), 0
    weights = {
        (one.topic, partition): weight
        for one in noted.weights
        for partition, weight in enumerate(one.weights)
    }
    return sum(weights.get((key.name, p), 0) for key, p in member.owned), max(weights.values())


def test_skew(store, log):
    wanted = set()
    for group_id, (is_stable, is_ours, members) in log.groups().items():
        noted = log.state.loads.get(group_id)
        if not is_stable or not is_ours or (noted and (noted.capacities or noted.constraints)):
            continue
        peers = defaultdict(list)
        for one in members:
            if any(one.wants):
                peers[one.wants].append((*weigh(log.state.loads, group_id, one), one.member_id))
        for some in peers.values():
            loads = [load for load, *_ in some]
            share = max(sum(loads) / len(loads), some[0][1])
            apart = some[0][1] or max(loads) - min(loads) >= 2
            if apart and share and max(loads) > LIMITS.skew * share:
                who = min(member for load, _, member in some if load == max(loads))
                wanted.add((group_id, who, max(loads), min(loads), round(share, 6), len(some)))
    rows = look(store, "skew", log.end_ms)
    names = ("group_id", "member_id", "most", "least", "share", "members")
    assert {
        tuple(round(v, 6) if isinstance(v, float) else v for v in map(row.get, names))
        for row in rows
    } == wanted


def test_partitions_without_owner(store, log):
    unsettled = {}
    if log.state.groups:
        for (group_id, _, began), (_, ended) in fold_rebalances(store).items():
            if ended is None:
                unsettled[group_id] = began
    turns, many = owned_in_turn(store), 0
    for now_ms in (log.end_ms, log.end_ms + 200_000):
        wanted = {}
        for group_id, (is_stable, _, members) in log.groups().items():
            if not is_stable and now_ms - unsettled.get(group_id, now_ms) <= LIMITS.patience_ms:
                continue
            names = {name for one in members for name in one.wants[0]}
            group = log.state.groups.get(group_id)
            names |= {n for one in (group.regexes.values() if group else ()) for n in one.topics}
            owned = {one for m in members for one in m.owned}
            for name in names & log.state.topics.keys():
                topic = log.state.topics[name]
                for partition in range(topic.partitions):
                    key = group_id, name, topic.key.topic_id, partition
                    if (topic.key, partition) not in owned:
                        last = max(
                            turns.get(key, ()), key=lambda row: row["until_position"], default={}
                        )
                        wanted[key] = (ms(last.get("until")),)
        rows = look(store, "unowned_partitions", now_ms)
        found = by_partition(rows, "since")
        assert {key: (ms(since),) for key, (since,) in found.items()} == wanted
        many += len(wanted)
    assert many > 0 or log.state.groups


def test_frequent_rebalances(store, log):
    begin_ms, alive = log.end_ms - LIMITS.window_ms, log.groups()
    epochs = defaultdict(list)
    for at_ms, group_id, reason, member_id in log.epochs:
        if at_ms >= begin_ms and group_id in alive:
            epochs[group_id].append((reason, member_id))
    least = LIMITS.rebalances * LIMITS.window_ms / 3_600_000
    wanted = {
        group_id: some
        for group_id, some in epochs.items()
        if len(some) > max(least, 2 * len(alive[group_id][2]))
    }
    rows = {row["group_id"]: row for row in look(store, "frequent_rebalances", log.end_ms)}
    assert rows.keys() == wanted.keys()
    assert wanted
    for group_id, row in rows.items():
        reasons = Counter(reason for reason, _ in wanted[group_id])
        members = Counter(member for _, member in wanted[group_id] if member)
        assert row["rebalances"] == len(wanted[group_id])
        assert row["members"] == len(alive[group_id][2])
        assert (row["reason_count"], reasons[row["reason"]]) == (max(reasons.values()),) * 2
        assert members[row["member_id"]] == max(members.values(), default=0)


def test_flapping_members(store, log):
    came = Counter((group, member) for _, group, member, _, is_new in log.turns if is_new)

    def who(group, member, identity):
        instance, client, host = identity
        if instance:
            return group, "instance", instance
        if came[group, member] > 1 or not client + host:
            return group, "member", member
        return group, client, host

    lives = defaultdict(list)
    for at_ms, group_id, member, identity, is_new in log.turns:
        lives[who(group_id, member, identity)].append((at_ms, is_new))
    wanted = Counter()
    for key, turns in lives.items():
        gone = returns = there = most = 0
        for at_ms, is_new in turns:
            there += 1 if is_new else -1
            most = max(most, there)
            if at_ms >= log.end_ms - LIMITS.window_ms:
                returns += is_new and gone > 0
                gone = gone + 1 if not is_new else max(gone - 1, 0)
        if returns >= LIMITS.flaps * most and key[0] in log.groups():
            wanted[key[0], returns, most] += 1
    rows = look(store, "flapping_members", log.end_ms)
    assert Counter((row["group_id"], row["returns"], row["members"]) for row in rows) == wanted
    assert wanted
