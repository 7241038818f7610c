"""A group that lives twice: as a spec in dicts, planned from nothing, and as a PlannedGroup."""

from __future__ import annotations

import random

import pyarrow as pa

from assignors import GroupSpec, get_assignor
from assignors.incremental.changes import GroupChanges, SubscribedMembers
from assignors.incremental.planned_group import PlannedGroup


class ChangingGroup:
    """Draws changes, and checks that both lives have the same rows after each of them."""

    def __init__(self, seed, name="uniform", options=None, members=20, lists=1, shared=False):
        self.draw = random.Random(seed)
        self.assignor = get_assignor(name, **(options or {}))
        self.static = self.draw.random() < 0.3
        count = lists + self.draw.randint(0, 3)
        self.topics = {f"t{at}": self.draw.randint(0, 30) for at in range(count)}
        self.lists = [[f"t{at}"] for at in range(lists)]
        for topic in list(self.topics)[lists:]:
            if self.draw.random() < 0.7:
                self.draw.choice(self.lists).append(topic)
        if shared:
            self.lists = self._draw_shared(lists)
        self.members = {}
        for subscribed in self.lists:
            self.topics[subscribed[0]] += 1
            self.members |= self._new(1, subscribed=subscribed)
        self.members |= self._new(self.draw.randint(0, members - 1))
        if self.draw.random() < 0.5:
            self._scatter()
        block = self.draw.choice([2, 8, 1024])
        group = GroupSpec.from_dict(self.spec)
        self.planned = PlannedGroup.plan(group, self.assignor, block=block)

    def _draw_shared(self, lists):
        """Draw lists of topics, some of which are in several of them."""
        self.topics |= {f"t{at}": self.draw.randint(1, 30) for at in range(self.draw.randint(2, 5))}
        self.topics = {name: count or 1 for name, count in self.topics.items()}
        drawn = [
            self.draw.sample(sorted(self.topics), self.draw.randint(1, len(self.topics)))
            for _ in range(lists)
        ]
        return list({frozenset(names): names for names in drawn}.values())

    @property
    def spec(self):
        return {"topics": self.topics, "members": self.members}

    def draw_topics(self):
        """Topics come, go and shrink, and lists change, while members come and go."""
        shapes = [self._add_topic, self._shrink, self._remove, self._add_list, self._end_list]
        shape = self.draw.choice([*shapes, self._move_topic, self._replace_list])()
        some = [*shape.get("joined", ()), *shape.get("resubscribed", ())]
        but = {name for one in some for name in one.member_ids.to_pylist()}
        growth = self.draw_growth(calm=True, but={*but, *shape.get("left", ())})
        shape["left"] = [*shape.get("left", ()), *growth.left]
        shape["joined"] = [*shape.get("joined", ()), *growth.joined]
        shape["resubscribed"] = [*shape.get("resubscribed", ()), *growth.resubscribed]
        shape["topics"] = shape.get("topics", {}) | growth.topics
        return GroupChanges(renamed=growth.renamed, **shape)

    def draw_lists(self):
        """Members change to lists of any kind, also all of a list; topics come, go and shrink."""
        draw, topics, removed = self.draw, {}, []
        listed = (fields["subscribed"] for fields in self.members.values())
        self.lists = [*{frozenset(names): names for names in listed}.values()]
        lists = []
        if draw.random() < 0.3:
            topics[self._invent()] = 0
            names = draw.choice(self.lists)
            if draw.random() < 0.7:
                lists.append(self._relist(names, [*names, *topics]))
        if draw.random() < 0.2:
            topics[draw.choice(list(self.topics))] = 0
        if not lists and draw.random() < 0.3 and len(self.topics) > len(topics) + 1:
            removed = [draw.choice(sorted(self.topics.keys() - topics.keys()))]
            del self.topics[removed[0]]
            for names in [one for one in self.lists if removed[0] in one]:
                self._relist(names, [name for name in names if name != removed[0]])
        for name in topics:
            self.topics[name] = draw.randint(0, 30)
        gone = self._draw_some(draw.choice([0, 0, 1, 5]))[1:]
        self._forget(gone)
        moved, new = self._resubscribe(), {}
        if draw.random() < 0.5:
            new = self._new(draw.choice([1, 5]), but=gone, subscribed=draw.choice([None, ["t0"]]))
            new = new if "t0" in self.topics else {}
            self.members |= new
        sizes = {name: self.topics[name] for name in topics}
        return GroupChanges(gone, _list(new), moved, sizes, removed, lists)

    def _draw_some(self, most):
        return self.draw.sample(sorted(self.members), min(len(self.members), most))

    def _resubscribe(self):
        """Let some members subscribe to lists that are there, or to others, on topics of all."""
        draw, found = self.draw, []
        left = set(self.members)
        for _ in range(draw.choice([0, 1, 1, 2, 3])):
            names = draw.choice(self.lists)
            if draw.random() < 0.6:
                names = draw.sample(sorted(self.topics), draw.randint(0, len(self.topics)))
                self.lists = [*self.lists, names]
            some = self._named(draw.choice(self.lists))
            if draw.random() < 0.7:
                some = self._draw_some(draw.choice([1, 1, 6]))
            some = [name for name in some if name in left]
            left.difference_update(some)
            for name in some:
                self.members[name]["subscribed"] = names
            found.append(SubscribedMembers.of(*some, subscribed=names))
        return found

    def _invent(self):
        name = f"{self.draw.choice('asz')}{self.draw.randint(0, 10**6)}"
        self.topics[name] = self.draw.randint(0, 20)
        return name

    def _add_topic(self):
        """All of a list subscribe to a topic that comes; or no one does."""
        name = self._invent()
        added = {"topics": {name: self.topics[name]}}
        if self.draw.random() < 0.3:
            return added
        before = self.draw.choice(self.lists)
        return added | {"lists": [self._relist(before, [name, *before])]}

    def _shrink(self):
        topic = self.draw.choice(list(self.topics))
        self.topics[topic] = self.draw.randint(0, self.topics[topic])
        return {"topics": {topic: self.topics[topic]}}

    def _remove(self):
        """A topic goes, but not the last of a list."""
        last = {names[0] for names in self.lists if len(names) == 1}
        spare = sorted(self.topics.keys() - last)
        if not spare:
            return {}
        topic = self.draw.choice(spare)
        del self.topics[topic]
        for names in [one for one in self.lists if topic in one]:
            self._relist(names, [name for name in names if name != topic])
        return {"removed_topics": [topic]}

    def _add_list(self):
        """Members of a new list join: all its topics are new, or no one subscribed to them."""
        free = self.topics.keys() - {name for names in self.lists for name in names}
        names = self.draw.sample(sorted(free), self.draw.randint(0, len(free)))
        names = names or [self._invent()]
        self.lists = [*self.lists, names]
        joined = self._new(self.draw.randint(1, 5), subscribed=names)
        self.members |= joined
        return {"topics": {name: self.topics[name] for name in names}, "joined": _list(joined)}

    def _move_topic(self):
        """A topic passes from one list to another, whose members own nothing of it."""
        givers = [names for names in self.lists if len(names) > 1]
        if not givers or len(self.lists) < 2:
            return {}
        one = self.draw.choice(givers)
        other = self.draw.choice([names for names in self.lists if names is not one])
        topic = self.draw.choice(one)
        return {
            "lists": [
                self._relist(one, [name for name in one if name != topic]),
                self._relist(other, [*other, topic]),
            ]
        }

    def _replace_list(self):
        """Each member of a list changes to the same other one, which keeps some of its topics."""
        before = self.draw.choice(self.lists)
        after = [*self.draw.sample(before, self.draw.randint(0, len(before))), self._invent()]
        names = self._named(before)
        self._relist(before, after)
        new = SubscribedMembers.of(*names, subscribed=after)
        return {"topics": {after[-1]: self.topics[after[-1]]}, "resubscribed": [new]}

    def _end_list(self):
        """All members of a list leave; perhaps others come."""
        if len(self.lists) < 2:
            return {}
        ended = self.draw.choice(self.lists)
        left = self._named(ended)
        if len(left) == len(self.members):
            return {}
        self._forget(left)
        if self.draw.random() < 0.7:
            self.lists = [names for names in self.lists if names is not ended]
        return {"left": left}

    def _named(self, listed):
        some = self.members.items()
        return [name for name, one in some if sorted(one["subscribed"]) == sorted(listed)]

    def _relist(self, before, after):
        for name in self._named(before):
            self.members[name]["subscribed"] = after
        self.lists = [after if names is before else names for names in self.lists]
        return before, after

    def draw_growth(self, calm=False, but=()):
        """Members leave, others join or have another id, topics grow: all in one change."""
        draw = self.draw
        renamed = self._rename() if draw.random() < 0.2 and not calm else {}
        left = draw.sample(
            list(self.members), min(len(self.members), draw.choice([0, 0, 1, 1, 2, 10]))
        )
        stays = [draw.choice(some) for some in self._by_list(self.members)]
        left = [name for name in left if name not in stays and name not in but]
        resubscribed = []
        for name in draw.sample(list(self.members), min(len(self.members), 3)):
            spare = name not in left and name not in stays and not renamed and not calm
            if spare and draw.random() < 0.1:
                self.members[name]["subscribed"] = draw.choice(self.lists)
                names = self.members[name]["subscribed"]
                resubscribed.append(SubscribedMembers.of(name, subscribed=names))
        self._forget(left)
        joined = self._new(draw.choice([0, 0, 1, 1, 2, 10, 40]), but=[*left, *renamed, *but])
        if draw.random() < 0.2:
            joined |= {name: {"subscribed": draw.choice(self.lists)} for name in left[:2]}
        self.members |= joined
        grown = {
            topic: count + draw.randint(0, 20)
            for topic, count in self.topics.items()
            if draw.random() < 0.1
        }
        self.topics |= grown
        return GroupChanges(left, _list(joined), resubscribed, grown, renamed=renamed)

    def draw_any(self):
        """Draw a change of any kind; only some are continued from the last plan."""
        draw, what = self.draw, self.draw.randrange(5)
        if what == 0:
            return self.draw_growth()
        if what == 1:
            new = {f"u{draw.randint(0, 99)}": draw.randint(0, 9)}
            self.topics |= new
            return GroupChanges(topics=new)
        if what == 2:
            topic = draw.choice(list(self.topics))
            self.topics[topic] = draw.randint(0, self.topics[topic])
            return GroupChanges(topics={topic: self.topics[topic]})
        if what == 3:
            topic = draw.choice(list(self.topics))
            if len(self.topics) == 1:
                return GroupChanges()
            del self.topics[topic]
            for fields in self.members.values():
                fields["subscribed"] = [name for name in fields["subscribed"] if name != topic]
            self.lists = [[name for name in names if name != topic] for names in self.lists]
            return GroupChanges(removed_topics=[topic])
        member = draw.choice(list(self.members))
        names = draw.sample(list(self.topics), draw.randint(0, len(self.topics)))
        self.members[member]["subscribed"] = names
        return GroupChanges(resubscribed=[SubscribedMembers.of(member, subscribed=names)])

    def follow(self, changes):
        """Plan both ways, compare, and go on from there."""
        before, owned = self.planned.assignment(), self.planned.assignment().to_dict(lists=False)
        for old, new in changes.renamed.items():
            owned[new] = owned.pop(old)
        for name in changes.left:
            owned[name] = {}
        for name, fields in self.members.items():
            fields["owned"] = self._clipped(owned.get(name, {}))
        expected = self.assignor.assign(GroupSpec.from_dict(self.spec))
        change = self.planned.after(changes)
        got = change.planned.assignment()
        assert got == expected
        assert got.verdict == expected.verdict
        assert self.planned.assignment() == before, "the plan before it has changed"
        assert change.planned.group().to_arrow() == self._expected_group(expected).to_arrow()
        self._check_changed(change.changed, expected, owned)
        self.planned = change.planned
        return self.planned

    def _check_changed(self, changed, expected, owned):
        after, said = expected.to_dict(lists=False), changed.to_dict(lists=False)
        for name, ranges in after.items():
            assert said.get(name, owned.get(name, {})) == ranges

    def _expected_group(self, ranges):
        owned = ranges.to_dict(lists=False)
        members = {name: fields | {"owned": owned[name]} for name, fields in self.members.items()}
        return GroupSpec.from_dict(self.spec | {"members": members})

    def _new(self, count, but=(), subscribed=None):
        drawn = {}
        for _ in range(count):
            name = f"m{self.draw.randint(0, 10**6)}"
            if name in self.members or name in but:
                continue
            drawn[name] = {"subscribed": subscribed or self.draw.choice(self.lists)}
            if self.draw.random() < 0.3:
                drawn[name]["rack"] = self.draw.choice("ab")
            if self.static and self.draw.random() < 0.5:
                ends = self.draw.choices(["", "\0", "\0\0", "\1", "a"], k=3)
                drawn[name]["instance_id"] = "i" + "".join(ends)
        return drawn

    def _rename(self):
        old = self.draw.sample(list(self.members), min(len(self.members), 3))
        new = self._new(len(old))
        renamed = dict(zip(old, new, strict=False))
        for before, after in renamed.items():
            self.members[after] = self.members.pop(before)
        return renamed

    def _by_list(self, members):
        """Return the names of members by what they subscribe to."""
        found = {}
        for name, fields in members.items():
            found.setdefault(tuple(sorted(fields["subscribed"])), []).append(name)
        return list(found.values())

    def _forget(self, names):
        for name in names:
            del self.members[name]

    def _clipped(self, owned):
        out = {}
        for topic, ranges in owned.items():
            size = self.topics.get(topic, 0)
            kept = [[first, min(count, size - first)] for first, count in ranges if first < size]
            if kept:
                out[topic] = kept
        return out

    def _scatter(self):
        for some in self._by_list(self.members):
            for topic in self.members[some[0]]["subscribed"]:
                self._scatter_topic(topic, some)

    def _scatter_topic(self, topic, some):
        for partition in range(self.topics[topic]):
            if self.draw.random() < 0.9:
                fields = self.members[self.draw.choice(some)]
                fields.setdefault("owned", {}).setdefault(topic, []).append(partition)


def _list(joined):
    """Return new members as changes list them: by subscription, in any order."""
    found = []
    for names in sorted({tuple(fields["subscribed"]) for fields in joined.values()}):
        some = {name: one for name, one in joined.items() if tuple(one["subscribed"]) == names}
        columns = [
            pa.array([fields.get(name) for fields in some.values()], pa.string())
            for name in ("instance_id", "rack")
        ]
        found.append(SubscribedMembers(pa.array(some, pa.string()), names, *columns))
    return found
