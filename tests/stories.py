"""Stories for the views: what happens to a group, told to a real coordinator on a clock of ours.

The coordinator is the one of `muster trace`; members send heartbeats as clients do, so that a story
says who comes and goes, and reconciliation follows by itself.
"""

from __future__ import annotations

import json

from conftest import GOLDEN

from coordinator.config import LogConfig
from coordinator.delta_log import DeltaLog
from coordinator.trace import Trace

NOON = 1_772_366_400_000
"""2026-03-01T12:00:00Z"""
SECOND, MINUTE = 1000, 60_000
ROUNDS = 30


class Story:
    """A group on a store of its own; time is told in minutes since noon."""

    def __init__(self, store, group="billing", **props):
        self.store, self.group = store, group
        config = LogConfig(fsync=False, pack_commits=10_000, snapshot_rows=1_000_000)
        self.log = DeltaLog(store, config)
        self.trace = Trace(lambda _config, _anew: self.log)
        defaults = {
            "group.consumer.assignment.interval.ms": 0,
            "group.consumer.assignors": "uniform,range,sticky",
        }
        names = {name.replace("_", "."): value for name, value in props.items()}
        self.run(op="config", now=NOON - 10 * MINUTE, props=defaults | names)
        self.members = {}

    def run(self, **op):
        """Do an operation of a trace."""
        return self.trace.run(op)

    def at(self, minutes):
        """Let time go on until so many minutes after noon; members keep sending heartbeats."""
        until = NOON + round(minutes * MINUTE)
        while (now := self.trace._now) < until:
            self.run(op="advance", ms=min(until - now, 5 * SECOND))
            self.settle()
        return self

    def topics(self, delete=(), ids=None, **partitions):
        """Create, grow and delete topics."""
        self.run(op="topics", set=partitions, ids=ids or {}, delete=list(delete))
        return self

    def join(self, member, *topics, **fields):
        """Let a member join, and be answered."""
        fields = {"subscribed": list(topics), "rebalance_timeout_ms": 60_000, "owned": {}, **fields}
        self._beat(member, epoch=0, **fields)
        return self.settle()

    def leave(self, member, epoch=-1):
        """Let a member leave: for good (−1), or for a while (−2)."""
        fields = self.members.pop(member)[2]
        self.run(op="heartbeat", group=self.group, member=member, epoch=epoch, **fields)
        return self.settle()

    def subscribe(self, member, *topics):
        """Let a member change its subscription."""
        self._beat(member, subscribed=list(topics))
        return self.settle()

    def fall_silent(self, member):
        """Let a member send nothing any more."""
        del self.members[member]
        return self

    def hold_on(self, member):
        """Let a member go on without giving up what it is told to."""
        self.members[member][3] = True
        return self

    def settle(self):
        """Let all members send heartbeats until nothing changes."""
        for _ in range(ROUNDS):
            before = self.log.position
            for member in list(self.members):
                self._beat(member)
            if self.log.position == before:
                return self
        raise AssertionError(f"no rest after {ROUNDS} rounds")

    def close(self):
        """End the story; the store stays."""
        self.trace.close()
        return self.store

    def _beat(self, member, epoch=None, **fields):
        known, owned, always, holding = self.members.get(member, [0, {}, {}, False])
        if "instance_id" in fields:
            always = {"instance_id": fields["instance_id"]}
        fields = {"owned": owned, **always, **fields}
        answer = self.run(
            op="heartbeat", group=self.group, member=member,
            epoch=known if epoch is None else epoch, **fields,
        )["response"]  # fmt: skip
        if answer["error_code"]:
            self.members.pop(member, None)
            return
        told = answer["assignment"]
        if told is not None and not (holding and owned):
            owned = {topic: list(partitions) for topic, partitions in told.items()}
        self.members[member] = [answer["member_epoch"], owned, always, holding]


def played(walk, store):
    """Play one of Kafka's golden traces onto a store."""
    log = DeltaLog(store, LogConfig(fsync=False, pack_commits=10_000, snapshot_rows=1_000_000))
    trace = Trace(lambda _config, _anew: log)
    for line in (GOLDEN / "traces" / f"{walk}.jsonl").read_text().splitlines():
        trace.run(json.loads(line)["op"])
    trace.close()
    return store
