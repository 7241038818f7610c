"""Random records of every kind, for tests of the log."""

from __future__ import annotations

from hypothesis import strategies as st

from coordinator.core.partition_spans import TopicKey
from coordinator.core.records import (
    KINDS,
    PARTITION_METADATA,
    Audited,
    ComputationPrepared,
    CurrentMember,
    GroupConfigured,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    OffsetCommitted,
    ProposalJudged,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.storage.record_encoder import NAME_COLUMN

texts = st.text(max_size=6)
some_text = st.text(min_size=1, max_size=6)
maybe_text = st.none() | texts
epochs = st.integers(-2, 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
maybe_long = st.none() | longs
partitions = st.integers(0, 2**30)
names = st.lists(texts, max_size=3).map(tuple)
keys = st.builds(TopicKey, st.sampled_from(["a", "b", ""]), st.sampled_from(["id1", "id2"]))


def spans(*more):
    one = st.builds(
        lambda key, first, count, *rest: (key, first, first + count, *rest),
        keys,
        partitions,
        st.integers(1, 2**29),
        *more,
    )
    return st.lists(one, max_size=3).map(tuple)


def _tombstone(kind, group_id, member_id, name, partition):
    return Tombstone(kind, group_id, member_id, name if kind in NAME_COLUMN else None, partition)


RECORDS = {
    GroupMetadata: st.builds(
        GroupMetadata, texts, epochs, st.integers(0, 2**64 - 1), texts, maybe_text
    ),
    MemberMetadata: st.builds(
        MemberMetadata,
        texts,
        texts,
        maybe_text,
        maybe_text,
        texts,
        texts,
        names,
        texts,
        longs,
        maybe_text,
    ),
    TargetMetadata: st.builds(
        TargetMetadata,
        texts,
        epochs,
        longs,
        texts,
        longs,
        st.booleans(),
        maybe_text,
        maybe_long,
        maybe_long,
        maybe_long,
        maybe_long,
    ),
    TargetMember: st.builds(TargetMember, texts, texts, spans()),
    CurrentMember: st.builds(
        CurrentMember,
        texts,
        texts,
        epochs,
        epochs,
        st.sampled_from(MemberState),
        spans(epochs),
        spans(epochs),
    ),
    MembersAdvanced: st.builds(MembersAdvanced, texts, epochs, names),
    RegexResolved: st.builds(RegexResolved, texts, texts, names, longs, longs),
    OffsetCommitted: st.builds(
        OffsetCommitted, texts, texts, texts, partitions, longs, epochs, texts, longs
    ),
    GroupConfigured: st.builds(GroupConfigured, texts, st.dictionaries(texts, texts, max_size=3)),
    TopicChanged: st.builds(
        TopicChanged, texts, texts, partitions, st.lists(names, max_size=3).map(tuple)
    ),
    ComputationPrepared: st.builds(ComputationPrepared, texts, texts, epochs, longs),
    ProposalJudged: st.builds(ProposalJudged, texts, texts, epochs, texts),
    Audited: st.builds(
        Audited, texts, texts, texts, texts, texts, st.dictionaries(texts, texts, max_size=3)
    ),
    Tombstone: st.builds(
        _tombstone,
        st.sampled_from(sorted({*KINDS, PARTITION_METADATA} - {Tombstone.kind})),
        texts,
        maybe_text,
        maybe_text,
        st.none() | partitions,
    ),
}
anything = st.lists(st.one_of(*RECORDS.values()), min_size=1, max_size=12)
