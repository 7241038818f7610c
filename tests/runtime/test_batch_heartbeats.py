"""Many steady heartbeats at once: answered exactly as one by one, with as little to write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator import Coordinator
from coordinator.config import Config
from coordinator.config.kafka import kafka_config
from coordinator.core.events import CatalogTopic, Heartbeat, TopicsReported
from coordinator.core.state.records import MembersAdvanced
from coordinator.core.state.rows.fold_rows import RowFolder, count_objects
from coordinator.errors import ErrorCode
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.responses import heartbeat_answer, heartbeat_answers
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import MemoryLog, MemoryRecords
from tests.support.coordinator_core import SESSION_MS
from tests.support.fingerprint import fingerprint
from tests.support.invariants import as_large_groups

IDS = [f"m{number}" for number in range(5)]
beats = st.lists(st.tuples(st.sampled_from([*IDS, "nobody"]), st.integers(-2, 9)), max_size=12)
settled = st.booleans()


class Side:
    """A group of five; in the end some have reached its newest epoch, others not."""

    def __init__(self, *, settle, leaver, wished):
        self.now, self.storage = 1_000_000, MemoryRecords()
        log = MemoryLog(self.storage)
        log.claim("test", "", self.now)
        config = Config(kafka=kafka_config({"group.consumer.assignment.interval.ms": 0}))
        self.processor = EventProcessor(log, config, lambda: self.now, DictCatalog({"a": 3}))
        self.processor.load()
        for member_id in IDS:
            self.processor.run(
                [
                    Heartbeat(
                        "g", member_id, 0, rebalance_timeout_ms=60_000, topic_partitions={},
                        subscribed_topic_names=["a"], server_assignor=wished.get(member_id),
                    )
                ]
            )  # fmt: skip
        for _ in range(settle):
            for member_id in IDS:
                epoch = self.processor.state.groups["g"].members[member_id].epoch
                self.processor.run([Heartbeat("g", member_id, epoch, topic_partitions={})])
        if leaver is not None:
            self.processor.run([Heartbeat("g", leaver, -1)])

    def timers(self):
        return [(due.key, due.at_ms, due.epoch) for due in self.processor.timers.all()]


@given(
    beats,
    st.integers(0, 3),
    st.none() | st.sampled_from(IDS),
    st.dictionaries(st.sampled_from(IDS), st.sampled_from(["uniform", "range"]), max_size=2),
)
def test_many_are_answered_as_one_by_one(asked, settle, leaver, wished):
    one, many = (Side(settle=settle, leaver=leaver, wished=wished) for _ in range(2))
    for side in (one, many):
        side.now += SESSION_MS // 2
    expected = [heartbeat_answer(one.processor.run([Heartbeat("g", *beat)])[0]) for beat in asked]
    ids, epochs = [beat[0] for beat in asked], [beat[1] for beat in asked]
    found = heartbeat_answers(ids, many.processor.run_heartbeats("g", ids, epochs))
    assert found == expected
    assert fingerprint(many.processor.state) == fingerprint(one.processor.state)
    assert many.timers() == one.timers()


def test_an_epoch_that_changes_nothing_is_one_record_for_all():
    side = Side(settle=3, leaver=None, wished={})
    group = side.processor.state.groups["g"]
    idle = [m for m in IDS if not group.targets[m]]  # five members, three partitions
    side.processor.run([Heartbeat("g", idle[0], -1)])
    (other,) = idle[1:]
    epochs = {m: group.members[m].epoch for m in IDS if m in group.members}
    side.processor.run([Heartbeat("g", other, epochs.pop(other))])  # makes the next target
    written = len(side.storage.batches)
    answers = side.processor.run_heartbeats("g", list(epochs), list(epochs.values()))
    assert [answer.member_epoch for answer in answers] == [group.epoch] * len(epochs)
    (batch,) = side.storage.batches[written:]
    assert batch.records == [MembersAdvanced("g", group.epoch, tuple(epochs))]


def test_a_batch_that_loses_the_log_on_its_way_answers_no_member():
    """What was steady before the loss was seen must not leave after it."""
    side = Side(settle=3, leaver=None, wished={})
    epoch = side.processor.state.groups["g"].members["m0"].epoch
    MemoryLog(side.storage).claim("successor", "", side.now)
    ids, epochs = ["m0", "m1", "m2", "m0"], [epoch, epoch, -1, epoch]
    answers = side.processor.run_heartbeats("g", ids, epochs)
    assert [answer.code for answer in answers] == [ErrorCode.NOT_COORDINATOR] * 4


def test_a_closed_coordinator_answers_each():
    coordinator = Coordinator.open(None, topics={"a": 1})
    coordinator.close()
    answers = coordinator.steady_heartbeats("g", ["m1", "m2"], [1, 1])
    assert [answer.error for answer in answers] == ["COORDINATOR_NOT_AVAILABLE"] * 2


def test_members_become_rows_again_between_batches():
    side = Side(settle=3, leaver=None, wished={})
    log = MemoryLog(side.storage)
    log.claim("next", "", side.now)
    catalog = DictCatalog({"a": 3})
    with as_large_groups():
        processor = EventProcessor(log, side.processor.config, lambda: side.now, catalog)
        processor.load()
    processor.decider.folder = RowFolder(lambda *_: True)
    processor.run([TopicsReported({"a": CatalogTopic("a", 20, ())})])
    objects = []
    for _ in range(4):
        for member_id in IDS:
            member = processor.state.groups["g"].members[member_id]
            owned = {}
            for key, first, end, _ in member.current.assigned:
                owned.setdefault(key.topic_id, []).extend(range(first, end))
            processor.run([Heartbeat("g", member_id, member.epoch, topic_partitions=owned)])
        objects.append(count_objects(processor.state.groups["g"]))
        before = fingerprint(processor.state)
        for _ in range(3):
            processor.tick()
        assert fingerprint(processor.state) == before
    group = processor.state.groups["g"]
    assert group.state == "Stable"
    assert (objects[0] > 0, count_objects(group)) == (True, 0)


def test_a_fold_that_fails_drops_memory_and_is_the_last(caplog):
    side = Side(settle=3, leaver=None, wished={})
    tries = []

    def is_due(group, _):
        tries.append(group.group_id)
        group.epoch += 1  # left half done
        raise ValueError("a row that is none")

    side.processor.decider.folder = RowFolder(is_due)
    before, state = fingerprint(side.processor.state), side.processor.state
    for _ in range(2):
        side.processor.decider.folder.note("g")
        side.processor.tick()
    assert (tries, side.processor.state is state) == (["g"], False)
    assert fingerprint(side.processor.state) == before
    assert "members at rest stay objects" in caplog.text
