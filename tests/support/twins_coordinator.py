"""Obvious twins of the core's fast parts: sets of single partitions, nothing shared with the code.

A partition is (topic key, number). A holding is {partition: assignment epoch}.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

FENCED = "fenced"


@dataclass
class Place:
    """Where a member is, in the words of the specification (G-50…G-64)."""

    state: str
    epoch: int
    previous: int
    assigned: dict
    revoked: dict


def reconciled(member, target, target_epoch, owned, subscribed, others, resubscribed):
    """The member's next place, or FENCED.

    Parameters
    ----------
    target, others
        Partitions: the member's part of the target; those that other members hold.
    owned
        Partitions the member reports; None when it reports none.
    subscribed
        The topic keys it subscribes to.
    """
    if member.state == "UNKNOWN":
        if owned is None or owned:
            return FENCED
        return _next(member, target, target_epoch, owned, subscribed, others)
    if member.state == "STABLE" and member.epoch == target_epoch:
        return _trimmed(member, owned, subscribed) if resubscribed else member
    if member.state == "UNREVOKED" and _still_owns(owned, member.revoked):
        return _trimmed(member, owned, subscribed) if resubscribed else member
    return _next(member, target, target_epoch, owned, subscribed, others)


def _next(member, target, target_epoch, owned, subscribed, others):
    target = {p for p in target if p[0] in subscribed}
    keep = {p: epoch for p, epoch in member.assigned.items() if p in target}
    revoke = {p: epoch for p, epoch in member.assigned.items() if p not in target}
    if revoke and _still_owns(owned, revoke):
        return Place("UNREVOKED", member.epoch, member.epoch, keep, revoke)
    want = target - keep.keys()
    given = dict.fromkeys(want - others, target_epoch)
    state = "UNRELEASED" if want & others else "STABLE"
    return Place(state, target_epoch, member.epoch, keep | given, {})


def _trimmed(member, owned, subscribed):
    keep = {p: epoch for p, epoch in member.assigned.items() if p[0] in subscribed}
    if keep == member.assigned:
        return member
    revoke = member.revoked | {p: e for p, e in member.assigned.items() if p not in keep}
    if _still_owns(owned, revoke):
        return Place("UNREVOKED", member.epoch, member.epoch, keep, revoke)
    return Place(member.state, member.epoch, member.epoch, keep, member.revoked)


def _still_owns(owned, revoked):
    return owned is None or bool(owned & revoked.keys())


def partitions(spans):
    """The partitions of spans, or of a holding."""
    return {(span[0], p) for span in spans for p in range(span[1], span[2])}


def held(holding):
    """{partition: assignment epoch}."""
    return {(key, p): epoch for key, first, end, epoch in holding for p in range(first, end)}


def canonical(spans):
    """Whether spans are sorted, not empty, and apart: touching ones only where epochs differ."""
    apart = all(
        left[0] != right[0] or left[2] < right[1] or (left[2] == right[1] and left[3:] != right[3:])
        for left, right in pairwise(spans)
    )
    return (
        apart and list(spans) == sorted(spans) and all(first < end for _, first, end, *_ in spans)
    )
