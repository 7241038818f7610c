"""ListOffsets: of topics that are a Kafka cluster's what that says, of others no end that lowers anything."""

from __future__ import annotations

import time
from concurrent.futures import Future

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec

from coordinator.core.events import CatalogTopic, Result
from coordinator.runtime.topic_catalog import KafkaCatalog, topic_id_of
from coordinator.wire.apis.list_offsets_api import END
from coordinator.wire.codec import Api
from tests.clients.kafka_broker.mock import QUIET, mock_kafka
from tests.support.wire_side import NONE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, side
from tests.wire.test_server import served

__all__ = ["side"]

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
LEADER_NOT_AVAILABLE, OFFSET_NOT_AVAILABLE, INVALID_REQUEST = 5, 78, 42
OUT_OF_RANGE = 1


def ask(side, version, *topics, **words):
    """Return the answers by topic and partition, each answered once."""
    named = [
        {
            "name": name,
            "partitions": [{"partition_index": p, "timestamp": at} for p, at in partitions],
        }
        for name, partitions in topics
    ]
    words = {"replica_id": -1, "isolation_level": 0, "timeout": 0, **words}
    answer = side.ask(Api.LIST_OFFSETS, version, topics=named, **words)
    found = [((t.name, p.partition_index), p) for t in answer.topics for p in t.partitions]
    assert len({topic.name for topic in answer.topics}) == len(answer.topics)
    assert len(dict(found)) == len(found)
    return dict(found)


def offsets(side, version, timestamp):
    found = ask(side, version, ("clicks", [(3, timestamp), (4, timestamp)]))
    known, unknown = found["clicks", 3], found["clicks", 4]
    assert (unknown.offset, int(unknown.error_code)) == (-1, UNKNOWN_TOPIC)
    assert known.timestamp in {None, -1}  # kio reads -1 as either
    return known.offset, int(known.error_code)


# Topics of no cluster ----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 12))
def test_a_partition_begins_at_0_and_ends_beyond_any_offset(side, version):
    assert offsets(side, version, EARLIEST) == (0, NONE)
    assert offsets(side, version, LATEST) == (END, NONE)
    assert time.time_ns() < END, "an offset that is a time is no end"


@pytest.mark.parametrize("version", range(1, 12))
def test_no_record_has_a_time(side, version):
    """B3: an offset beside timestamp -1 makes the Java client throw."""
    for timestamp in (0, 1_700_000_000_000):
        assert offsets(side, version, timestamp) == (-1, NONE)


@pytest.mark.parametrize(
    ("place", "since", "offset"),
    [(-3, 7, -1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1), (-7, 12, -1), (-(2**63), 12, -1)],
)
def test_special_timestamps_need_their_version(side, place, since, offset):
    for version in range(1, 12):
        wanted = (offset, NONE) if version >= since else (-1, UNSUPPORTED_VERSION)
        assert offsets(side, version, place) == wanted


def test_each_partition_is_answered_once(side):
    """As in Kafka, what is asked for twice is refused once; a topic without partitions is left out."""
    asked = ("clicks", [(0, -2), (0, -2), (1, -2)]), ("orders", []), ("clicks", [(2, -2)])
    found = ask(side, 10, *asked)
    codes = {place: int(one.error_code) for place, one in found.items()}
    assert codes == {("clicks", 0): INVALID_REQUEST, ("clicks", 1): NONE, ("clicks", 2): NONE}


@pytest.mark.parametrize("version", range(2, 11))
def test_an_unknown_end_is_not_committed_by_a_tool(side, version):
    """Else `--to-latest` would write what no worker can start from, and say that it is done."""
    assert side.commit(version, {0: 555, 1: END, 2: END + 1}) == {0: NONE, 1: OUT_OF_RANGE, 2: NONE}
    assert side.commit(version, {1: END}) == {1: OUT_OF_RANGE}
    kept = {p.partition_index: p.committed_offset for p in fetched(side)}
    assert kept == {0: 555, 1: -1, 2: END + 1}


def test_a_member_that_begins_at_the_end_may_commit_that(side):
    """Java's consumer commits where it is every five seconds, whether it has read or not."""
    side.join("m1", "clicks")
    assert side.commit(9, {1: END}, "m1", side.beat("m1", 2, {}).member_epoch) == {1: NONE}


def fetched(side):
    (topic,) = side.fetch(8, [0, 1, 2]).topics
    return topic.partitions


# Topics of a Kafka cluster -----------------------------------------------------------------------


class Kafka:
    """A cluster that answers, and keeps what it was asked."""

    def __init__(self, **fields):
        self.fields = {"error_code": 0, "offset": 7, "timestamp": -1, "leader_epoch": 3} | fields
        self.asked = []

    def __call__(self, times, isolation_level, timeout_s):
        self.asked.append((dict(times), isolation_level, timeout_s))
        found = Future()
        found.set_result(Result(response=dict.fromkeys(times, self.fields)))
        return found


def of_kafka(side, **fields):
    kafka = Kafka(**fields)
    side.cluster = side.cluster_with(find_offsets=kafka)
    return kafka


@pytest.mark.parametrize("version", range(1, 12))
def test_the_cluster_that_has_the_topics_is_asked(side, version):
    kafka = of_kafka(side)
    found = ask(
        side, version, ("clicks", [(0, LATEST), (1, 1_000), (9, LATEST)]), ("no", [(0, -2)])
    )
    assert {place: (one.offset, int(one.error_code)) for place, one in found.items()} == {
        ("clicks", 0): (7, NONE), ("clicks", 1): (7, NONE),
        ("clicks", 9): (-1, UNKNOWN_TOPIC), ("no", 0): (-1, UNKNOWN_TOPIC),
    }  # fmt: skip
    if version >= 4:
        assert found["clicks", 0].leader_epoch == 3
    assert kafka.asked == [({("clicks", 0): -1, ("clicks", 1): 1_000}, 0, 10)]


def test_the_cluster_is_asked_as_the_client_asks(side):
    kafka = of_kafka(side)
    ask(side, 10, ("clicks", [(0, EARLIEST)]), isolation_level=1, timeout=2_500)
    ask(side, 10, ("clicks", [(0, MAX_TIMESTAMP)]), timeout=60_000)
    assert kafka.asked == [({("clicks", 0): -2}, 1, 2.5), ({("clicks", 0): -3}, 0, 10)]


def test_no_cluster_is_asked_about_nothing(side):
    kafka = of_kafka(side)
    found = ask(side, 11, ("clicks", [(0, LATEST), (0, EARLIEST), (1, -4), (9, LATEST)]))
    codes = [int(found["clicks", one].error_code) for one in (0, 1, 9)]
    assert codes == [INVALID_REQUEST, UNSUPPORTED_VERSION, UNKNOWN_TOPIC]
    assert kafka.asked == []


@pytest.mark.parametrize("version", range(1, 12))
def test_an_error_is_that_of_its_partition_in_a_word_that_the_client_knows(side, version):
    of_kafka(side, error_code=OFFSET_NOT_AVAILABLE, offset=-1)
    found = ask(side, version, ("clicks", [(0, LATEST), (9, LATEST)]))
    wanted = OFFSET_NOT_AVAILABLE if version >= 5 else LEADER_NOT_AVAILABLE
    assert int(found["clicks", 0].error_code) == wanted
    assert int(found["clicks", 9].error_code) == UNKNOWN_TOPIC


def test_the_end_of_a_cluster_is_any_offset(side):
    of_kafka(side)
    assert side.commit(9, {1: END}) == {1: NONE}


class OfMock(KafkaCatalog):
    """Topics of librdkafka's mock cluster, which cannot list them."""

    def topics(self):
        return {"clicks": CatalogTopic(topic_id_of("clicks"), 5)}


@pytest.fixture(scope="module")
def mock():
    """A cluster with 7 records in topic clicks, partition 0, of 4."""
    with mock_kafka("clicks", {0: 7}) as address:
        yield address


def catalog(address):
    return OfMock({"bootstrap.servers": address, **QUIET})


def test_a_client_gets_what_the_cluster_says(mock):
    with served(catalog(mock)) as (_, address):
        admin = AdminClient({"bootstrap.servers": address})
        places = [ck.TopicPartition("clicks", p) for p in range(5)]
        asked = dict.fromkeys(places, OffsetSpec.latest())
        futures = list(admin.list_offsets(asked, request_timeout=30).values())
        assert [one.result().offset for one in futures[:4]] == [7, 0, 0, 0]
        with pytest.raises(ck.KafkaException, match="Unknown topic or partition"):
            futures[4].result()  # the catalog has it, and the cluster has it no more


def test_a_cluster_that_does_not_answer_is_asked_again_and_never_0(caplog):
    silent = catalog("127.0.0.1:1")
    for _ in range(2):
        found = silent.find_offsets({("clicks", 0): LATEST, ("clicks", 1): EARLIEST}, 0, 0.1)
        assert [one["error_code"] for one in found.result().response.values()] == [5, 5]
    (line,) = [r for r in caplog.records if "returns no offsets" in r.getMessage()]
    assert "ask again" in line.getMessage()


def test_a_cluster_whose_client_has_ended_is_answered_for():
    gone = catalog("127.0.0.1:1")
    gone._cluster._admin = None
    found = gone.find_offsets({("clicks", 0): LATEST}, 0, 10)
    assert found.result(30).response == {("clicks", 0): {"error_code": 5}}


def test_others_are_answered_while_the_cluster_is_silent(mock):
    """The request waits for its deadline, 10 s; no other does."""
    with served(catalog("127.0.0.1:1")) as (coordinator, address):
        assert coordinator.find_offsets is not None
        admin = AdminClient({"bootstrap.servers": address})
        place = ck.TopicPartition("clicks", 0)
        waiting = admin.list_offsets({place: OffsetSpec.latest()}, request_timeout=30)[place]
        for _ in range(3):
            assert AdminClient({"bootstrap.servers": address}).list_topics(timeout=5).topics
        assert not waiting.done()
