"""Who owns what by the reports of many members: in columns as partition by partition."""

from __future__ import annotations

from importlib import import_module

from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_writer

from coordinator.config import Config
from coordinator.core.classic.assign import read_assigned
from coordinator.core.classic.claims import (
    NO_MEMBER,
    TopicLine,
    add_previous,
    as_target,
    resolve_owners,
)
from coordinator.core.events import CatalogTopic, TopicsReported
from coordinator.core.state.embedded import (
    Assignment,
    read_assignment,
    write_assignment,
)
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import spans_of
from coordinator.core.state.replay import replay
from coordinator.core.state_machine import step

TOPICS = {"t": 4, "u": 1, "v": 3}
reports = st.dictionaries(
    st.sampled_from([*TOPICS, "none"]), st.lists(st.integers(-1, 5), max_size=6), max_size=4
)
"""Partitions by topic, some of which are not there, or twice."""
members = st.lists(st.tuples(reports, st.integers(-1, 2), reports), max_size=4)
"""What each reports to own, in which generation, and what it was assigned last."""


def state_of(topics):
    state = State()
    there = {name: CatalogTopic(f"id-{name}", count) for name, count in topics.items()}
    for record in step(state, Config(), TopicsReported(there), 0).records:
        replay(state, record)
    return state


STATE = state_of(TOPICS)


def existing(partitions):
    return [(t, p) for t, ps in partitions.items() for p in ps if 0 <= p < TOPICS.get(t, 0)]


def named(line, positions):
    places = line.topic_of(positions).tolist()
    pairs = zip(positions.tolist(), places, strict=True)
    return [(line.topics[at].key.name, int(position - line.starts[at])) for position, at in pairs]


def by_partition(line, owners):
    return dict(zip(named(line, owners.position), owners.owner.tolist(), strict=True))


@given(members)
def test_owners_are_those_found_partition_by_partition(claimed):
    line = TopicLine(STATE, [*TOPICS, "none"])
    since, owner_of = {}, {}
    for member, (owned, generation, _) in enumerate(claimed):
        for one in existing(owned):
            if one not in since or generation > since[one]:
                since[one], owner_of[one] = generation, member
            elif generation == since[one] and owner_of[one] != member:
                owner_of[one] = NO_MEMBER
    reported = line.claims([owned for owned, _, _ in claimed])
    owners = resolve_owners(reported, [generation for _, generation, _ in claimed])
    assert by_partition(line, owners) == owner_of

    had = {one: member for one, member in owner_of.items() if member != NO_MEMBER}
    for member, (_, _, last) in enumerate(claimed):
        for one in existing(last):
            if one not in owner_of:
                had.setdefault(one, member)
    found = add_previous(owners, line.claims([last for _, _, last in claimed]))
    assert by_partition(line, found) == had

    ids = [f"m{member}" for member in range(len(claimed))]
    target = as_target(line, found, ids)
    for member, member_id in enumerate(ids):
        owned = [(STATE.topics[t].key, p) for (t, p), owner in had.items() if owner == member]
        assert target.spans(member_id) == spans_of(owned)


@given(st.lists(reports | st.sampled_from([b"", b"\0\1\1"]), max_size=4))
def test_assignments_are_read_as_spans(members):
    wanted, raw = [], []
    for claimed in members:
        listed = () if isinstance(claimed, bytes) else existing(claimed)
        wanted.append(spans_of((STATE.topics[t].key, p) for t, p in listed))
        raw.append(
            claimed if isinstance(claimed, bytes) else write_assignment(Assignment(1, claimed))
        )
    assert read_assigned(STATE, raw) == wanted


numbers = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5)


@given(
    st.integers(0, 3), st.dictionaries(st.text(max_size=5), numbers), st.none() | st.binary()
)  # fmt: skip
def test_an_assignment_is_byte_for_byte_what_kio_writes(version, partitions, user_data):
    module = import_module(f"kio.schema.consumer_protocol_assignment.v{version}.data")
    topics = (module.TopicPartition(topic=t, partitions=tuple(p)) for t, p in partitions.items())
    message = module.ConsumerProtocolAssignment(
        assigned_partitions=tuple(topics), user_data=user_data
    )

    class Out(bytearray):
        write = bytearray.extend

    out = Out(version.to_bytes(2))
    entity_writer(module.ConsumerProtocolAssignment)(out, message)
    raw = write_assignment(Assignment(version, partitions, user_data))
    assert raw == out
    assert read_assignment(raw).partitions == partitions
