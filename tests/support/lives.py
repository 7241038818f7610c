"""A small life of a group, as records, and a log that has been claimed, for tests of the log."""

from __future__ import annotations

from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MemberState,
    TargetMember,
    TargetMetadata,
)
from coordinator.storage.delta_log import DeltaLog, read_log

FOO = TopicKey("foo", "id-foo")


def life(epoch, members=3):
    """Return the records of one epoch of a group: different from epoch to epoch."""
    records = [GroupMetadata("g", epoch, 2**63 + epoch, "member joined", f"m{epoch}")]
    for at in range(members):
        name = f"m{at}"
        span = (FOO, 10 * at, 10 * at + epoch)
        records += [
            MemberMetadata("g", name, subscribed_topic_names=("bar", "foo")),
            TargetMember("g", name, (span,)),
            CurrentMember("g", name, epoch, epoch - 1, MemberState.STABLE, ((*span, epoch),)),
        ]
    return [*records, TargetMetadata("g", epoch, 0, "uniform")]


def claimed(store, **more):
    """Return a coordinator's log, ready for appends."""
    log = DeltaLog(store, **more)
    log.claim("me", "", 1)
    return log


def replayed(log):
    """Return the records that a coordinator replays."""
    return [record for batch in log.replay() for record in batch.records]


def rows_of(store):
    """Return the records that anybody reads."""
    return [record for batch in read_log(store) for record in batch.records]
