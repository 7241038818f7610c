"""Plans and weights of a coordinator: shown, applied once, refused on drift, approved, noted."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import msgspec
import pyarrow as pa
import pytest

from assignors import SpecError
from coordinator import Coordinator, GroupError
from coordinator.config import Config, WeightsConfig
from coordinator.core.classic_events import JoinGroup, Protocol
from coordinator.core.events import CatalogTopic, DecidePlan
from coordinator.core.plans.planner import digest_of
from coordinator.core.state.embedded import Subscription, write_subscription
from coordinator.core.state.plan_values import PlannedMove
from coordinator.engines.plan_answers import find_answer
from coordinator.history.frames import frame
from coordinator.history.log_reader import LogReader
from coordinator.history.past_target import explain_past_partition
from coordinator.runtime.inbox_reader import InboxReader
from coordinator.runtime.plan_tasks.plan_submitter import PlanSubmitter
from coordinator.runtime.plan_tasks.weight_poller import WeightPoller
from coordinator.runtime.plan_tasks.weight_source import WeightTables
from coordinator.storage.inbox import Inbox
from tests.support.members import state_of

MANUAL = {"consumer.assignor.approval": "manual"}
BY_WEIGHT = {"group.consumer.assignors": ["weighted"]}


class Running:
    """A coordinator on a clock by hand, its members, and its background tasks by hand."""

    def __init__(self, store=None, topics=None, weights=None, **kafka):
        self.now = 1_000_000
        kafka = {"group.consumer.assignment.interval.ms": 0, **BY_WEIGHT, **kafka}
        from coordinator.config.kafka import kafka_config

        config = Config(
            kafka=kafka_config(kafka), weights=WeightsConfig(half_life_ms=0, interval_ms=1_000)
        )
        self.coordinator = Coordinator.open(
            store, config=config, topics=topics or {"clicks": 6}, clock=lambda: self.now
        )
        self.epochs = {}
        self.owned = {}
        self.submitter = PlanSubmitter(self.coordinator._loop)
        self.tables = weights or WeightTables()
        self.poller = WeightPoller(self.coordinator._loop, lambda: self.tables)

    def beat(self, *members, **more):
        """Let each member send heartbeats until nothing changes."""
        for _ in range(6):
            for member in members:
                epoch = self.epochs.get(member, 0)
                joining = {
                    "rebalance_timeout_ms": 60_000,
                    "subscribed_topic_names": ["clicks"],
                    "topic_partitions": {},
                }
                mine = joining if epoch == 0 else {"topic_partitions": self.owned[member]}
                answer = self.coordinator.consumer_group_heartbeat(
                    group_id="g", member_id=member, member_epoch=epoch, **mine, **more
                )
                self.epochs[member] = answer.member_epoch
                if answer.assignment is not None:
                    self.owned[member] = answer.assignment

    def leave(self, member):
        self.coordinator.consumer_group_heartbeat(group_id="g", member_id=member, member_epoch=-1)
        self.owned.pop(member, None)
        self.epochs.pop(member, None)

    def counts(self):
        return {m: sum(map(len, owned.values())) for m, owned in sorted(self.owned.items())}

    def configure(self, **settings):
        self.coordinator.alter_group_config(
            "g", {name.replace("_", "."): value for name, value in settings.items()}
        )

    def poll(self):
        self.now += 1_000
        self.poller.run()


@pytest.fixture
def running(tmp_path):
    opened = []

    def open_one(**options):
        opened.append(Running(**options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.coordinator.close()


def weights(*values, topic="clicks"):
    return pa.table(
        {"topic": [topic] * len(values), "partition": range(len(values)), "weight": values}
    )


def test_what_is_applied_is_what_was_shown_and_only_once(running):
    group = running()
    group.beat("m1", "m2")
    before = group.counts()
    shown = group.coordinator.plan("g", drain=["m2"])
    assert (group.counts(), shown.plan.summary.moved) == (before, 3)
    answer = group.coordinator.apply_plan(shown)
    assert answer["group_epoch"] == 4
    group.beat("m2", "m1")
    assert group.counts() == {"m1": 6, "m2": 0}
    with pytest.raises(GroupError, match="is already applied as epoch 4"):
        group.coordinator.apply_plan(shown)
    group.beat("m3")
    group.beat("m1", "m2", "m3")
    assert group.counts() == {"m1": 3, "m2": 0, "m3": 3}  # who is drained is not filled again
    group.coordinator.apply_plan(group.coordinator.plan("g", undrain=["m2"]))
    group.beat("m1", "m2", "m3")
    assert group.counts() == {"m1": 2, "m2": 2, "m3": 2}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda g: g.beat("m3"), "members: now m3"),
        (lambda g: g.leave("m2"), "members: no longer m2"),
        (lambda g: g.configure(consumer_assignor_rack="ignore"), "settings: was none"),
        (lambda g: g.coordinator.apply_plan(g.coordinator.plan("g")), "target: was epoch 3"),
    ],
)
def test_drift_is_refused_and_named(running, change, said):
    group = running()
    group.beat("m1", "m2")
    shown = group.coordinator.plan("g", drain=["m1"])
    change(group)
    with pytest.raises(GroupError, match=said):
        group.coordinator.apply_plan(shown)


def test_a_plan_that_was_altered_or_is_too_old_or_supposes_something_is_refused(running):
    group = running()
    group.beat("m1", "m2")
    shown = group.coordinator.plan("g", drain=["m1"])
    other = msgspec.structs.replace(shown.plan, moves=())
    with pytest.raises(GroupError, match="is not what was shown"):
        group.coordinator.apply_plan(other)
    supposed = group.coordinator.plan("g", add=2)
    assert supposed.plan.summary.members == 4
    with pytest.raises(GroupError, match="supposes a group with 2 more members"):
        group.coordinator.apply_plan(supposed)
    assert group.coordinator.plan("g", without=["m2"]).plan.summary.placed == 3
    with pytest.raises(GroupError, match="drain nobody: not a member; the group has m1, m2"):
        group.coordinator.plan("g", drain=["nobody"])
    group.now += 86_400_000
    with pytest.raises(GroupError, match="expired 0 s ago"):
        group.coordinator.apply_plan(shown)


def test_a_manual_group_waits_for_approval_but_not_for_the_dead(running):
    group = running()
    group.coordinator.alter_group_config("g", MANUAL)
    group.beat("m1")  # there is nothing to keep yet
    assert group.counts() == {"m1": 6}
    group.beat("m2")
    group.beat("m1", "m2")
    assert group.counts() == {"m1": 6, "m2": 0}
    group.submitter.run()
    group.submitter.run()
    (waiting,) = group.coordinator.waiting_plans("g")
    assert (waiting.owner, waiting.summary.moved) == ("coordinator", 3)
    group.coordinator.approve_plan("g", waiting.plan_id, by="ann")
    group.beat("m1", "m2", "m1", "m2")
    assert group.counts() == {"m1": 3, "m2": 3}
    group.beat("m3")
    group.submitter.run()
    (waiting,) = group.coordinator.waiting_plans("g")
    group.leave("m1")
    group.beat("m2", "m3")
    counts = group.counts()
    assert sum(counts.values()) == 6
    assert counts["m2"] >= 3  # nothing was taken from who lives
    with pytest.raises(GroupError, match="members: no longer m1"):
        group.coordinator.approve_plan("g", waiting.plan_id)
    group.coordinator.reject_plan("g", waiting.plan_id, by="ann", reason="stale")
    assert group.coordinator.waiting_plans("g") == []
    with pytest.raises(GroupError, match="is already rejected"):
        group.coordinator.approve_plan("g", waiting.plan_id)


def test_weights_move_partitions_when_that_pays(running):
    group = running(weights=WeightTables(weights(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)))
    group.beat("m1", "m2")
    group.poll()
    epoch = group.coordinator.group_epochs("g")
    group.tables = WeightTables(weights(1.01, 1.0, 1.0, 1.0, 1.0, 1.0))
    group.poll()
    assert group.coordinator.group_epochs("g") == epoch  # noted, but not worth a move
    heavy = sorted(group.owned["m1"]["clicks"])
    group.tables = WeightTables(weights(*(10.0 if at in heavy else 1.0 for at in range(6))))
    group.poll()
    group.beat("m1", "m2", "m1", "m2")
    load = [sum(10 if at in heavy else 1 for at in group.owned[m]["clicks"]) for m in ("m1", "m2")]
    assert max(load) <= 21
    assert group.coordinator.plan("g").plan.moves == ()
    group.tables = WeightTables(
        constraints=pa.table({"kind": ["drain"], "selector": ["m1"], "reason": ["disk"]})
    )
    group.poll()
    group.beat("m1", "m2", "m1", "m2")
    assert group.counts() == {"m1": 0, "m2": 6}


def test_capacities_are_those_of_an_instance_or_a_client(running):
    members = pa.table({"name": ["big"], "capacity": [2.0]})
    group = running(weights=WeightTables(members=members))
    group.beat("m1", client_id="big")
    group.poll()
    group.beat("m1", client_id="big")
    group.beat("m2")
    group.beat("m1", client_id="big")
    group.beat("m2")
    assert group.counts() == {"m1": 4, "m2": 2}


def test_partitions_stay_in_the_racks_that_heartbeats_name(running):
    racks = tuple(("r1",) if at % 2 else ("r2",) for at in range(6))
    group = running(topics={"clicks": CatalogTopic("id", 6, racks)})
    for member, rack in (("m1", "r1"), ("m2", "r2"), ("m1", "r1")):
        group.beat(member, rack_id=rack)
    assert group.owned["m1"]["clicks"] == [1, 3, 5]
    assert group.coordinator.plan("g").plan.summary.distant_after == 0
    group.beat("m1", rack_id="r2")  # it went to another one
    assert group.coordinator.plan("g").plan.summary.distant_before == 3


def test_weights_of_a_classic_group_are_noted_if_its_assignor_knows_them(running):
    group = running(weights=WeightTables(weights(2.0, 1.0)))
    read = Protocol("range", write_subscription(Subscription(3, ["clicks"])))
    for group_id in ("c", "other"):
        join = JoinGroup(
            group_id, "", "consumer", [read], 10_000, 60_000, 1, "m", "", knows_member_id=False
        )
        group.coordinator._loop.submit([join]).result()
    group.coordinator.alter_group_config("c", {"consumer.assignor.classic": "weighted"})
    group.poll()
    noted = state_of(group.coordinator).loads
    assert {one: found.weights[0].weights for one, found in noted.items()} == {"c": (2.0, 1.0)}


def test_weights_of_partitions_that_are_not_there_take_no_room(running):
    many = {"topic": ["clicks"] * 3 + ["gone"], "partition": [0, 6, 2**24 - 1, 0]}
    group = running(weights=WeightTables(pa.table({**many, "weight": [Decimal("2.5"), 1, 1, 1]})))
    group.beat("m1", "m2")
    group.poll()
    (noted,) = state_of(group.coordinator).loads["g"].weights
    assert (noted.topic, noted.weights) == ("clicks", (2.5,))


@pytest.mark.parametrize(
    ("kind", "selector", "value", "said"),
    [
        (
            "drain",
            ["m1", "m2"],
            [None, None],
            "cannot be on any member: drain m1; drain m2: drop or soften a constraint",
        ),
        ("exclude", ["clicks/0"] * 2, ["m1", "m2"], "exclude clicks/0 from m1; exclude clicks/0"),
        ("max_partitions", ["m1", "m2"], ["2", "2"], "max_partitions leaves no room"),
    ],
)
def test_rules_that_cannot_be_followed_are_named_and_move_nothing(
    running, kind, selector, value, said
):
    group = running()
    group.beat("m1", "m2")
    before = group.owned
    rules = {"kind": [kind] * 2, "selector": selector, "value": pa.array(value, pa.string())}
    group.tables = WeightTables(constraints=pa.table(rules))
    group.poll()
    group.beat("m1", "m2")
    assert group.owned == before
    with pytest.raises(GroupError, match=said):
        group.coordinator.plan("g")
    until = pa.array([0, 0], pa.timestamp("ms"))
    group.tables = WeightTables(constraints=pa.table(rules).append_column("until", until))
    group.poll()
    assert group.coordinator.plan("g").plan.moves == ()  # they ended


def test_of_many_who_apply_a_plan_at_once_one_does(running, tmp_path):
    store = tmp_path / "store"
    group = running(store=store)
    group.beat("m1", "m2")
    shown = group.coordinator.plan("g", drain=["m1"])

    def apply(by):
        try:
            return group.coordinator.apply_plan(shown, by=f"User:{by}")["decision"]
        except GroupError as error:
            return error.message.partition(" is ")[2].partition(":")[0]

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(apply, range(8)))
    assert answers == [*["already applied as epoch 4"] * 7, "applied"]
    assert [row["status"] for row in frame(store, "plans").to_pylist()] == ["applied"]


def test_a_plan_that_waits_outlives_a_fail_over_but_not_its_group(running, tmp_path):
    store = tmp_path / "store"
    group = running(store=store)
    group.coordinator.alter_group_config("g", MANUAL)
    group.beat("m1")
    group.beat("m2")
    group.submitter.run()
    (waiting,) = group.coordinator.waiting_plans("g")
    after = running(store=store)  # which takes the store over
    after.owned, after.epochs = group.owned, group.epochs
    with pytest.raises(GroupError):
        group.coordinator.approve_plan("g", waiting.plan_id)
    assert after.coordinator.waiting_plans("g") == [waiting]
    assert after.coordinator.approve_plan("g", waiting.plan_id)["moved"] == 3
    late = after.coordinator.plan("g", drain=["m1"])
    after.leave("m1")
    after.leave("m2")
    after.coordinator.delete_groups(["g"])
    with pytest.raises(GroupError, match="g not found"):
        after.coordinator.apply_plan(late)
    assert [row["status"] for row in frame(store, "plans").to_pylist()] == ["applied"]


def test_constraints_that_clash_keep_the_last_target(running):
    group = running()
    group.beat("m1", "m2")
    rules = {"kind": ["exclude", "exclude"], "selector": ["clicks/0"] * 2, "value": ["m1", "m2"]}
    group.tables = WeightTables(constraints=pa.table(rules))
    group.poll()
    before = group.counts()
    group.beat("m1", "m2")
    assert group.counts() == before
    with pytest.raises(GroupError, match="clicks"):
        group.coordinator.plan("g")
    group.beat("m3")
    group.beat("m1", "m2", "m3")
    assert group.counts()["m3"] == 2


def test_roll_back_to_a_former_epoch_and_read_it_in_the_log(running, tmp_path):
    group = running(store=tmp_path / "store")
    group.beat("m1", "m2")
    former = {member: owned["clicks"] for member, owned in group.owned.items()}
    epoch = group.coordinator.group_epochs("g")[0][1]
    group.coordinator.apply_plan(group.coordinator.plan("g", drain=["m1"]), by="ann")
    group.beat("m1", "m2", "m1", "m2")
    group.coordinator.apply_plan(group.coordinator.plan("g", undrain=["m1"]))
    group.beat("m1", "m2", "m1", "m2")
    shown = group.coordinator.plan_rollback("g", epoch)
    group.coordinator.apply_plan(shown)
    group.beat("m1", "m2", "m1", "m2")
    assert {member: owned["clicks"] for member, owned in group.owned.items()} == former
    with pytest.raises(GroupError, match="has no target of epoch 99"):
        group.coordinator.plan_rollback("g", 99)
    state = state_of(group.coordinator)
    group.coordinator.close()
    again = Running(store=tmp_path / "store")
    from tests.support.fingerprint import fingerprint

    assert fingerprint(state_of(again.coordinator))["loads"] == fingerprint(state)["loads"]
    with pytest.raises(GroupError, match="is already applied"):
        again.coordinator.apply_plan(shown)
    again.coordinator.close()


def explain(store, partition, epoch=None):
    found, explained = explain_past_partition(LogReader(store), "g", "clicks", partition, epoch)
    return found, explained


def test_explain_who_could_have_a_partition_and_what_decided(running, tmp_path):
    store = tmp_path / "store"
    group = running(store=store)
    group.beat("m1")
    group.beat("m2")
    group.beat("m1", "m2")
    moved, kept = (min(group.owned[member]["clicks"]) for member in ("m2", "m1"))
    found, explained = explain(store, moved)
    assert (found.epoch, explained.owner, explained.previous_owner) == (3, "m2", "m1")
    assert explained.decided_by == "makespan"
    assert [(c.member_id, c.has, c.had, c.level) for c in explained.candidates] == [
        ("m2", True, False, 3.0),
        ("m1", False, True, 4.0),
    ]
    assert explain(store, kept)[1].decided_by == "least weight moved"
    assert explain(store, moved, 2)[1].decision == "only m1 could have it"
    group.tables = WeightTables(
        constraints=pa.table({"kind": ["drain"], "selector": ["m2"], "reason": ["disk"]})
    )
    group.poll()
    group.beat("m1", "m2", "m1", "m2")
    _, explained = explain(store, moved)
    assert (explained.owner, explained.decided_by) == ("m1", "constraint")
    assert explained.candidates[1].refused == "constraint drain m2 (disk)"
    assert explain(store, moved, 3)[1].owner == "m2"  # a past epoch stays as it was
    for partition, epoch, said in ((6, None, "has no partition 6"), (0, 9, "no target of epoch 9")):
        with pytest.raises(SpecError, match=said):
            explain(store, partition, epoch)


def test_a_plan_that_waits_does_not_drift_by_weights_and_a_newer_one_supersedes_it(running):
    group = running()
    group.coordinator.alter_group_config("g", MANUAL)
    group.beat("m1")
    group.beat("m2")
    group.submitter.run()
    (first,) = group.coordinator.waiting_plans("g")
    group.tables = WeightTables(weights(9.0, 1.0, 1.0, 1.0, 1.0, 1.0))
    group.poll()  # the first weights of a group are noted at once
    group.poll()
    group.beat("m3")
    group.submitter.run()
    (second,) = group.coordinator.waiting_plans("g")
    with pytest.raises(GroupError, match="is already superseded"):
        group.coordinator.approve_plan("g", first.plan_id)
    group.tables = WeightTables(weights(1.0, 9.0, 1.0, 1.0, 1.0, 1.0))
    group.poll()
    assert group.coordinator.approve_plan("g", second.plan_id)["decision"] == "applied"


@pytest.mark.parametrize(
    "bad",
    [
        {"group_epoch": 2**70},
        {"moves": (PlannedMove("clicks", "x", -1, 1),)},
        {"moves": (PlannedMove("clicks", "x", 0, 2**40, "m1", "m2"),)},
        {"timestamp": "now"},
        {"owner": 5},
        {"reason": "\ud800"},
    ],
)
def test_a_plan_made_by_hand_is_refused_and_the_coordinator_goes_on(running, bad):
    group = running()
    group.beat("m1", "m2")
    shown = group.coordinator.plan("g", drain=["m1"])
    made = msgspec.structs.replace(shown.plan, **bad)
    made = msgspec.structs.replace(made, plan_digest=digest_of(made))
    with pytest.raises(GroupError, match="the plan "):
        group.coordinator.apply_plan(made)
    with pytest.raises(GroupError, match="by is not a text"):
        group.coordinator.apply_plan(shown, by=5)
    assert group.coordinator.status == "active"
    assert group.coordinator.apply_plan(shown)["moved"] == 3


def test_requests_of_other_processes_are_answered_or_set_aside(running, tmp_path):
    store = tmp_path / "store"
    group = running(store=store)
    group.beat("m1", "m2")
    plan = group.coordinator.plan("g", drain=["m1"]).plan
    folder = store / "inbox"
    for name, asked in (("one", "apply"), ("two", "apply"), ("three", "approve")):
        Inbox(store).put(DecidePlan(asked, "g", plan.plan_id, plan, "User:ann", "", name))
    (folder / "junk.json").write_text("{")
    InboxReader(group.coordinator._loop, group.coordinator._background.maintenance).run()
    assert list(folder.glob("*.json")) == []
    assert [path.name[-9:] for path in (store / "_set_aside").glob("*.json")] == ["junk.json"]
    assert find_answer(store, "one", 0)[0].reason == "accepted"
    assert "is already applied" in find_answer(store, "two", 0)[0].reason
    (row,) = frame(store, "plans").to_pylist()
    assert (row["status"], row["decided_by"], row["moved"]) == ("applied", "User:ann", 3)


@pytest.mark.parametrize("epoch", ["2", 2.0, True, None, 1 << 64, -(1 << 70)])
def test_a_rollback_to_what_is_no_epoch_is_refused_by_name(running, tmp_path, epoch):
    group = running(store=tmp_path / "s")
    group.beat("m1", "m2")
    with pytest.raises(GroupError, match=re.escape(str(epoch))):
        group.coordinator.plan_rollback("g", epoch)


def test_a_plan_waits_no_longer_than_it_may_be_applied(running):
    group = running()
    group.beat("m1", "m2")
    one, valid_ms = group.coordinator, group.coordinator.config.plans.valid_ms
    times = {"expires_ms": 1 << 60, "timestamp": group.now - valid_ms + 10_000}
    long = msgspec.structs.replace(one.plan("g", drain=["m2"]).plan, **times)
    one.propose_plan(msgspec.structs.replace(long, plan_digest=digest_of(long)))
    assert [waiting.plan_id for waiting in one.waiting_plans("g")] == [long.plan_id]
    group.now += 20_000
    one.propose_plan(other := one.plan("g", drain=["m1"]))
    assert [waiting.plan_id for waiting in one.waiting_plans("g")] == [other.plan.plan_id]
