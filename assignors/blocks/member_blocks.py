"""Blocks of members, and what they own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Bools, Ints, Longs, expand_runs, label_lists, offsets_of, sum_by
from assignors.blocks.packets import LOADS, MEMBERS, Packet, make_packet
from assignors.compressed_problem import Cells, CompressedProblem, Leaves
from assignors.group_spec import GroupSpec
from assignors.ownership import Ownership
from assignors.prior_ownership import ReleasedOwnership, SubscribedPairs
from assignors.water_level import Histogram

_HELD = ("member", "topic", "first", "count")
SAMPLES = 64
"""So many instance ids, and ids of others, of each block say where blocks are to begin."""


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """What all tasks know of a group.

    Attributes
    ----------
    topics, partitions
        All topics, by name.
    class_offsets, class_topics
        The topics of each class.
    parts
        The classes and topic classes that are connected, as cells.
    rank
        The number of each class, where that is another one than in packets.
    """

    topics: pa.StringArray
    partitions: Longs
    class_offsets: Longs
    class_topics: Ints
    parts: Cells
    rank: Longs | None = None

    @classmethod
    def of(
        cls,
        topics: pa.StringArray,
        partitions: Longs,
        size: Longs,
        class_offsets: Longs,
        class_topics: Ints,
    ) -> KnownGroup:
        """Compress a group of classes of some sizes; those without members subscribe to nothing."""
        if not size.all():
            lengths = np.diff(class_offsets)
            class_topics = class_topics[np.repeat(size > 0, lengths)]
            class_offsets = offsets_of(np.where(size > 0, lengths, 0))
        problem = CompressedProblem.of_classes(size, class_offsets, class_topics, partitions)
        return cls(topics, partitions, class_offsets, class_topics, connect(problem))

    @property
    def eligible(self) -> SubscribedPairs:
        """Which class subscribes to which topic."""
        return SubscribedPairs.of(self.class_offsets, self.class_topics, len(self.topics))

    @property
    def competing(self) -> Bools:
        """Whether each class shares topics with others, if only by way of third ones."""
        return ~self.parts.alone[self.parts.of_class]

    def rank_of(self, class_: Ints) -> Longs:
        """Return the numbers of classes of packets."""
        return (class_ if self.rank is None else self.rank[class_]).astype(np.int64)

    def renumbered(self, order: Longs) -> KnownGroup:
        """Number class `order[i]` i; classes that are not in `order` have no members."""
        lists = np.split(self.class_topics, self.class_offsets[1:-1])
        chosen = [lists[at] for at in order.tolist()]
        rank = np.full(len(self.class_offsets) - 1, -1, dtype=np.int64)
        rank[order] = np.arange(len(order))
        none = self.class_topics[:0]
        again = KnownGroup.of(
            self.topics,
            self.partitions,
            self.parts.problem.size[order],
            offsets_of(np.array([len(item) for item in chosen], dtype=np.int64)),
            np.concatenate([*chosen, none]),
        )
        return replace(again, rank=rank)


def connect(problem: CompressedProblem) -> Cells:
    """Return what is connected as cells."""
    found = Leaves.connected(problem, problem.pair_topic, problem.pair_class)
    none = np.zeros_like(problem.size)
    return Cells(problem, found.of_class, found.of_topics, none, none, found.classes == 1)


@dataclass(frozen=True, slots=True)
class MemberBlock:
    """Neighbouring members, in member order, and what they own, in canonical order.

    Attributes
    ----------
    ids, instances
        Text (members,); the instance of a static member, null of others.
    class_
        (members,) the class of each.
    member, topic, first, count
        (ranges,) what each owns; a member is its place in the block.
    """

    ids: pa.StringArray
    instances: pa.StringArray
    class_: Ints
    member: Ints
    topic: Ints
    first: Ints
    count: Ints

    @classmethod
    def unpack(cls, packet: Packet, rank: Longs | None = None) -> MemberBlock:
        """Read a packet of `MEMBERS`; class c gets the number rank[c]."""
        ids, instances = packet.columns["ids"], packet.columns["instances"]
        class_ = packet["class"] if rank is None else rank[packet["class"]].astype(np.int32)
        return cls(ids, instances, class_, *(packet[name] for name in _HELD))

    def pack(self, block: int, *, seat: int = 0, **more: Ints) -> pa.RecordBatch:
        """Return the block as a packet of `MEMBERS`."""
        held = zip(_HELD, (self.member, self.topic, self.first, self.count), strict=True)
        columns = {"ids": self.ids, "instances": self.instances, "class": self.class_}
        return make_packet(block, MEMBERS, seat, **columns, **dict(held), **more)

    def take(self, members: Longs) -> MemberBlock:
        """Return some of the members, in the order given, with what they own."""
        lengths = np.bincount(self.member, minlength=len(self.ids))
        rows = expand_runs(offsets_of(lengths)[members], lengths[members])
        owner = np.repeat(np.arange(len(members), dtype=np.int32), lengths[members])
        at = pa.array(members)
        held = (owner, self.topic[rows], self.first[rows], self.count[rows])
        return MemberBlock(self.ids.take(at), self.instances.take(at), self.class_[members], *held)

    @classmethod
    def joined(cls, parts: list[MemberBlock]) -> MemberBlock:
        """Return the members of several blocks, or of none, in member order."""
        parts = [*parts, _NO_MEMBERS]
        starts = offsets_of(np.array([len(part.ids) for part in parts]))
        owners = [part.member + start for part, start in zip(parts, starts[:-1], strict=True)]
        every = cls(
            pa.concat_arrays([part.ids for part in parts]),
            pa.concat_arrays([part.instances for part in parts]),
            np.concatenate([part.class_ for part in parts]),
            np.concatenate(owners),
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("topic", "first", "count")
            ),
        )
        names = pa.table({"instance": every.instances, "id": every.ids})
        order = pc.sort_indices(names, [("instance", "ascending"), ("id", "ascending")])
        return every.take(np.asarray(order).astype(np.int64))

    def as_group(self, known: KnownGroup) -> GroupSpec:
        """Return the members and what they own as a group of its own."""
        return make_group(known, self.class_, self.member, self.topic, self.first, self.count)

    def sum_up(self, at: int, known: KnownGroup) -> pa.RecordBatch:
        """Return a packet of `LOADS`: what the driver needs to know of the block."""
        group, class_ = self.as_group(known), self.class_.astype(np.int64)
        load = sum_by(self.member, self.count, len(class_))
        kinds = Kinds.of(group, known)
        alone = np.ones(len(class_), dtype=np.bool_)
        alone[kinds.member] = False
        loads = Histogram.of(len(known.class_offsets) - 1, class_[alone], load[alone])
        entries = expand_runs(kinds.offsets[:-1][kinds.heads], np.diff(kinds.offsets)[kinds.heads])
        return make_packet(
            at, LOADS,
            static=[len(self.instances) - self.instances.null_count],
            others=[self.instances.null_count],
            instances=_take_samples(self.instances),
            ids=_take_samples(self.ids.filter(self.instances.is_null())),
            **{"class": loads.class_}, load=loads.load, members=loads.members,
            kind_class=class_[kinds.member[kinds.heads]],
            kind_members=np.bincount(kinds.label, minlength=len(kinds.heads)),
            kind_entries=np.diff(kinds.offsets)[kinds.heads],
            entry_topic=kinds.topic_class[entries].astype(np.int32),
            entry_owned=kinds.owned[entries].astype(np.int32),
            head_class=self.class_[_find_heads(self.class_)],
        )  # fmt: skip


_NO_TEXTS, _NO_NUMBERS = pa.array([], pa.string()), np.zeros(0, dtype=np.int32)
_NO_MEMBERS = MemberBlock(_NO_TEXTS, _NO_TEXTS, *[_NO_NUMBERS] * 5)


@dataclass(frozen=True, slots=True)
class Kinds:
    """Members of a block whose classes compete, and that own something: which own alike.

    Attributes
    ----------
    member, label
        (some,) members, and the kind of each; kinds are numbered by their first member.
    heads
        (kinds,) the first member of each, as a place in `member`.
    offsets, topic_class, owned
        Entries of each member: offsets[i]:offsets[i + 1].
    """

    member: Longs
    label: Longs
    heads: Longs
    offsets: Longs
    topic_class: Longs
    owned: Longs

    @classmethod
    def of(cls, group: GroupSpec, known: KnownGroup) -> Kinds:
        """Find the kinds; a number does not depend on the numbers of classes."""
        ours = known.competing[group.member_class]
        rows = np.flatnonzero(ours[group.member])
        member, topic, owned = Ownership(group, known.parts).entries(rows)
        who, first = np.unique(member, return_index=True)
        offsets = np.append(first, len(member))
        label, heads = label_lists(offsets, (topic << 31) | owned, group.member_class[who])
        return cls(who, label, heads, offsets, topic, owned)


def make_group(
    known: KnownGroup, class_: Ints, member: Ints, topic: Ints, first: Ints, count: Ints
) -> GroupSpec:
    """Return members without names as a group: what they own is sorted by member.

    Its `line_order` is left out, a third of the work: no block looks at its own members by line.
    """
    size, classes = len(class_), len(known.class_offsets) - 1
    names, none = pa.nulls(size, pa.string()), np.zeros(0, dtype=np.int64)
    order = np.argsort(class_, kind="stable") if classes > 1 else np.arange(size)
    return GroupSpec(
        names, names, names, known.topics, known.partitions,
        class_, known.class_offsets, known.class_topics,
        order, offsets_of(np.bincount(class_, minlength=classes)),
        member, topic, first, count, offsets_of(np.bincount(member, minlength=size)),
        none,
        ReleasedOwnership(names[:0], none, none, none, none),
    )  # fmt: skip


def _take_samples(names: pa.StringArray) -> pa.StringArray:
    """Return names at even steps of their order, without nulls."""
    named = names.drop_null()
    if not len(named):
        return named
    at = np.unique(np.linspace(0, len(named) - 1, min(SAMPLES, len(named))).astype(np.int64))
    return named.take(pc.sort_indices(named).take(pa.array(at)))


def _find_heads(class_: Ints) -> Longs:
    """Return the first member of each class that there is."""
    return np.sort(np.unique(class_, return_index=True)[1])
