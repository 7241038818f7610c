"""A query's offsets in a group: what a listener hears, and what is committed of it."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import time
import uuid
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY
from pyspark.sql.streaming.listener import StreamingQueryProgress

import spark_jobs
from coordinator import Coordinator, Member, TopicPartition
from spark_jobs.streams.background_commits import BackgroundCommits
from spark_jobs.streams.group_offsets import read_offsets
from tests.member.runs import QUICK

TOPICS = {"clicks": 4, "views": 2}
KAFKA = "KafkaV2[Subscribe[clicks]]"


@pytest.fixture(scope="module")
def served():
    with (
        Coordinator.open(None, config=QUICK, topics=TOPICS) as coordinator,
        coordinator.serve("127.0.0.1:0") as serving,
    ):
        yield coordinator, serving.address


@pytest.fixture
def group(request):
    return request.node.name


@pytest.fixture
def listen(served, group):
    """Make listeners, which end with the test."""
    made = []

    def make(address=served[1], group_id=group, **words):
        made.append(spark_jobs.GroupOffsets(address, group_id, **words))
        return made[-1]

    yield make
    for one in made:
        one.close(0.1)


def progress(*ends, run="r", name=None, descriptions=()):
    described = descriptions or [KAFKA] * len(ends)
    sources = [
        SimpleNamespace(
            description=text, endOffset=end if isinstance(end, str) else json.dumps(end)
        )
        for text, end in zip(described, ends, strict=True)
    ]
    return SimpleNamespace(progress=SimpleNamespace(runId=run, name=name, sources=sources))


def committed(served, group):
    given = json.loads(spark_jobs.starting_offsets(served[1], group, list(TOPICS)))
    return {
        TopicPartition(topic, int(number)): offset
        for topic, of_topic in given.items()
        for number, offset in of_topic.items()
        if offset >= 0
    }


def at(clicks):
    return {TopicPartition("clicks", number): offset for number, offset in clicks.items()}


def test_each_batch_ends_where_the_group_is(served, group, listen):
    offsets = listen()
    offsets.onQueryProgress(progress({"clicks": {"0": 5, "1": 7}}))
    assert offsets.flush(10)
    assert committed(served, group) == at({0: 5, 1: 7})
    offsets.onQueryProgress(progress({"clicks": {"0": 6, "1": 7}}))
    assert offsets.flush(10)
    assert committed(served, group) == at({0: 6, 1: 7})
    assert (offsets.committed, offsets.failures, offsets.error) == (3, 0, None)  # 1 was not again


def test_several_sources_and_queries(served, group, listen, caplog):
    offsets = listen()
    offsets.onQueryProgress(progress({"clicks": {"0": 9}}, {"views": {"1": 3}}, run="a"))
    offsets.onQueryProgress(progress({"clicks": {"0": 4, "2": 1}}, run="b"))
    assert offsets.flush(10)
    views = {TopicPartition("views", 1): 3}
    assert committed(served, group) == at({0: 4, 2: 1}) | views
    assert "topic clicks has several readers in group" in caplog.text
    offsets.onQueryTerminated(SimpleNamespace(runId="b"))
    offsets.onQueryProgress(progress({"clicks": {"0": 10}}, {"views": {"1": 3}}, run="a"))
    assert offsets.flush(10)
    assert committed(served, group) == at({0: 10, 2: 1}) | views


def test_a_group_a_query(served, listen):
    offsets = listen(group_id={"slow": "slow-group", "fast": "fast-group"})
    for name, offset in (("slow", 1), ("fast", 9), ("other", 5), (None, 6)):
        offsets.onQueryProgress(progress({"clicks": {"0": offset}}, name=name))
    assert offsets.flush(10)
    assert committed(served, "slow-group") == at({0: 1})
    assert committed(served, "fast-group") == at({0: 9})


def test_sources_that_are_not_kafka_are_passed_over(served, group, listen):
    offsets = listen()
    offsets.onQueryProgress(
        progress("17", '{"clicks": {"0": 1}}', "null", descriptions=["Rate", "Kinesis", KAFKA])
    )
    offsets.onQueryProgress(progress())
    assert offsets.flush(10)
    assert (committed(served, group), offsets.failures) == ({}, 0)


def test_offsets_as_each_session_has_them():
    """Spark Connect's client makes a text of the dict that it decoded."""
    wanted = {TopicPartition("it's", 0): 5, TopicPartition("b", 11): 0}
    given = {"it's": {"0": 5, "1": -2}, "b": {"11": 0}}
    assert read_offsets(json.dumps(given)) == read_offsets(str(given)) == wanted
    assert read_offsets("None") == read_offsets("null") == read_offsets(None) == {}


def test_an_event_of_connect_is_read(served, group, listen):
    given = {
        "id": str(uuid.uuid4()), "runId": str(uuid.uuid4()), "name": None, "timestamp": "",
        "batchId": 0, "batchDuration": 1, "durationMs": {}, "eventTime": {}, "stateOperators": [],
        "sources": [{
            "description": KAFKA, "startOffset": None, "endOffset": {"clicks": {"3": 8}},
            "latestOffset": {"clicks": {"3": 8}}, "numInputRows": 8, "inputRowsPerSecond": 1.0,
            "processedRowsPerSecond": 1.0, "metrics": {},
        }],
        "sink": {"description": "", "numOutputRows": 8, "metrics": {}}, "numInputRows": 8,
        "inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0, "observedMetrics": {},
    }  # fmt: skip
    offsets = listen()
    offsets.onQueryProgress(SimpleNamespace(progress=StreamingQueryProgress.fromJson(given)))
    assert offsets.flush(10)
    assert committed(served, group) == at({3: 8})


def test_a_listener_that_was_added_twice_commits_once(served, group, listen):
    offsets = listen()
    for _ in range(2):
        offsets.onQueryProgress(progress({"clicks": {"0": 5}}))
        assert offsets.flush(10)
    assert offsets.committed == 1
    assert committed(served, group) == at({0: 5})


def test_what_is_refused_is_counted_and_said_and_goes_on(served, group, listen, caplog):
    coordinator, _ = served
    offsets = listen()
    with Member(coordinator, group_id=group, topics=["clicks"]) as member:
        assert member.wait_for_change(10)
        offsets.onQueryProgress(progress({"clicks": {"0": 5}}))
        assert offsets.flush(10)
        assert (offsets.committed, offsets.failures) == (0, 1)
        assert "give a group without consumers" in caplog.text
        assert "UNKNOWN_MEMBER_ID" in str(offsets.error)
    count = "muster_stream_commit_failures_total"
    assert REGISTRY.get_sample_value(count, {"group": group}) == 1
    offsets.onQueryProgress(progress({"clicks": {"0": 6}}))
    assert offsets.flush(10)
    assert offsets.error is None
    assert committed(served, group) == at({0: 6})


def test_a_topic_that_is_gone_does_not_hold_up_others(served, group, listen):
    offsets = listen()
    offsets.onQueryProgress(progress({"gone": {"0": 5}, "clicks": {"0": 2, "77": 3}}))
    assert offsets.flush(10)
    assert committed(served, group) == at({0: 2})
    assert offsets.failures == 1


def test_what_waits_for_a_broker_folds(served, group, listen, caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    offsets = listen(f"127.0.0.1:{port}")
    began = time.monotonic()
    for offset in range(1_000):
        offsets.onQueryProgress(progress({"clicks": {"0": offset, "1": offset}}))
    assert time.monotonic() - began < 10  # nothing waits for what cannot be reached
    assert not offsets.flush(0.3)
    (waits,) = offsets._commits.values()
    assert len(waits._pending | waits._in_flight) == 2
    with served[0].serve(f"127.0.0.1:{port}"):
        assert offsets.flush(30)
    assert committed(served, group) == at({0: 999, 1: 999})
    assert (offsets.failures, offsets.error, caplog.text) == (0, None, "")  # it was soon there


def test_what_lasts_is_a_failure_that_is_said_once_a_minute(group, caplog):
    commits = BackgroundCommits("127.0.0.1:9", group, patience_s=0.2)
    commits.put(at({0: 1}))
    end = time.monotonic() + 20
    while commits.failures < 2 and time.monotonic() < end:
        time.sleep(0.02)
    assert caplog.text.count("are not committed") == 1
    assert isinstance(commits.error, OSError)
    assert not commits.close(0.1)
    assert "closed while 1 wait" in caplog.text


def test_a_program_that_ends_before_a_coordinator_is_there_says_what_waits(group, caplog):
    commits = BackgroundCommits("127.0.0.1:9", group)
    commits.put(at({0: 1, 1: 1}))
    assert not commits.close(0.3)
    assert "closed while 2 wait" in caplog.text
    assert "127.0.0.1:9" in caplog.text


def test_a_program_that_ends_while_a_coordinator_is_silent_says_what_waits(group, caplog):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        commits = BackgroundCommits(address, group)
        commits.put(at({0: 1, 1: 1}))
        assert not commits.close(0.5)
    assert "closed while 2 wait" in caplog.text
    assert address in caplog.text


def test_idle_partitions_stay_committed_beside_busy_ones(served, group):
    """Kafka deletes the offset of a partition that is not committed, whatever others do."""
    commits = BackgroundCommits(served[1], group, refresh_s=0.3)
    try:
        commits.put(at({0: 5}))
        assert commits.flush(10)
        served[0].delete_groups([group])
        end = time.monotonic() + 10
        for offset in itertools.count():
            commits.put(at({1: offset}))
            if TopicPartition("clicks", 0) in committed(served, group):
                break
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        commits.close(0.1)


def test_what_is_on_its_way_as_its_query_ends_is_not_committed_again(served, group):
    commits = BackgroundCommits(served[1], group, refresh_s=0.2)
    try:
        with commits._changed:  # before it can be committed
            commits.put(at({0: 5}))
            commits.forget(at({0: 5}))
        assert commits.flush(10)
        assert committed(served, group) == at({0: 5})
        served[0].delete_groups([group])
        commits.put(at({1: 1}))
        time.sleep(0.5)
        assert committed(served, group) == at({1: 1})
    finally:
        commits.close(0.1)


def test_nothing_that_spark_says_fails_a_query(listen, caplog):
    offsets = listen()
    with caplog.at_level(logging.ERROR):
        offsets.onQueryProgress(progress("no json"))
        offsets.onQueryProgress(None)
    assert caplog.text.count("the offsets of a batch are passed over") == 2
    offsets.onQueryTerminated(SimpleNamespace(runId="unknown"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"kafka": "kafka"}, "'kafka' is not an address"),
        ({"kafka": ""}, "not an address"),
        ({"group_id": ""}, "group_id is ''"),
        ({"group_id": {}}, "group_id is empty"),
        ({"group_id": ["g"]}, r"group_id is \['g'\]"),
        ({"group_id": {"q": ""}}, "group_id is ''"),
        ({"login": ("GSSAPI", "a", "b")}, "unknown mechanism 'GSSAPI'"),
        ({"tls": True}, "tls is True"),
    ],
)
def test_bad_options_are_refused(words, said):
    with pytest.raises(ValueError, match=said):
        spark_jobs.GroupOffsets(**{"kafka": "127.0.0.1:1", "group_id": "g"} | words)


def test_starting_offsets(served, group, listen):
    address = served[1]
    nothing = {str(number): -2 for number in range(4)}
    assert json.loads(spark_jobs.starting_offsets(address, group, "clicks")) == {"clicks": nothing}
    offsets = listen()
    offsets.onQueryProgress(progress({"clicks": {"1": 7}}))
    assert offsets.flush(10)
    found = spark_jobs.starting_offsets(address, group, ["views", "clicks"], otherwise="latest")
    wanted = {"clicks": {"0": -1, "1": 7, "2": -1, "3": -1}, "views": {"0": -1, "1": -1}}
    assert json.loads(found) == wanted


@pytest.mark.parametrize(
    ("topics", "words", "said"),
    [
        ([], {}, "topics is empty"),
        ("nothing", {}, "there is no topic nothing"),
        ([""], {}, r"topics\[0\] is ''"),
        ("clicks", {"otherwise": "newest"}, "otherwise is 'newest'"),
    ],
)
def test_starting_offsets_refuse(served, group, topics, words, said):
    with pytest.raises(ValueError, match=said):
        spark_jobs.starting_offsets(served[1], group, topics, **words)
