"""A state in plain values, to compare states by."""

from __future__ import annotations

from collections import Counter

import numpy as np

from coordinator.core.state.classic_group import ClassicGroup
from coordinator.core.state.groups import Group, State
from coordinator.core.state.owner_columns import FREE


def fingerprint(state: State) -> dict[str, object]:
    """Return everything that records determine, in plain values: equal states have equal ones.

    Tests compare it around every `step`, and between live state and a replay from zero.
    """
    return {
        "groups": {
            group_id: _fingerprint_group(group) for group_id, group in sorted(state.groups.items())
        },
        "classic": {k: _fingerprint_classic(group) for k, group in sorted(state.classic.items())},
        "settings": {k: dict(sorted(v.items())) for k, v in sorted(state.settings.items())},
        "loads": dict(sorted(state.loads.items())),
        "offsets": {k: dict(sorted(v.items())) for k, v in sorted(state.offsets.items())},
        "topics": dict(sorted(state.topics.items())),
        "producers": sorted(state.transactions.records_before(), key=repr),
        "pending": _fingerprint_pending(state),
    }


def _fingerprint_pending(state: State) -> dict[object, list[object]]:
    """Return what waits at each place, in its order there, which counts."""
    found: dict[object, list[object]] = {}
    for producer_id, group_id, place, offset in state.transactions.waiting():
        found.setdefault((group_id, place), []).append((producer_id, offset))
    return found


def _fingerprint_classic(group: ClassicGroup) -> dict[str, object]:
    return {name: _listed(getattr(group, name)) for name in group.__struct_fields__}


def _listed(value: object) -> object:
    """Return a dict with its order, which counts here, and without the dict that may change."""
    return list(value.items()) if isinstance(value, dict) else value


def _fingerprint_group(group: Group) -> dict[str, object]:
    serial_of = {member.serial: member_id for member_id, member in group.members.items()}
    owners = {
        (key, int(p)): serial_of.get(int(array[p]), "nobody")
        for key, array in sorted(group.owners.items())
        for p in np.flatnonzero(array != FREE)
    }
    return {
        "epochs": (group.epoch, group.assignment_epoch, group.assignment_timestamp),
        "metadata_hash": group.metadata_hash,
        "assignor": (group.assignor, group.partial, group.owner_left),
        "plans": (dict(sorted(group.plans.items())), dict(sorted(group.decided.items()))),
        "members": {
            member_id: (member.meta, member.current, group.targets.get(member_id))
            for member_id, member in sorted(group.members.items())
        },
        "instances": dict(sorted(group.instances.items())),
        "regexes": dict(sorted(group.regexes.items())),
        "computation": group.computation and group.computation.record,
        "owners": owners,
        "counters": [
            sorted((+counter).items())
            for counter in (
                Counter({names: listed.members for names, listed in group.lists.items()}),
                group.names,
                group.regex_members,
                group.wishes,
                group.stable_at,
                group.classic_protocols,
            )
        ],
        "topics_hash": group.topics_hash,
    }
