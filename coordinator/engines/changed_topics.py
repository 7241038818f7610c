"""Topics that came, went, or have another number of partitions since a plan."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from assignors import PartitionRanges
from coordinator.core.state.groups import TopicList
from coordinator.core.targets.validate import GrownTopics

Names = frozenset[str]


@dataclass(frozen=True, slots=True)
class ChangedTopics:
    """How the topics of a group differ from those that it was planned with.

    Attributes
    ----------
    before, after
        All topics.
    sizes
        How many partitions those have that are new, or had another number.
    removed
        Those that are gone, or to which no one subscribes any longer.
    lists
        By what members subscribed to: what all who subscribed to just that do now.
    """

    before: TopicList
    after: TopicList
    sizes: dict[str, int] = field(default_factory=dict)
    removed: Names = frozenset()
    lists: dict[Names, Names] = field(default_factory=dict)

    @classmethod
    def of(
        cls, before: TopicList, after: TopicList, lists: Iterable[tuple[str, ...]]
    ) -> ChangedTopics | None:
        """Compare topics; None if a plan cannot be continued with them.

        That is if a topic is another one of the same name, or some of those who subscribed alike
        no longer do, as they named a topic that was not there.

        Parameters
        ----------
        lists
            What members named.
        """
        if after is before:
            return cls(before, after)
        had = {topic.key.name: topic for topic in before}
        has = {topic.key.name: topic for topic in after}
        if any(had[name].key != has[name].key for name in had.keys() & has.keys()):
            return None
        sizes = {
            name: topic.partitions
            for name, topic in has.items()
            if name not in had or had[name].partitions != topic.partitions
        }
        removed = frozenset(had.keys() - has.keys())
        to: dict[Names, Names] = {}
        if had.keys() != has.keys():
            for names in lists:
                then, now = (frozenset(known.keys() & set(names)) for known in (had, has))
                if to.setdefault(then, now) != now:
                    return None
        return cls(before, after, sizes, removed, to)

    def relist(self, names: Names | None) -> Names | None:
        """Return what members who subscribed to these topics subscribe to now."""
        return None if names is None else self.lists.get(names, names)

    def relisted(self) -> list[tuple[Names, Names]]:
        """Return the lists that are not just without the topics that are gone."""
        return [(then, now) for then, now in self.lists.items() if now != then - self.removed]

    def renumber(self, had: PartitionRanges) -> PartitionRanges:
        """Return what members had of the topics that are there now, by the numbers of these."""
        if self.after is self.before:
            return had
        number = self.after.keys.find(self.before.keys.keys)[had.topic]
        ends = np.append(self.after.counts, 0)[number]
        count = np.clip(ends - had.first, 0, had.count)
        some = count > 0
        return replace(
            had,
            member=had.member[some],
            topic=number[some],
            first=had.first[some],
            count=count[some],
        )

    def grown(self) -> GrownTopics:
        """Return the topics that have more partitions, the first new one, and how many are new."""
        at = self.before.keys.find(self.after.keys.keys)
        had = np.append(self.before.counts, 0)[at]
        more = np.maximum(self.after.counts - had, 0)
        grown = np.flatnonzero(more)
        return grown, had[grown], more[grown]
