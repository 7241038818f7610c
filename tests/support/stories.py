"""Stories for the views: what happens to a group, played to a real coordinator on a clock of ours.

The coordinator is the one of `muster trace`; members send heartbeats as clients do, so that a story
says who comes and goes, and reconciliation follows by itself.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace

import msgspec
import pyarrow as pa

from coordinator.core.audit import DENIED, LOGIN_FAILED, audit_record
from coordinator.core.events import (
    Caller,
    ConfigureGroup,
    DecidePlan,
    OffsetCommit,
    OffsetDelete,
    RecordAudit,
)
from coordinator.core.plans.inputs import take_basis
from coordinator.core.plans.planner import PlanOptions, make_plan
from coordinator.storage.data_files import write_part
from coordinator.storage.record_encoder import encode_claim, encode_records
from coordinator.storage.record_log import MemoryLog
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.trace.json_trace import JsonTrace
from tests.conftest import GOLDEN

NOON = 1_772_366_400_000
"""2026-03-01T12:00:00Z"""
SECOND, MINUTE = 1000, 60_000
ROUNDS = 30


class Story:
    """A group with its coordinator; times are minutes after noon.

    Parameters
    ----------
    log
        Where it is written; in memory when left out.
    props
        Settings under Kafka's names. Targets are computed at once unless they say otherwise.
    """

    def __init__(self, group="billing", log=None, begin=-10, props=None):
        self.group = group
        self.log = log or MemoryLog()
        self.trace = JsonTrace(lambda _config, _fresh: self.log)
        assignors = {"group.consumer.assignors": "uniform,range,sticky,weighted"}
        at_once = {"group.consumer.assignment.interval.ms": 0}
        props = assignors | at_once | (props or {})
        self.run(op="config", now=NOON + begin * MINUTE, props=props)
        self.members = {}

    @property
    def batches(self):
        """What was written to the log in memory."""
        return self.log.storage.batches

    def run(self, **op):
        """Do an operation of a trace."""
        return self.trace.run(op)

    def at(self, minutes):
        """Let time go on until so many minutes after noon; members keep sending heartbeats."""
        until = NOON + round(minutes * MINUTE)
        while (now := self.trace.player.now) < until:
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
        """Let a member fall silent."""
        del self.members[member]
        return self

    def hold_on(self, member):
        """Let a member go on without giving up what it must."""
        self.members[member][3] = True
        return self

    def commit(self, member, offsets):
        """Let a member commit offsets."""
        epoch = self.members[member][0]
        self.run(op="commit", group=self.group, member=member, epoch=epoch, offsets=offsets)
        return self

    def plan(self, valid_ms=None, **options):
        """Plan for the group as it is; User:ann asks."""
        processor = self.trace.player.processor
        basis = take_basis(processor.state, processor.config, self.group, processor.steady())
        config = processor.config
        if valid_ms is not None:
            config = replace(config, plans=replace(config.plans, valid_ms=valid_ms))
        asked = PlanOptions(owner="User:ann", **options)
        return make_plan(basis, asked, config, processor.steady()).plan

    def decide(self, action, plan, reason=""):
        """Apply, propose, approve or reject a plan; User:bob does."""
        given = plan if action in ("apply", "propose") else None
        event = DecidePlan(action, self.group, plan.plan_id, given, "User:bob", reason)
        self.trace.player.processor.run([event])
        return self.settle()

    def settle(self):
        """Let all members send heartbeats until nothing changes."""
        for _ in range(ROUNDS):
            before = self.log.position
            for member in list(self.members):
                self._beat(member)
            if self.log.position == before:
                return self
        raise AssertionError(f"no rest after {ROUNDS} rounds")

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
        given = answer["assignment"]
        if given is not None and not (holding and owned):
            owned = {topic: list(partitions) for topic, partitions in given.items()}
        self.members[member] = [answer["member_epoch"], owned, always, holding]


def played(walk, group):
    """Play one of Kafka's golden traces and return what was written, the group under this id."""
    logs = []

    def open_log(_config, fresh):
        logs.append(MemoryLog(None if fresh else logs[-1].storage))
        return logs[-1]

    trace = JsonTrace(open_log)
    for line in (GOLDEN / "traces" / f"{walk}.jsonl").read_text().splitlines():
        trace.run(json.loads(line)["op"])
    return [
        replace(batch, records=[_renamed(record, group) for record in batch.records])
        for batch in logs[-1].storage.batches
    ]


def _renamed(record, group):
    named = getattr(record, "group_id", "")
    return msgspec.structs.replace(record, group_id=group) if named else record


def stored(batches, store):
    """Write batches as the log of a store, in one file; batches without records are claims."""
    records, places, claims, position = [], [], [], 0
    for batch in batches:
        if not batch.records:
            claims.append(encode_claim("story", "", position + 1, batch.at_ms, batch.epoch))
        for record in batch.records or [None]:
            position += 1
            if record is not None:
                records.append(record)
                places.append((position, batch.at_ms, batch.epoch))
    rows = encode_records(records, 1, 0, 0)
    positions, at_ms, epochs = (
        pa.array(column, pa.int64()) for column in zip(*places, strict=True)
    )
    at = at_ms.cast(pa.timestamp("ms", tz="UTC")).cast(SCHEMA.field("at").type)
    columns = {"position": positions, "at_ms": at_ms, "at": at, "coordinator_epoch": epochs}
    for name, column in columns.items():
        rows = rows.set_column(rows.column_names.index(name), name, column)
    rows = pa.concat_tables([rows, *claims], promote_options="default").sort_by("position")
    table = FencedTable(str(store / "log"), Filesystem(), sync=False)
    os.makedirs(table.path)
    table.open(SCHEMA)
    table.commit([write_part(Filesystem(), table.path, rows.combine_chunks(), sync=False)], 1)
    return store


def many_groups(walks, traces, folder):
    """Write one log of many groups: our stories, and lives of groups played by Kafka.

    Parameters
    ----------
    walks
        Numbers of golden walks.
    traces
        Names of other golden traces; each is a group of its name.
    """
    batches = all_stories()
    for name in [*(f"walk-{number:02}" for number in walks), *traces]:
        batches += played(name, name)
    return stored(batches, folder)


def billing():
    """Members come, change their mind, leave and fall silent; topics grow, go and come back."""
    story = Story("billing").topics(orders=6, payments=4)
    story.at(-5).join("m1", "orders", "payments")
    story.at(-3).join("m2", "orders", "payments")
    story.at(1).join("m3", "orders")
    story.at(2).leave("m1")
    story.at(3).topics(orders=8).settle()
    story.at(4).subscribe("m2", "payments")
    story.at(5).topics(payments=4, ids={"payments": "payments-made-anew"}).settle()
    story.at(6).topics(delete=["payments"]).settle()
    return story.at(7).fall_silent("m3").at(9)


def shipping():
    """A member does not give up what it must, until its time is over."""
    story = Story("shipping").topics(parcels=4)
    story.at(-1).join("s1", "parcels").hold_on("s1")
    return story.at(0).join("s2", "parcels").at(2)


def ledger():
    """Static members: one comes back under another member id, one does not come back in time."""
    story = Story("ledger").topics(entries=4)
    story.at(-2).join("l1", "entries", instance_id="left")
    story.at(-1).join("r1", "entries", instance_id="right")
    story.at(0).leave("l1", epoch=-2)
    story.at(0.5).join("l2", "entries", instance_id="left")
    story.at(1).leave("r1", epoch=-2)
    return story.at(3)


def search():
    """Few moves at a time: a target that is cut short is finished by the next ones."""
    story = Story("search").topics(pages=8)
    settings = {"consumer.assignor.max.moves": "2"}
    story.run(op="group_config", group="search", props=settings)
    story.at(-1).join("x1", "pages", server_assignor="sticky")
    story.at(0).join("x2", "pages", server_assignor="sticky").at(1)
    return story.decide("propose", story.plan(assignor="range"))


def alerts():
    """Three members join within a second, and one target takes them all in; then one is removed."""
    story = Story("alerts", props={"group.consumer.assignment.interval.ms": 1000})
    story.topics(pings=6)
    for member in ("a1", "a2", "a3"):
        story.join(member, "pings")
    story.at(-1).commit("a1", {"pings": {"0": 41}}).at(0).commit("a1", {"pings": {"0": 42}})
    return story.leave("a3").at(1)


def archive():
    """A user alters a group's settings and deletes its offsets; others are refused."""
    story = Story("archive").topics(boxes=8)
    ann, nobody = Caller("User:ann", "tool", "10.0.0.1"), Caller("User:eve", "", "10.6.6.6")
    session = {"consumer.session.timeout.ms": "50000"}
    given = {"boxes": dict.fromkeys((0, 1, 2, 5), (7, ""))}
    refused = {"operation": "DELETE", "resource_type": "GROUP", "resource_name": "archive"}
    story.trace.player.processor.run([
        OffsetCommit("archive", "", -1, given),
        ConfigureGroup("archive", session, ann),
        OffsetDelete("archive", {"boxes": [0, 1, 2, 5, 7]}, ann),
        RecordAudit([audit_record(DENIED, "archive", nobody, refused | {"count": "12"}),
               audit_record(DENIED, "vault", nobody, refused | {"resource_name": "vault", "count": "1"}),
               audit_record(LOGIN_FAILED, "", nobody, {"count": "3"})]),
    ])  # fmt: skip
    return story.at(1)


def depot():
    """Plans that are applied, approved, rejected, superseded, that expire, and one that waits."""
    story = Story("depot").topics(crates=4)
    for member in ("d1", "d2"):
        story.join(member, "crates", server_assignor="weighted")
    made = story.plan(drain=["d2"], reason="disk of d2")
    story.decide("apply", made, "at night").at(-1)
    others = [story.plan(undrain=["d2"], reason=reason) for reason in ("repaired", "again", "")]
    for one in others:
        story.decide("propose", one)
    story.decide("reject", others[1], "twice")
    story.decide("approve", others[0]).at(1)  # the third was for the group as it was
    story.decide("propose", story.plan(drain=["d1"], reason="in a hurry", valid_ms=SECOND)).at(2)
    return story.decide("propose", story.plan(drain=["d1"], reason="disk of d1")).at(3)


STORIES = (billing, shipping, ledger, search, alerts, archive, depot)


def all_stories():
    """Return what all stories wrote, one after the other, as one log."""
    return [batch for story in STORIES for batch in story().batches]
