"""What members and watchers wrote down, joined: who held which partition when, and was it right.

Times are of one clock (monotonic, the same in all processes of a machine). A member holds a partition
from the moment its client tells it so until its own callback has let go of it, or until it was killed.
Who slept, or was not heard, past its session learns later that it lost its partitions: then it held
them until it began its last commit that was acknowledged, and none may be after that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import pairwise
from typing import NamedTuple

AWAY = -2
"""The epoch of a static member that left for a while."""


class Hold(NamedTuple):
    """A member holds a partition for a time."""

    partition: str
    begin: float
    end: float
    member: str


class Acknowledged(NamedTuple):
    """An offset that the coordinator said it has."""

    partition: str
    began: float
    at: float
    offset: int
    member: str


def holds_of(name, lines):
    """Return what a member held; a hold that was never given up has no end."""
    since, proven, found = {}, {}, []
    for line in lines:
        what, at = line["what"], line["at"]
        if what == "assign":
            for partition in line["partitions"]:
                assert partition not in since, f"{name} is given {partition} twice: {line}"
                since[partition] = proven[partition] = at
        elif what == "commit":
            proven |= dict.fromkeys(line["offsets"], line["began"])
        elif what == "revoke":
            found += [Hold(one, since.pop(one), at, name) for one in line["partitions"]]
        elif what == "lost":
            found += [Hold(one, since.pop(one), proven[one], name) for one in line["partitions"]]
        elif what == "killed":
            found += [Hold(one, begin, at, name) for one, begin in since.items()]
            since = {}
    return found + [Hold(one, begin, math.inf, name) for one, begin in since.items()]


def by_partition(rows):
    out = defaultdict(list)
    for row in rows:
        out[row.partition].append(row)
    return out


def check_holds(logs):
    """No two members hold one partition at a time."""
    holds = by_partition(hold for name, lines in logs.items() for hold in holds_of(name, lines))
    for of_one in holds.values():
        of_one.sort(key=lambda hold: hold.begin)
        for earlier, later in pairwise(of_one):
            assert earlier.end <= later.begin, f"in two hands: {earlier}, {later}"


def check_offsets(logs, begins):
    """A member that takes a partition over resumes where the last acknowledged commit ended, or further
    where one was under way; a member without the partition commits nothing.

    `begins` are the offsets that were there before any member was.
    """
    done, tried = acknowledged(logs), defaultdict(list)
    for lines in logs.values():
        for line in (line for line in lines if line["what"] == "try"):
            for partition, offset in line["offsets"].items():
                tried[partition].append((line["at"], offset))
    for name, lines in logs.items():
        holds = by_partition(holds_of(name, lines))
        for line in (line for line in lines if line["what"] == "resume"):
            partition, at = line["partition"], line["at"]
            first = begins.get(partition, 0)
            least = max([c.offset for c in done[partition] if c.at < at], default=first)
            most = max([offset for began, offset in tried[partition] if began < at], default=first)
            assert least <= line["offset"] <= most, f"{name}: {line}, acknowledged {least}"
        for commit in (one for of_one in done.values() for one in of_one if one.member == name):
            held = any(h.begin <= commit.began <= h.end for h in holds[commit.partition])
            assert held, f"{commit} without holding it: {holds[commit.partition]}"


def acknowledged(logs):
    return by_partition(
        Acknowledged(partition, line["began"], line["at"], offset, name)
        for name, lines in logs.items()
        for line in lines
        if line["what"] == "commit"
        for partition, offset in line["offsets"].items()
    )


class Seen(NamedTuple):
    """A group as its coordinator described it."""

    group_epoch: int
    assignment_epoch: int
    members: dict[str, int]


def check_epochs(seen):
    """Epochs never fall: the group's, the assignment's, each member's; under any coordinator."""
    last, epoch_of = Seen(0, 0, {}), {}
    for now in seen:
        assert now.group_epoch >= last.group_epoch, f"the group epoch falls: {last}, {now}"
        assert now.assignment_epoch >= last.assignment_epoch, f"{last}, {now}"
        here = {member: epoch for member, epoch in now.members.items() if epoch != AWAY}
        for member, epoch in here.items():
            assert epoch >= epoch_of.get(member, 0), f"{member} falls to {epoch}: {now}"
            assert epoch <= now.assignment_epoch, f"{member} is ahead of its group: {now}"
        epoch_of |= here
        last = now


def check_own_epochs(logs):
    """A member never sees its own epoch fall, where its client says which it is."""
    for name, lines in logs.items():
        epochs = [line["epoch"] for line in lines if "epoch" in line]
        assert epochs == sorted(epochs), f"{name}: {epochs}"


def held_now(lines):
    """Return the partitions that a member holds at the end of what it wrote."""
    return {hold.partition for hold in holds_of("", lines) if hold.end == math.inf}


def check(logs, seen, begins):
    """Everything that must hold of any life of a group."""
    check_holds(logs)
    check_offsets(logs, begins)
    check_epochs(seen)
    check_own_epochs(logs)
