"""Kafka's hash of a group's topics: what Kafka 4.4.0 wrote in its records, from the topics alone."""

from msgspec.structs import replace

from coordinator.core.state.groups import State, Topic
from coordinator.core.state.records import GroupMetadata, MemberMetadata, TopicChanged
from coordinator.core.state.replay import replay_all
from coordinator.kraft.kafka_hash import hash_of, hash_topic, hash_topics
from tests.watcher.recorded import FILES, WatchedGroups, batches_of, change, read_lines

SIGNED = 1 << 64
RACK = ""
"""Of the one broker that had all partitions of the recorded topics."""


def written_hashes(name):
    """The hashes that Kafka wrote of topics, and those that we make of the same topics."""
    watched, topics, waiting = WatchedGroups(), {}, []
    for line in read_lines(name):
        if "topics" in line:
            waiting.append(line)
        for batch in batches_of(line) if "records" in line else ():
            while waiting and waiting[0]["at"] <= batch[0].timestamp_ms:
                change(topics, waiting.pop(0))
                watched.set_topics(
                    {
                        n: replace(one, racks=((RACK,),) * one.partitions)
                        for n, one in topics.items()
                    }
                )
            written = [one for one in watched.take(batch) if isinstance(one, GroupMetadata)]
            for record in written:
                group = watched.state.groups.get(record.group_id)
                if group is not None and group.names:
                    yield record.metadata_hash, hash_topics(group.names, watched.state.topics)


def test_hashes_are_those_that_kafka_wrote():
    pairs = [pair for name in FILES for pair in written_hashes(name)]
    same = sum(kafkas == ours for kafkas, ours in pairs)
    assert len(pairs) > 350
    assert same > 0.95 * len(pairs)  # the others are of a moment at which a topic changed


def test_the_hash_of_a_topic_without_racks():
    """As a broker of Kafka 4.4.0 that has no rack wrote it."""
    topic = Topic.of("data", "pegN0MVQQn6Rhs0mwSOTug", 6, ())
    expected = -7089933731663325157 % SIGNED
    assert hash_topics(["data", "none"], {"data": topic}) == expected
    assert hash_topics(["none"], {}) == 0


def test_racks_have_no_order_but_their_partitions_do():
    def hashed(*racks):
        return hash_topic(Topic.of("t", "AAAAAAAAAAAAAAAAAAAAAQ", 2, racks))

    assert hashed(("a", "b"), ("c",)) == hashed(("b", "a"), ("c",))
    assert len({hashed(), hashed(("a",), ("b",)), hashed(("b",), ("a",)), hashed(("a",), ())}) == 4


def test_topics_that_changed_since_a_record_have_another_hash():
    state = State()
    member = MemberMetadata("g", "m", subscribed_topic_names=("t",))
    replay_all(state, [TopicChanged("t", "AAAAAAAAAAAAAAAAAAAAAQ", 2), member])
    record = GroupMetadata("g", 1, state.groups["g"].topics_hash)
    now = hash_topics(["t"], state.topics)
    assert hash_of(record, state) == now
    replay_all(state, [TopicChanged("t", "AAAAAAAAAAAAAAAAAAAAAQ", 3)])
    assert hash_of(record, state) not in {now, hash_topics(["t"], state.topics)}
    assert hash_of(GroupMetadata("gone", 1, 7), state) == 7
