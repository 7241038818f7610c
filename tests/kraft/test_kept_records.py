"""What Kafka's topic has no record for: a node's store keeps it, and gives it back."""

import json
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import msgspec
import pytest

from assignors import SpecError
from coordinator.config import Config, ConfigError, NodeConfig, PlansConfig
from coordinator.config.kafka import kafka_config
from coordinator.config.settings import parse
from coordinator.core.java_hash import place_of
from coordinator.core.plans.inputs import describe_inputs, take_basis
from coordinator.core.state.groups import BY_NODE
from coordinator.core.state.plan_values import TopicWeights
from coordinator.core.state.records import (
    Audited,
    KafkaWatched,
    LoadsNoted,
    PlanDecided,
)
from coordinator.core.watched_events import KafkaWrote, KeepRecords
from coordinator.errors import GroupError
from coordinator.history.frames import frame
from coordinator.kraft.image_catalog import read_topics
from coordinator.runtime.ask_coordinator import ask_coordinator
from coordinator.storage.tables.table_io import BusyError
from coordinator.watcher.record_batches import read_batches
from coordinator.watcher.watched_store import WatchedStore

from .test_leader import Node, until
from .test_membership import NODE

PARTITIONS = 3
MANUAL = {"consumer.assignor.approval": "manual"}
KAFKA = {"group.consumer.assignors": ["weighted"], "group.consumer.assignment.interval.ms": 0}


class World:
    """A node that leads a partition, and the history that it keeps of it."""

    def __init__(self, folder, image):
        self.store = str(folder / "store")
        self.config = Config(kafka=kafka_config(KAFKA), plans=PlansConfig(poll_ms=20))
        self.group = next(f"g{n}" for n in range(99) if place_of(f"g{n}", PARTITIONS) == 0)
        own = NodeConfig(groups={self.group: MANUAL})
        own = replace(self.config, node=own)
        self.node = Node(folder / "node", image, own, self.store)
        self.epochs, self.owned = {}, {}

    @contextmanager
    def history(self):
        """Keep it, as the node's service does."""
        cluster = KafkaWatched("cluster-1", BY_NODE, int(time.time() * 1000))
        store = WatchedStore.open(self.store, cluster, config=self.config)
        store.report_topics(read_topics(self.node.image), 1)
        ending = threading.Event()

        def feed():
            while not ending.wait(0.01):
                self.read(store)

        feeding = threading.Thread(target=feed)
        feeding.start()
        leader = self.node.leader
        store.coordinator.forward_plans(leader.decide_plan)
        leader.keeper.open(store.coordinator)
        try:
            yield store.coordinator
        finally:
            leader.keeper.open(None)
            ending.set()
            feeding.join()
            store.close()

    def read(self, store):
        replica = self.node.replicas.held.get(0)
        offset = store.next_offsets().get(0, 0)
        if replica is not None and offset < replica.file.log.end:
            store.take(0, read_batches(replica.file.read(offset, 1 << 20)))
            store.flush()

    def lead(self, **changes):
        self.node.see(**changes)
        until(lambda: self.node.code() is None)
        return self.node.leader.find(self.group)

    def beat(self, *members):
        """Let each member send heartbeats until nothing changes."""
        for _ in range(6):
            for member in members:
                epoch = self.epochs.get(member, 0)
                joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
                given = {"topic_partitions": self.owned[member]} if epoch else {
                    **joins, "topic_partitions": {},
                }  # fmt: skip
                answer = self.node.leader.find(self.group).consumer_group_heartbeat(
                    group_id=self.group, member_id=member, member_epoch=epoch, **given
                )
                self.epochs[member] = answer.member_epoch
                if answer.assignment is not None:
                    self.owned[member] = answer.assignment
        return [sum(map(len, self.owned[one].values())) for one in members]

    def ask(self, action, plan_id, plan=None):
        return ask_coordinator(
            self.store, self.config, action, self.group, plan_id, plan, "a reason"
        )

    def plans(self):
        return {row["plan_id"]: row["status"] for row in frame(self.store, "plans").to_pylist()}

    def join_two(self):
        """The plan that the second one's join waits for, once it is kept."""
        self.beat("a")
        self.beat("a", "b")
        plan = self.waiting()
        until(lambda: self.plans() == {plan.plan_id: "waiting"})
        return plan

    def waiting(self):
        """The plan that waits for approval."""
        found = []

        def look():
            found[:] = self.node.leader.find(self.group).waiting_plans(self.group)
            return found

        until(look)
        return found[0]


@pytest.fixture
def world(tmp_path, image):
    one = World(tmp_path, image)
    yield one
    one.node.leader.close()


def explain(muster_here, world):
    done = muster_here(
        "explain", world.group, "--store", world.store, "--partition", "orders/1", "--json"
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_plan_of_a_led_group_is_approved_in_the_store_of_the_node(world, muster_here):
    """The group has a setting that its cluster cannot have."""
    with world.history():
        world.lead()
        assert world.beat("a") == [4]
        assert world.beat("a", "b") == [4, 0]
        plan = world.waiting()
        until(lambda: world.plans() == {plan.plan_id: "waiting"})
        epoch = world.ask("approve", plan.plan_id)
        assert world.beat("a", "b", "a") == [2, 2, 2]
        until(lambda: world.plans() == {plan.plan_id: "applied"})
        with pytest.raises(SpecError, match="is already applied"):
            world.ask("approve", plan.plan_id)
        found = explain(muster_here, world)
        assert (found["assignment_epoch"], found["assignor"]) == (epoch, "weighted")
        assert found["plan_id"] == plan.plan_id
        assert {one["member_id"] for one in found["candidates"]} == {"a", "b"}


def test_a_plan_that_the_history_shows_is_what_the_leader_would_make(world):
    with world.history() as history:
        led = world.lead()
        world.beat("a")
        world.beat("a", "b")
        plan = world.waiting()
        until(lambda: plan.plan_id in world.plans())

        def describe(coordinator):
            config = coordinator.config
            return coordinator.look(
                lambda state: describe_inputs(take_basis(state, config, world.group, 1))
            )

        assert describe(history) == describe(led)
        shown = history.plan(world.group, drain=["a"]).plan
        assert not shown.supposes
        world.ask("apply", shown.plan_id, shown)
        assert world.beat("a", "b", "a", "b")[:2] == [0, 4]
        until(lambda: world.plans()[plan.plan_id] == "superseded")


def test_the_next_term_has_the_plans_weights_and_drains_of_the_last(world):
    with world.history() as history:
        led = world.lead()
        world.beat("a")
        world.beat("a", "b")
        plan = world.waiting()
        loads = LoadsNoted(
            world.group, (TopicWeights("orders", (1.0, 2.0, 3.0, 4.0)),), drained=("a",)
        )
        led.submit([KeepRecords([loads])]).result()
        until(lambda: list(history.look(lambda state: state.loads_used)) == [world.group])
        lag = LoadsNoted(world.group, (TopicWeights("orders", (9.0,)),), timestamp=5)
        history.submit([KafkaWrote((lag,), 5, explains=False)]).result()
        until(lambda: world.plans() == {plan.plan_id: "waiting"})
        again = world.lead(leader_epoch=10)
        assert again is not led
        assert again.look(lambda state: state.loads) == {world.group: loads}
        assert again.waiting_plans(world.group) == [plan]
        world.ask("reject", plan.plan_id)
        until(lambda: world.plans()[plan.plan_id] == "rejected")


def test_a_history_that_opens_later_brings_what_it_kept_and_gets_what_it_missed(world):
    with world.history() as history:
        world.lead()
        plan = world.join_two()
        until(lambda: world.group in history.look(lambda state: state.settings))
    world.node.leader.keeper.send([Audited("other", "denied", "User:bob")])
    world.node.leader.catalog._own.clear()
    led = world.lead(leader_epoch=10)
    assert led.waiting_plans(world.group) == [plan]  # read from the store, which is not open
    with world.history() as history:
        until(lambda: frame(world.store, "audit").num_rows == 1)
        until(lambda: not history.look(lambda state: state.settings))


def test_what_could_not_be_read_is_restored_when_the_history_opens(world):
    """And it plans nothing itself, though the group's settings are there."""
    world.node.leader.keeper._store = None
    with world.history() as history:
        world.lead()
        plan = world.join_two()
        until(lambda: world.group in history.look(lambda state: state.settings))
    world.node.leader.catalog._own.clear()
    led = world.lead(leader_epoch=10)
    assert led.waiting_plans(world.group) == []
    with world.history():
        until(lambda: led.waiting_plans(world.group) == [plan])
        assert world.plans() == {plan.plan_id: "waiting"}


def test_who_leads_a_group_decides_about_its_plans(world):
    with world.history() as history:
        world.lead()
        world.beat("a")
        until(lambda: world.group in history.look(lambda state: state.groups))
        shown = history.plan(world.group).plan
        world.node.see(leader=-1, leader_epoch=10, isr=(1, NODE))
        with pytest.raises(SpecError, match="Another node leads __consumer_offsets-0"):
            world.ask("apply", shown.plan_id, shown)
    with pytest.raises(BusyError, match="no node is running"):
        world.ask("apply", shown.plan_id, shown)


def test_a_plan_is_answered_once_the_store_has_the_answer(world):
    """A history that writes nothing keeps no group waiting."""
    keeper = world.node.leader.keeper
    with world.history():
        world.lead()
        world.beat("a")
        until(lambda: frame(world.store, "groups").num_rows == 1)
        keeper.open(None)
        keeper.send([Audited("g", "denied", "User:bob")])
        with pytest.raises(GroupError, match=r"has not kept the answer within 0\.05 s"):
            keeper.flush(0.05)
        assert world.beat("a", "b") == [4, 0]


def test_plans_wait_for_a_group_that_the_history_has_not_read(world):
    """What else is of that group is kept at once, and once."""
    keeper = world.node.leader.keeper
    decided = PlanDecided(world.group, "p", "rejected", timestamp=1, expires_ms=1 << 50)
    denied = Audited(world.group, "denied", "User:bob")
    with world.history() as history:
        world.lead()
        keeper.send([decided, denied])
        keeper.flush()
        time.sleep(0.6)
        assert frame(world.store, "audit").num_rows == 1
        assert keeper.find(0)[-1] == decided
        world.beat("a")
        until(
            lambda: (
                keeper.find(0) != []
                and decided
                in history.look(
                    lambda state: [
                        one for group in state.groups.values() for one in group.decided.values()
                    ]
                )
            )
        )
        assert frame(world.store, "audit").num_rows == 1


def test_groups_do_not_wait_for_a_history_that_hangs(world):
    """What it has is restored once it answers."""
    with world.history() as history:
        world.lead()
        plan = world.join_two()
        going_on = threading.Event()
        hangs = threading.Thread(target=lambda: history.look(lambda _: going_on.wait(30)))
        hangs.start()
        led = world.lead(leader_epoch=10)
        assert led.waiting_plans(world.group) == []
        going_on.set()
        hangs.join()
        until(lambda: plan in led.waiting_plans(world.group))


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ('"consumer.session.timeout.ms" = 50000', "is Kafka's: set it in the cluster"),
        ('"consumer.assignor.engine" = "spark"', "a node computes targets itself"),
        ('"consumer.assignor.approval" = "maybe"', "give one of"),
        ('"approval" = "manual"', "unknown setting 'approval'"),
    ],
)
def test_a_setting_that_a_node_cannot_give_a_group_is_refused(settings, wrong):
    with pytest.raises(ConfigError, match=f"node.groups.billing: .*{wrong}"):
        parse(f"[node.groups.billing]\n{settings}", "muster.toml")


def test_a_group_without_a_name_has_no_settings():
    with pytest.raises(ConfigError, match="a group without a name"):
        parse('[node.groups.""]\n"consumer.assignor.approval" = "manual"', "muster.toml")


def test_a_node_gives_a_group_settings_of_every_type():
    found = parse('[node.groups.billing]\n"consumer.assignor.max.moves" = 100', "muster.toml")
    assert msgspec.to_builtins(found.node.groups) == {
        "billing": {"consumer.assignor.max.moves": 100}
    }
