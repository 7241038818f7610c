"""Who holds each partition: what many members claim at once is what they claim one by one."""

from __future__ import annotations

import random
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.state import partition_owners
from coordinator.core.state.groups import Group, Member, NameList, State
from coordinator.core.state.owner_columns import FREE
from coordinator.core.state.partition_owners import (
    MANY,
    change_holding,
    claim_many,
    claim_partitions,
    release_partitions,
)
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import CurrentMember, MemberMetadata
from coordinator.core.state.replay import replay_all
from coordinator.errors import IllegalStateError
from tests.core.test_partition_spans import holdings
from tests.support.longer import EVERY
from tests.support.twins_coordinator import held as held_by

SEEDS = range(300)


def member(number):
    name = f"m{number}"
    return Member(MemberMetadata("g", name), NameList(()), number)


def case(seed):
    """Holdings of members over a few topics: most often apart, often beside each other."""
    choice = random.Random(seed)
    step = choice.choice([1, 1, 3, 40])
    clash = choice.random() < 0.3
    at, claims = {}, []
    for number in range(1, choice.randint(2, 12)):
        spans = {}
        for _ in range(choice.randint(0, 3)):
            name = choice.choice("abc")
            first = at.get(name, choice.randint(0, 2)) + choice.randrange(step)
            at[name] = first + choice.randint(1, 4)
            # An equal key that is another object, as two files of a log may bring them.
            spans[name] = (TopicKey(name, f"{name}-id"), first, at[name], 5)
            at[name] -= clash and choice.random() < 0.3
        claims.append((member(number), tuple(span for _, span in sorted(spans.items()))))
    choice.shuffle(claims)
    held = [(member(99), ((TopicKey("a", "a-id"), 0, 2, 5),))] if choice.random() < 0.2 else []
    return held, claims


def outcome(claiming, held, claims):
    group = Group("g")
    for one in held:
        claim_partitions(group, *one)
    try:
        claiming(group, claims)
    except IllegalStateError as error:
        return str(error)
    found = {key: np.trim_zeros(serials, "b").tolist() for key, serials in group.owners.items()}
    return {key: serials for key, serials in found.items() if serials}


def one_by_one(group, claims):
    for one in claims:
        claim_partitions(group, *one)


def at_once(group, claims):
    """Claim by the path for many, even for few."""
    claim_many(group, claims, many=1)


def as_runs(group, claims):
    """Claim one half after the other, as if all members had long ranges."""
    half = len(claims) // 2
    claim_many(group, claims[:half], many=1, long=0)
    claim_many(group, claims[half:], many=1, long=0)


@pytest.mark.behaviour("G-7", "G-66")
def test_bulk_updates_equal_single_updates():
    found = [outcome(one_by_one, *case(seed)) for seed in SEEDS]
    assert [outcome(at_once, *case(seed)) for seed in SEEDS] == found
    assert [outcome(as_runs, *case(seed)) for seed in SEEDS] == found
    refused = [one for one in found if isinstance(one, str)]
    assert len(refused) > 20
    assert len(found) - len(refused) > 100


def and_change(claiming, seed):
    """Claim, then let some members give up what they have or parts of it, and others take it."""

    def change(group, claims):
        claiming(group, claims)
        choice, freed = random.Random(seed), []
        for one, holding in choice.sample(claims, len(claims) // 2):
            kept = tuple(choice.sample(holding, len(holding) // 2))
            less = [(key, first + 1, end, at) for key, first, end, at in kept if end - first > 1]
            change_holding(group, one, holding, choice.choice([(), kept, tuple(less)]))
            freed += [span for span in holding if span not in kept]
        claiming(group, [(member(50), ((TopicKey("b", "b-id"), 50, 53, 5),))])
        some = claims[0][1] if choice.random() < 0.1 else freed
        for span in choice.sample(some, min(len(some), 2)):
            claiming(group, [(member(60), (span,))])

    return change


@pytest.mark.behaviour("G-7", "G-66")
def test_what_was_claimed_as_long_ranges_changes_hands_as_the_rest_does():
    found = [outcome(and_change(one_by_one, seed), *case(seed)) for seed in SEEDS]
    for claiming in (at_once, as_runs):
        changed = [outcome(and_change(claiming, seed), *case(seed)) for seed in SEEDS]
        assert changed == found
    assert sum(isinstance(one, dict) for one in found) > 20


def test_who_leaves_a_topic_of_long_ranges_takes_no_more_memory():
    """A very large group that was loaded loses members by the thousand."""
    group, width = Group("g"), 10_000
    keys = [TopicKey(name, f"{name}-id") for name in "abcdefgh"]
    spans = [(key, width * n, width * (n + 1), 5) for n in range(MANY) for key in keys]
    claims = [(member(n + 1), (span,)) for n, span in enumerate(spans)]
    claim_many(group, claims)
    tracemalloc.start()
    for one, holding in claims[::2]:
        release_partitions(group, one, holding)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < MANY * width // 10, f"{taken} bytes of {len(spans) * width} partitions"
    with pytest.raises(IllegalStateError, match=r"m1 releases a\[0..9999\] that it does not hold"):
        release_partitions(group, *claims[0])
    assert not group.owners[keys[0]][:width].any()
    assert group.owners[keys[1]][:width].tolist() == [2] * width


def test_most_are_written_as_arrays(monkeypatch):
    """What lies close together never goes the slow way."""
    monkeypatch.setattr(partition_owners, "claim_partitions", None)
    key, group = TopicKey("a", "a-id"), Group("g")
    at_once(group, [(member(n), ((key, 2 * n, 2 * n + 1, 5),)) for n in range(5, 0, -1)])
    assert group.owners[key].tolist() == [FREE, FREE, 1, 0, 2, 0, 3, 0, 4, 0, 5]


def test_a_topic_of_long_ranges_costs_what_it_has_of_these():
    """Ten thousand partitions a member cost no more than one, until the topic changes."""
    key, group, width = TopicKey("a", "a-id"), Group("g"), 10_000
    claims = [(member(n + 1), ((key, width * n, width * (n + 1), 5),)) for n in range(2 * MANY)]
    tracemalloc.start()
    claim_many(group, claims[MANY:])
    claim_many(group, claims[:MANY])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < MANY * width // 10, f"{taken} bytes of {2 * MANY * width} partitions"
    assert (key in group.owners, list(group.owners), len(group.owners)) == (True, [key], 1)
    with pytest.raises(IllegalStateError, match=r"m1 claims a\[0..9999\] that another one holds"):
        claim_many(group, claims[:MANY])
    assert group.owners[key].tolist() == np.arange(1, 2 * MANY + 1).repeat(width).tolist()


@pytest.mark.behaviour("G-66")
def test_the_order_of_records_counts():
    """What one gives up another may hold after it, and not before."""
    key = TopicKey("a", "a-id")
    held = tuple((key, number, number + 1, 5) for number in range(MANY))  # written as arrays
    metas = [MemberMetadata("g", name) for name in ("m1", "m2")]
    has, gives = CurrentMember("g", "m1", 5, 5, assigned=held), CurrentMember("g", "m1", 6, 5)
    takes = CurrentMember("g", "m2", 6, 5, assigned=held)
    state = State()
    replay_all(state, [*metas, has, gives, takes])
    assert state.groups["g"].owners[key].tolist() == [2] * MANY
    with pytest.raises(IllegalStateError, match=r"m2 claims a\[0..0\] that another one holds"):
        replay_all(State(), [*metas, has, takes, gives])


def recounted(group, one, old, new):
    release_partitions(group, one, old)
    claim_partitions(group, one, new)


@given(holdings(), holdings(), st.data())
def test_a_change_of_a_holding_is_a_release_and_a_claim(old, new, data):
    others = data.draw(holdings(without=held_by(old)))
    found = []
    for change in (recounted, change_holding):
        group = Group("g")
        claim_partitions(group, member(1), old)
        claim_partitions(group, member(2), others)
        try:
            change(group, member(1), old, new)
        except IllegalStateError:
            found.append("refused")
            continue
        rows = {key: np.trim_zeros(serials, "b").tolist() for key, serials in group.owners.items()}
        found.append({key: row for key, row in rows.items() if row})
    assert found[0] == found[1]
    assert (found[0] == "refused") == bool(held_by(new).keys() & held_by(others).keys())


def test_what_stays_with_a_member_is_neither_released_nor_claimed():
    group, one = Group("g"), member(1)
    spans = tuple((TopicKey(f"{n:03}", "id"), 0, 1, 5) for n in range(300))
    claim_partitions(group, one, spans)
    before = group.revision
    change_holding(group, one, spans, spans[:100] + spans[100:])
    assert group.revision == before, "nothing came free"
    change_holding(group, one, spans, spans[:299])
    assert group.revision == before + 1
    with pytest.raises(IllegalStateError, match="that another one holds"):
        change_holding(group, one, spans[:299], spans[:299] + spans[:1])


@pytest.mark.parametrize("seed", range(40 if EVERY else 16))
def test_many_topics_of_one_partition_change_hands_as_few_do(seed):
    choice = random.Random(seed)
    topics = [TopicKey(f"{n:03}", "id") for n in range(3 * MANY)]
    at = {key: choice.choice([0, 0, 2]) for key in topics}

    def some(of):
        found = sorted(choice.sample(of, choice.randint(MANY, len(of))))
        return tuple((key, at[key], at[key] + 1, 5) for key in found)

    group, model, members = Group("g"), {}, [member(1), member(2)]
    held = {one.serial: () for one in members}
    for _ in range(30):
        one = choice.choice(members)
        old, new = held[one.serial], some(topics)
        free = all(model.get(key, one.serial) == one.serial for key, *_ in new)
        if not free:
            with pytest.raises(IllegalStateError, match="that another one holds"):
                claim_partitions(group, one, tuple(s for s in new if s not in old))
            group = Group("g")  # as a coordinator does: what failed halfway is dropped
            for other in members:
                claim_partitions(group, other, held[other.serial])
            new = tuple(s for s in new if model.get(s[0], one.serial) == one.serial)
        change_holding(group, one, old, new)
        held[one.serial] = new
        model = {k: who for k, who in model.items() if who != one.serial}
        model |= {span[0]: one.serial for span in new}
        found = {k: int(s[at[k]]) for k, s in group.owners.items() if s[at[k]] != FREE}
        assert found == model
        wanted = tuple(span[:3] for span in some(topics))
        free = tuple(s for s in wanted if model.get(s[0], one.serial) == one.serial)
        assert partition_owners.free_of(group, wanted, one.serial) == free
    theirs = held[2][:1] or ((topics[0], 7, 8, 5),)
    with pytest.raises((IllegalStateError, KeyError)):
        release_partitions(group, members[0], held[1] + theirs)
