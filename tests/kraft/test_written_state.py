"""Groups that Muster decides about, as Kafka's records, are the same groups where these are read.

The recorded walks are played; what Muster writes is made Kafka's records, batches, and read again.
"""

from dataclasses import replace

import msgspec
import pytest

from coordinator.core.state.classic_written import record_of
from coordinator.core.state.groups import State, TopicView
from coordinator.core.state.partition_spans import Holding
from coordinator.core.state.record_fields import Mark, fields_of
from coordinator.core.state.records import (
    ClassicGroupWritten,
    GroupMetadata,
    MemberMetadata,
    TargetMetadata,
    TopicChanged,
)
from coordinator.core.state.replay import replay, replay_all
from coordinator.kraft.batch_writer import Change, write_batches
from coordinator.kraft.record_writer import RecordWriter
from coordinator.trace.json_trace import JsonTrace
from coordinator.watcher.record_batches import read_batches
from coordinator.watcher.translator import Translator
from tests.conftest import GOLDEN

WALKS = sorted([*GOLDEN.glob("traces/*.jsonl"), *GOLDEN.glob("classic/*.jsonl")])
LIMIT = 1_048_588
LEAP = 23
"""Every so many walks are enough, of 185, where they take no longer than a second."""


def bare(record):
    """A record without the fields that are Muster's own."""
    return msgspec.to_builtins(
        {
            field.name: getattr(record, field.name)
            for field in fields_of(type(record))
            if Mark.OWN not in field.marks and field.type != Holding
        }
    )


def held(current):
    """Each partition of a member with its epoch: where spans are cut says nothing."""
    return [
        {(key, number): epoch for key, first, end, epoch in spans for number in range(first, end)}
        for spans in (current.assigned, current.pending)
    ]


def shown(state):
    """What Kafka's records say of a state."""
    groups = {
        group.group_id: (
            (group.epoch, group.metadata_hash, group.assignment_epoch, group.assignment_timestamp),
            {name: bare(record) for name, record in group.regexes.items()},
            {
                member_id: (
                    bare(member.meta),
                    (bare(member.current), *held(member.current)),
                    group.targets.get(member_id),
                )
                for member_id, member in group.members.items()
            },
        )
        for group in state.groups.values()
    }
    classic = {name: bare(record_of(group)) for name, group in state.classic.items()}
    for one in classic.values():
        for member in one["members"]:
            del member["assigned"], member["subscribed_topic_names"]  # ours, of the bytes
    offsets = {
        (group_id, *at): bare(one)
        for group_id, found in state.offsets.items()
        for at, one in found.items()
    }
    return groups, classic, offsets


class WrittenLog:
    """Kafka's log of what Muster writes, and the state that a reader of it has."""

    def __init__(self):
        self.state, self.writer, self.written, self.read = State(), RecordWriter(), [], []
        self.translator = Translator(lambda: TopicView.now(self.state))
        self.end = 0

    def append(self, records, at_ms):
        for record in records:
            if isinstance(record, TopicChanged) or getattr(record, "of", "") == TopicChanged.kind:
                replay(self.state, record)  # of the cluster's metadata
        written = self.writer.write(records, lambda record: record.metadata_hash)
        self.writer.keep(written)
        for raw in write_batches([Change(written.records, at_ms)], self.end, 0, LIMIT):
            (batch,) = read_batches(raw)
            self.end = batch.last_offset + 1
            self.written += batch.records
            event = self.translator.take(batch.records)
            self.read += event.records if event else ()
            replay_all(self.state, event.records if event else ())

    def compacted(self):
        """The state of a reader who has the last record of each key."""
        state = replace(self.state, groups={}, subscribers={}, classic={}, offsets={})
        replay_all(state, self.translator.load(self.written).records)
        return state


def play(walk):
    """The batches that Muster writes in a walk."""
    trace = JsonTrace()
    for line in walk.read_text().splitlines():
        op = msgspec.json.decode(line)
        trace.run(op["op"] if isinstance(op.get("op"), dict) else op)
    return trace.player.processor.log.storage.batches


def own_of(records):
    """What records say that Kafka's have no field for."""
    fields = {
        GroupMetadata: ("epoch", "reason", "member_id", "owner_left"),
        ClassicGroupWritten: ("generation", "reason", "member_id", "assignor", "moved"),
        TargetMetadata: ("assignment_epoch", "assignor", "moved", "partial"),
        MemberMetadata: ("member_id", "server_assignor", "client_software"),
    }
    kept = (one for one in records if type(one) in fields)
    return [(one.group_id, *(getattr(one, f) for f in fields[type(one)])) for one in kept]


@pytest.mark.parametrize("part", range(4))
def test_what_is_written_makes_the_same_groups(part):
    for walk in WALKS[part::LEAP]:
        log, state, ours = WrittenLog(), State(), []
        for batch in play(walk):
            ours += batch.records
            replay_all(state, batch.records)
            log.append(batch.records, batch.at_ms)
            assert shown(log.state) == shown(state), walk.stem
        assert own_of(log.read) == own_of(ours), walk.stem
        loaded, known = shown(log.compacted()), shown(state)
        for at, one in known[-1].items():
            if not one["topic_id"]:  # committed while there was no such topic: of any that comes
                loaded[-1][at]["topic_id"] = ""
        assert loaded == known, walk.stem
