"""The topics that groups subscribe to, counted, and the hash over them (G-148).

A group may subscribe to as many names as there are topics: where it can be, built-in functions go
over them, which are many times as quick as statements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain, filterfalse
from operator import attrgetter

from coordinator.core.state.groups import HASH_BITS, Group, NamesHash, State, Topic, exhaust
from coordinator.core.state.partition_spans import kafka_id
from coordinator.core.state.records import RegexResolved

_HASH = attrgetter("hash")


def hash_of(topics: dict[str, Topic], names: Iterable[str]) -> int:
    """Return the metadata hash of these topic names: of those that exist, order-free."""
    found = filter(None, map(topics.get, names))
    total: int = sum(map(_HASH, found))
    return total % (1 << HASH_BITS)


def hash_of_names(state: State, names: Sequence[str]) -> int:
    """Return the same of a list of names, which a step asks for and the replay of its record."""
    last = state.last_hash
    if last is None or last.names is not names or last.version != state.topics_version:
        total = hash_of(state.topics, names)
        last = state.last_hash = NamesHash(names, state.topics_version, total)
    return last.total


def count_names(state: State, group: Group, gone: Sequence[str], come: Sequence[str]) -> None:
    """Count names that members of a group no longer subscribe to, and those that they now do.

    Each is given once.
    """
    if come:
        new = names_new(group, come)
        if new is come:
            dict.update(group.names, dict.fromkeys(come, 1))
        else:
            group.names.update(come)
        begin_subscriptions(state, group, new)
        _add_hash(group, hash_of_names(state, new))
    if gone:
        ended = names_ended(group, gone)
        if len(ended) < len(gone):
            group.names.subtract(set(gone).difference(ended))
        exhaust(map(group.names.__delitem__, ended))
        end_subscriptions(state, group, ended)
        _add_hash(group, -hash_of(state.topics, ended))


def names_new(group: Group, names: Sequence[str]) -> Sequence[str]:
    """Return those of names that nothing in the group subscribes to, in their order."""
    known = group.names
    if not known or known.keys().isdisjoint(names):
        return names
    return list(filterfalse(known.__contains__, names))


def names_ended(group: Group, names: Sequence[str]) -> Sequence[str]:
    """Return those of names, all subscribed to, that only one thing in the group subscribes to."""
    counts = list(map(group.names.__getitem__, names))
    if counts.count(1) == len(counts):
        return names
    return [name for name, count in zip(names, counts, strict=True) if count == 1]


def hash_with(
    state: State, group: Group, come: Sequence[Sequence[str]], gone: Sequence[Sequence[str]]
) -> int:
    """Return the hash of what is subscribed to once lists of names have come and others gone.

    In no list is a name twice. Mostly there is one list, of as many names as there are topics.
    """
    topics, total = state.topics, group.topics_hash
    come, gone = list(filter(None, come)), list(filter(None, gone))
    if len(come) + len(gone) <= 1:
        total += sum(hash_of_names(state, names_new(group, names)) for names in come)
        total -= sum(hash_of(topics, names_ended(group, names)) for names in gone)
        return total % (1 << HASH_BITS)
    change: Counter[str] = Counter(chain.from_iterable(come))
    change.subtract(chain.from_iterable(gone))
    before = group.names
    new = [name for name, more in change.items() if more > 0 and not before[name]]
    ended = [name for name, more in change.items() if more < 0 and 0 < before[name] <= -more]
    return (total + hash_of(topics, new) - hash_of(topics, ended)) % (1 << HASH_BITS)


def is_to_notice(state: State, group: Group) -> bool:
    """Whether topics changed that a group subscribes to, all of them that changed together."""
    return group.topics_hash != group.noticed_hash and not state.topics_awaited


def matched_now(group: Group, record: RegexResolved) -> tuple[Sequence[str], Sequence[str]]:
    """Return the topics that a regex matches newly, in order, and those it no longer matches.

    There is nothing to look at where it matches what it did, as is mostly found.
    """
    old = group.regexes.get(record.regex)
    if old is None:
        return record.topics, ()
    if old.topics == record.topics:
        return (), ()
    before, now = group.matched[record.regex], set(record.topics)
    come = list(filterfalse(before.__contains__, record.topics))
    return come, list(filterfalse(now.__contains__, old.topics))


def begin_subscriptions(state: State, group: Group, names: Sequence[str]) -> None:
    """Note that a group subscribes to names that it did not subscribe to."""
    subscribers = state.subscribers
    new: dict[str, Group | set[Group]] = dict.fromkeys(names, group)
    for name in subscribers.keys() & new.keys():  # a look at each of the fewer
        known = subscribers[name]
        if isinstance(known, set):
            known.add(group)
            new[name] = known
        elif known is not group:
            new[name] = {known, group}
    subscribers.update(new)


def end_subscriptions(state: State, group: Group, names: Iterable[str]) -> None:
    """Forget that a group subscribes to names."""
    subscribers = state.subscribers
    for name in names:
        known = subscribers[name]
        if known is group:
            del subscribers[name]
            continue
        assert isinstance(known, set)
        known.remove(group)
        if len(known) == 1:
            (subscribers[name],) = known


def set_topic(state: State, name: str, topic: Topic | None) -> None:
    """Put a topic, or take it away, with the hashes of the groups that subscribe to it."""
    old = state.topics.get(name)
    change = (topic.hash if topic else 0) - (old.hash if old else 0)
    known = state.subscribers.get(name)
    for group in known if isinstance(known, set) else (known,):
        if group is not None:
            _add_hash(group, change)
    state.topics_version += 1
    if old is not None and state.topics_by_id.get(old_id := kafka_id(old.key.topic_id)) is old:
        del state.topics_by_id[old_id]
    if topic is None:
        state.topics.pop(name, None)
    else:
        state.topics[name] = topic
        state.topics_by_id[kafka_id(topic.key.topic_id)] = topic


def _add_hash(group: Group, change: int) -> None:
    """Add to a group's hash; other topics exist now of those to which it subscribes."""
    group.topic_list = None
    group.topics_hash = (group.topics_hash + change) % (1 << HASH_BITS)
