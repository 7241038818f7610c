"""Classic and consumer-protocol members in any order, with faults, fail-overs and lies.

Whatever they do: the coordinator never fails, everyone who waits is known to the core and to the
runtime, and what is counted is what is there. `MUSTER_LONG=1` runs many more walks.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from coordinator.core.state.classic_group import size_of
from coordinator.trace.json_trace import JsonTrace
from tests.support import invariants
from tests.support.longer import EVERY

SEEDS = range(300 if EVERY else 30)
STEPS = 200
POLICIES = ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")
PROTOCOLS = ("range", "cooperative-sticky", "roundrobin")
BYTES = (
    {"topics": ["a"]},
    {"topics": ["a", "b"], "version": 1},
    {"topics": []},
    "",
    "AAAA",
    "/////w==",
)
ASSIGNMENTS = ({}, {"a": [0]}, {"a": [0, 1]}, {"b": [7], "x": [-1, 2]}, "AAAA", "")


class Walk:
    """Draws operations for members that were given an id."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.ids = ["", "nosuch"]
        self.generations = [0, 1, -1]

    def config(self):
        props = {
            "group.consumer.assignors": "range",
            "group.consumer.assignment.interval.ms": 0,
            "group.initial.rebalance.delay.ms": self.random.choice([0, 3000]),
            "group.consumer.migration.policy": self.random.choice(POLICIES),
            "group.max.size": self.random.choice([2, 8]),
            "group.consumer.max.size": self.random.choice([2, 8]),
        }
        return {"op": "config", "now": 1_000_000, "props": props}

    def op(self):  # noqa: PLR0911 - one line a kind
        pick = self.random.choice
        kinds = ["join_group"] * 6 + ["sync_group"] * 4 + ["heartbeat"] * 4
        kinds += ["heartbeat_classic", "leave_group", "advance", "advance", "offset_commit"]
        kind = pick([*kinds, "describe_groups", "list_groups", "describe", "topics", "rare"])
        if kind == "rare":
            kind = pick(["reload", "delete_groups", "offset_fetch"])
        member = {
            "member_id": pick(self.ids),
            "instance_id": pick([None, None, "i1", "i2"]),
            "generation": pick(self.generations[-3:]),
        }
        match kind:
            case "join_group":
                names = self.random.sample(PROTOCOLS, pick([1, 2, 3]))
                return {
                    "op": kind,
                    "member_id": member["member_id"],
                    "instance_id": member["instance_id"],
                    "protocol_type": pick(["consumer"] * 9 + ["connect"]),
                    "protocols": [
                        {"name": n, "metadata": pick(BYTES[:2] * 4 + BYTES)} for n in names
                    ],
                    "session_timeout_ms": pick([6000, 45000]),
                    "rebalance_timeout_ms": pick([0, 5000, 60000]),
                    "require_known_member_id": pick([True, False]),
                    "supports_skipping_assignment": pick([True, False]),
                }
            case "sync_group":
                given = {one: pick(ASSIGNMENTS) for one in self.random.sample(self.ids, 2)}
                return {"op": kind, **member, "version": 4, "assignments": given}
            case "heartbeat_classic":
                return {"op": kind, **member}
            case "heartbeat":
                epoch = pick([0, 0, -1, -2, *self.generations[-2:]])
                return {
                    "member": pick(["m1", "m2", *self.ids[1:]]),
                    "instance_id": member["instance_id"] or (epoch == -2 and "i1") or None,
                    "epoch": epoch,
                    "owned": {},
                    "rebalance_timeout_ms": 5000,
                    "subscribed": pick([["a"], ["a", "b"]]),
                }
            case "leave_group":
                leaver = {name: member[name] for name in ("member_id", "instance_id")}
                return {"op": kind, "members": [leaver] * pick([1, 2])}
            case "advance":
                return {"op": kind, "ms": pick([0, 1000, 3000, 11_000, 61_000])}
            case "offset_commit":
                return {"op": kind, **member, "offsets": {"a": {"0": 1}}}
            case "topics":
                return {"op": kind, "set": {"a": pick([2, 4]), "b": 2}}
        return {"op": kind}

    def hear(self, answer):
        for answered in [answer, *answer.get("completed", [])]:
            response = answered.get("response", {})
            self.ids += [one for one in [response.get("member_id")] if one and one not in self.ids]
            found = response.get("generation") or response.get("member_epoch")
            self.generations += [found] if found else []


def check_answer(op, answer, waiting):
    """No client learns that the coordinator failed, and none is answered twice.

    But for H-12: an id that was handed out to a dynamic member comes back as a static one.
    """
    lies = op.get("op") == "join_group" and op["member_id"] and op["instance_id"]
    assert lies or "UNKNOWN_SERVER_ERROR" not in str(answer)
    for answered in answer.get("completed", []):
        assert answered["op"] in waiting
        waiting.remove(answered["op"])


def check_state(processor):
    """What is counted is what is there; who waits in the core waits in the runtime."""
    state = processor.state
    invariants.check(state)
    members = [one for group in state.classic.values() for one in group.members.values()]
    parked = Counter(one.parked_join for one in members)
    parked.update(one.parked_sync for one in members)
    del parked[None]
    assert parked == Counter(processor.parked.waiting.keys())
    sizes = [size_of(one.member_id, one.client_id, one.protocols) for one in members]
    sizes += [size_of(one) for group in state.classic.values() for one in group.pending_joins]
    assert state.classic_bytes == sum(sizes)
    for group in state.groups.values():
        classic = [one.meta.classic_member_metadata for one in group.members.values()]
        there = [one for one in classic if one is not None]
        assert group.classic_members == len(there)
        known = Counter(p.name for one in there for p in one.supported_protocols)
        assert +group.classic_protocols == known


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_members_do_the_coordinator_goes_on(seed):
    walk, trace = Walk(seed), JsonTrace()
    trace.run(walk.config())
    trace.run({"op": "topics", "set": {"a": 2, "b": 2}})
    waiting = []
    for number in range(2, 2 + STEPS):
        op = walk.op()
        answer = trace.run(op)
        if answer.get("waiting"):
            waiting.append(number)
        check_answer(op, answer, waiting)
        check_state(trace.player.processor)
        walk.hear(answer)
    trace.run({"op": "advance", "ms": 1_000_000})
    assert not trace.player.processor.parked.waiting
