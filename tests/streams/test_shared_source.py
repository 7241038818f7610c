"""Drivers that share a topic: what each reads, commits and lets go of, without a JVM."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from itertools import count

import confluent_kafka as ck
import pytest

import spark_jobs
from coordinator import Coordinator, GroupError, Member, TopicPartition
from coordinator.errors import ErrorCode
from spark_jobs.streams.batch_bounds import Pace, bound_batch
from tests.clients.kafka_broker.mock import mock_kafka
from tests.member.runs import PATIENCE_S, QUICK, Cut, until

P = [TopicPartition("clicks", number) for number in range(4)]
RECORDS = {0: 10, 1: 6, 2: 4}


class Reader:
    """What stands in for Spark: a frame is the ranges that were asked for."""

    def __init__(self):
        self.words = {}

    @property
    def read(self):
        return Reader()

    def format(self, name):
        assert name == "kafka"
        return self

    def options(self, **words):
        self.words |= words
        return self

    def option(self, name, value):
        self.words[name] = value
        return self

    def load(self):
        begins, ends = (json.loads(self.words[f"{at}Offsets"]) for at in ("starting", "ending"))
        assert json.loads(self.words["assign"]) == {
            topic: sorted(map(int, of_topic)) for topic, of_topic in ends.items()
        }
        return [
            (TopicPartition(topic, int(number)), offset)
            for topic, of_topic in ends.items()
            for number, end in of_topic.items()
            for offset in range(begins[topic][number], end)
        ]


@pytest.fixture(scope="module")
def kafka():
    with mock_kafka("clicks", RECORDS) as address:
        yield address


@pytest.fixture(scope="module")
def coordinator():
    with Coordinator.open(None, config=QUICK, topics={"clicks": 4}) as found:
        yield found


@pytest.fixture
def group(request):
    return request.node.name


@pytest.fixture
def join(coordinator, group):
    opened = []

    def join(by=coordinator, group_id=group, **words):
        opened.append(Member(by, group_id=group_id, topics="clicks", **words).open())
        assert until(lambda: opened[-1].owned)
        return opened[-1]

    yield join
    for member in opened:
        member.leave()


def source_of(member, kafka, **words):
    return spark_jobs.shared_source(Reader(), member, kafka=kafka, **{"interval_s": 0.02} | words)


@contextmanager
def running(source, work):
    failed = []

    def run():
        try:
            source.run(work)
        except Exception as error:  # noqa: BLE001 - the test asks
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        source.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def rows(records=None):
    found = RECORDS if records is None else records
    return sorted((P[number], at) for number, total in found.items() for at in range(total))


def test_a_coordinator_has_no_records(join, coordinator):
    """Spark would wait two minutes for the first, and fail without a word of why."""
    with coordinator.serve("127.0.0.1:0") as serving:
        source = source_of(join(serving.address), serving.address)
        with pytest.raises(ValueError, match="has no records: it is a coordinator of Muster's"):
            source.run(lambda *_: None, timeout=10)


def test_one_driver_reads_all_once_and_its_group_says_so(join, kafka):
    member, seen, numbers = join(), [], []
    source = source_of(member, kafka)

    def work(frame, number):
        seen.extend(frame)
        numbers.append(number)

    source.run(work, idle_timeout=0.2)
    assert sorted(seen) == rows()
    assert numbers == [0]
    assert (source.batches, source.records, source.lag, source.fenced) == (1, 20, 0, 0)
    assert member.committed_offsets(P) == {P[0]: 10, P[1]: 6, P[2]: 4}
    source.run(work, idle_timeout=0.1)
    assert len(seen) == 20


def test_a_driver_asks_each_second_for_what_others_leave(kafka, group):
    """By Kafka's defaults it would ask every 5 s."""
    with (
        Coordinator.open(None, topics={"clicks": 4}) as coordinator,
        Member(by := Cut(coordinator), group_id=group, topics="clicks") as member,
    ):
        assert until(lambda: member.owned)
        source_of(member, kafka).run(lambda *_: None, idle_timeout=0)
        before, began = by.asked, time.monotonic()
        assert until(lambda: by.asked > before)
        assert time.monotonic() - began < 4


def test_bounds_of_records_and_weights(join, kafka):
    member, sizes = join(), []
    source = source_of(member, kafka, max_records=8, weights={"clicks": 1, P[0]: 4.0})
    source.run(lambda frame, _: sizes.append(len(frame)), idle_timeout=0.2)
    assert sum(sizes) == 20
    assert max(sizes) < 8
    assert source.batches == len(sizes) > 3


def test_partitions_move_between_batches_and_every_row_is_done_once(join, kafka):
    ann, bob = join(), None
    seen, in_work, moved = {"ann": [], "bob": []}, threading.Event(), threading.Event()

    def ann_works(frame, _):
        in_work.set()
        moved.wait(PATIENCE_S)
        time.sleep(0.01)
        seen["ann"].extend(frame)

    first = source_of(ann, kafka, max_records=6)
    with running(first, ann_works) as failed:
        assert in_work.wait(PATIENCE_S)
        joining = Member(ann._coordinator, group_id=ann.group_id, topics="clicks").open()
        try:
            bob = source_of(joining, kafka, max_records=6)
            with running(bob, lambda frame, _: seen["bob"].extend(frame)) as too:
                time.sleep(0.3)
                assert joining.owned == frozenset()
                moved.set()
                assert until(lambda: len(seen["ann"]) + len(seen["bob"]) >= 20)
                time.sleep(0.1)
            assert (failed, too) == ([], [])
        finally:
            joining.leave()
    assert sorted(seen["ann"] + seen["bob"]) == rows()
    assert seen["bob"]


def test_a_batch_whose_partition_is_lost_is_left_to_the_next_owner(coordinator, join, kafka, group):
    cut = Cut(coordinator)
    ann, seen, lost = join(cut), [], []

    def ann_works(_frame, _):
        if not lost:
            cut.cut = True
            with Member(coordinator, group_id=group, topics="clicks") as bob:
                assert until(lambda: len(bob.owned) == 4)
                source_of(bob, kafka).run(lambda frame, _: lost.extend(frame), idle_timeout=0.2)
            cut.cut = False
        else:
            seen.append(_frame)

    source = source_of(ann, kafka)
    source.run(ann_works, idle_timeout=3)
    assert sorted(lost) == rows()
    assert (source.fenced, source.batches, seen) == (1, 0, [])
    assert ann.committed_offsets(P) == {P[0]: 10, P[1]: 6, P[2]: 4}


def test_fenced_from_work_is_no_failure_and_anything_else_is(join, kafka):
    member, tries = join(), count()

    def fenced_once(frame, _):
        if next(tries) == 0:
            raise GroupError(ErrorCode.STALE_MEMBER_EPOCH, "clicks-0 is another's")
        seen.extend(frame)

    seen = []
    source = source_of(member, kafka)
    source.run(fenced_once, idle_timeout=0.3)
    assert (source.fenced, sorted(seen)) == (1, rows())

    for error in (OSError("disk full"), ValueError("x"), GroupError(ErrorCode.NOT_COORDINATOR, "")):

        def fails(_frame, _number, error=error):
            raise error

        with Member(member._coordinator, group_id=f"{error!r}", topics="clicks") as other:
            assert until(lambda o=other: len(o.owned) == 4)
            with pytest.raises(type(error)):
                source_of(other, kafka).run(fails, timeout=5)
            assert other.committed_offsets(P) == {}
            assert not other.has_left


def test_leaving_and_stopping_end_the_loop_after_the_batch(join, kafka):
    for end in ("stop", "leave"):
        member = join(group_id=f"ends-{end}")
        assert until(lambda m=member: len(m.owned) == 4)
        source = source_of(member, kafka, max_records=4)

        def work(_frame, _number, end=end, member=member, source=source):
            source.stop() if end == "stop" else member.leave()

        source.run(work)
        assert source.batches == 1
        assert until(lambda m=member, e=end: m.has_left == (e == "leave"))


def test_a_cluster_that_is_down_is_waited_for(join, kafka, caplog):
    member = join()
    source = source_of(member, "127.0.0.1:9")
    source.run(lambda _frame, _number: None, timeout=0.5)
    assert source.batches == 0
    assert caplog.text.count("cannot find out what there is to read, trying again") == 1
    assert member.owned


def test_records_that_are_gone_are_refused_or_passed_over(join, kafka, monkeypatch):
    member = join()
    assert until(lambda: len(member.owned) == 4)
    member.commit({P[0]: 2, P[1]: 3, P[2]: 4})
    source = source_of(member, kafka)
    monkeypatch.setattr(source._topics, "offsets", cut_off(source._topics.offsets, P[0], 5))
    with pytest.raises(spark_jobs.OffsetsGoneError, match="clicks-0 begins at 5, and the group is"):
        source.run(lambda _frame, _number: None, timeout=5)
    seen = []
    source = source_of(member, kafka, options={"failOnDataLoss": False})
    monkeypatch.setattr(source._topics, "offsets", cut_off(source._topics.offsets, P[0], 5))
    source.run(lambda frame, _number: seen.extend(frame), idle_timeout=0.2)
    assert sorted(seen) == [(P[0], at) for at in range(5, 10)] + [(P[1], at) for at in range(3, 6)]


def cut_off(ask, place, first):
    async def offsets(places, at, **words):
        found = await ask(places, at, **words)
        return found | {place: max(found[place], first)}

    return offsets


def test_from_the_latest_is_written_down_at_once(join):
    member, seen = join(), []
    assert until(lambda: len(member.owned) == 4)
    with mock_kafka("clicks", RECORDS) as kafka:  # of its own: it writes there
        source = source_of(member, kafka, starting="latest")
        source.run(lambda frame, _number: seen.extend(frame), idle_timeout=0.1)
        assert (seen, member.committed_offsets(P)) == ([], {P[0]: 10, P[1]: 6, P[2]: 4, P[3]: 0})
        producer = ck.Producer({"bootstrap.servers": kafka})
        producer.produce("clicks", b"x", partition=3)
        assert producer.flush(20) == 0
        source.run(lambda frame, _number: seen.extend(frame), idle_timeout=0.1)
        assert seen == [(P[3], 0)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"kafka": "nowhere"}, "'nowhere' is not an address"),
        ({"starting": "newest"}, "starting is 'newest'"),
        ({"max_records": 0}, "max_records is 0"),
        ({"max_records": True}, "max_records is True"),
        ({"batch_s": float("nan")}, "batch_s is nan"),
        ({"interval_s": -1}, "interval_s is -1"),
        ({"weights": {"clicks": -1}}, "the weight of clicks is -1"),
        ({"options": {"startingOffsets": "earliest"}}, "'startingOffsets' is not to be given"),
        ({"options": {"Kafka.Bootstrap.Servers": "x"}}, "not to be given: give kafka"),
        ({"options": {"maxOffsetsPerTrigger": 5}}, "give max_records"),
        ({"login": ("PLAIN", "a")}, "login is not"),
        ({"member": "billing"}, "member is 'billing'"),
    ],
)
def test_bad_options_are_refused(coordinator, words, said):
    given = {"member": Member(coordinator, group_id="g", topics="clicks"), "kafka": "127.0.0.1:1"}
    with pytest.raises(ValueError, match=said):
        spark_jobs.shared_source(Reader(), **given | words)


def test_a_login_is_the_executors_too(coordinator):
    member = Member(coordinator, group_id="g", topics="clicks")
    login = ("SCRAM-SHA-256", "ann", 'a"b\\c')
    found = spark_jobs.shared_source(Reader(), member, kafka=["a:1", "b:2"], login=login)
    assert found._options.spark == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        r' username="ann" password="a\"b\\c";',
    }


def test_misuse_is_said(join, kafka):
    member = join()
    source = source_of(member, kafka)
    with pytest.raises(TypeError, match="work is None"):
        source.run(None)
    with running(source, lambda _frame, _number: None):
        assert until(lambda: source.batches)
        with pytest.raises(RuntimeError, match="running already"):
            source.run(print)


def test_a_member_that_is_not_open_or_was_refused_is_an_error(coordinator, kafka):
    member = Member(coordinator, group_id="closed", topics="clicks")
    with pytest.raises(RuntimeError, match="the member is not open"):
        source_of(member, kafka).run(print)
    with Member(coordinator, group_id="closed", pattern="(") as member:
        with pytest.raises(GroupError, match=r"\("):
            source_of(member, kafka).run(print, timeout=20)
        assert until(lambda: member.has_left)
        with pytest.raises(GroupError, match=r"\("):
            source_of(member, kafka).run(print)


def test_what_a_batch_may_have():
    lags = {P[0]: 1_000, P[1]: 10, P[2]: 0}
    assert bound_batch(lags, None, {}) == {P[0]: 1_000, P[1]: 10}
    assert bound_batch(lags, 101, {}) == {P[0]: 100, P[1]: 1}
    assert bound_batch(lags, 1, {}) == {P[0]: 1, P[1]: 1}
    assert bound_batch(lags, 5_000, {"clicks": 100, P[1]: 0}) == {P[0]: 50, P[1]: 1}
    assert bound_batch({}, 5, {}) == {}


def test_batches_grow_and_shrink_to_the_time_that_they_may_take():
    assert Pace(None).limit() is None
    pace = Pace(2.0, first=100)
    for weight, took_s, limit in ((100, 0.5, 200), (200, 2.0, 200), (200, 40, 100), (3, 0, 200)):
        pace.note(weight, took_s)
        assert pace.limit() == limit
