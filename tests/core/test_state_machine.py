"""Everything that can happen to a group, in any order: members that join, lie, leave and die, topics
that come and go, settings, fail-overs, computations outside; `invariants` hold after every step.

`MUSTER_LONG=1` runs fifty times as many, and longer, examples.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from assignors import GroupSpec, get_assignor
from coordinator.config import PlanConfig
from coordinator.core.consumer.steady_heartbeat import answer_steady_heartbeat
from coordinator.core.events import (
    ConfigureGroup,
    DeleteGroup,
    ExpireOffsets,
    Heartbeat,
    InstallAssignment,
    OffsetCommit,
    PrepareAssignment,
    ResolveRegexes,
)
from coordinator.core.state import state_records
from coordinator.core.state.groups import GROUP_MOVES, GroupState
from coordinator.core.state.partition_spans import kafka_id
from coordinator.core.state_machine import step
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.regex_jobs import prepare_resolution
from coordinator.runtime.target_computations import restore_basis
from tests.engines.twin_engine import TwinEngine
from tests.support import invariants
from tests.support.coordinator_shell import Shell
from tests.support.fingerprint import fingerprint
from tests.support.longer import EVERY

MEMBERS = ("m0", "m1", "m2", "m3", "m4")
TOPICS = ("a", "b", "c")
OWN_FAULTS = {ErrorCode.UNKNOWN_SERVER_ERROR}
QUIET_ROUNDS = 60

members = st.sampled_from(MEMBERS)
names = st.sets(st.sampled_from(TOPICS), max_size=3).map(sorted)
regexes = st.sampled_from([None, None, None, "", "a|b", "[bc]", ".*", "["])
assignors = st.sampled_from([None, None, "uniform", "range", "sticky"])
group_settings = st.fixed_dictionaries(
    {},
    optional={
        "consumer.assignment.interval.ms": st.sampled_from(["0", "1000"]),
        "consumer.assignor.max.moves": st.sampled_from(["0", "1", "2"]),
        "consumer.assignor.imbalance": st.sampled_from(["0", "1", "50%"]),
        "consumer.assignor.engine": st.sampled_from(["local", "spark", "external"]),
    },
)


class Client:
    """What the process behind a member believes, from the answers that reached it."""

    def __init__(self):
        self.epoch = 0
        self.instance = None
        self.owns = set()  # (topic key, partition)

    def report(self):
        """The partitions it owns, as it would report them: by topic id."""
        found = {}
        for key, partition in sorted(self.owns):
            found.setdefault(kafka_id(key.topic_id), []).append(partition)
        return found

    def hear(self, response):
        """Take an answer in; what must go is given up with the next report, not before."""
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.given = {
                (key, p) for key, first, end in response.assignment for p in range(first, end)
            }
            self.owns |= self.given

    def give_up(self):
        """Let go of what the last answer no longer had."""
        self.owns &= self.given

    given = frozenset()


class Machine(RuleBasedStateMachine):
    """One group, "g", and everything around it."""

    def __init__(self):
        super().__init__()
        plan = PlanConfig(long_ranges=0)  # plans continue from the last one
        self.shell = Shell(interval_ms=1_000, engine_timeout_ms=5_000, plan=plan, a=4, b=2)
        self.clients = {}
        self.rising = {}
        self.engine = TwinEngine()
        self.landing = []  # computations that are done and not yet reported
        self.prepared = None
        self.ids = 0

    @property
    def processor(self):
        return self.shell.processor

    @property
    def group(self):
        return self.processor.state.groups.get("g")

    def ask(self, event):
        """Run one event; a step never writes, and the fast path answers exactly as it does."""
        state, config = self.processor.state, self.processor.config
        before, group_state = fingerprint(state), self.group_state()
        steady = (
            answer_steady_heartbeat(state, config, event) if isinstance(event, Heartbeat) else None
        )
        try:
            wanted = step(state, config, event, self.shell.now)
        except GroupError as error:
            wanted = error
        assert fingerprint(state) == before, "a step changed the state"
        if steady is not None:
            assert (steady.records, steady.response) == (wanted.records, wanted.response)
        (answer,) = self.processor.run([event])
        if isinstance(wanted, GroupError):
            assert (answer.code, answer.message) == (wanted.code, wanted.message)
            assert answer.code not in OWN_FAULTS, answer.message
            assert fingerprint(self.processor.state) == before
        else:
            assert (answer.records, answer.response) == (wanted.records, wanted.response)
        now = self.group_state()
        assert now == group_state or now in GROUP_MOVES[group_state], f"{group_state} → {now}"
        return answer

    def group_state(self):
        """A group that is not there can be joined as an empty one."""
        return GroupState.EMPTY if self.group is None else self.group.state

    def heartbeat(self, member, epoch, *, lost=False, **fields):
        """Heartbeat for a client, which hears the answer unless it is lost."""
        client = self.clients.setdefault(member, Client())
        if "topic_partitions" in fields:
            fields["by_topic_id"] = True
        answer = self.ask(Heartbeat("g", member, epoch, **fields))
        if isinstance(answer, GroupError):
            if answer.code is not ErrorCode.INVALID_REGULAR_EXPRESSION:
                del self.clients[member]
        elif epoch < 0:
            del self.clients[member]
        elif not lost:
            client.hear(answer.response)
        return answer

    # Members -------------------------------------------------------------------------------------

    @rule(
        member=members,
        names=names,
        regex=regexes,
        assignor=assignors,
        instance=st.sampled_from([None, None, "i0", "i1"]),
    )
    def join(self, member, names, regex, assignor, instance):
        self.clients[member] = client = Client()
        client.instance = instance
        self.heartbeat(
            member, 0, instance_id=instance, rebalance_timeout_ms=7_000, topic_partitions={},
            subscribed_topic_names=names, subscribed_topic_regex=regex, server_assignor=assignor,
        )  # fmt: skip

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), speaks=st.sampled_from(["quiet", "honest", "full"]), lost=st.booleans())
    def beat(self, data, speaks, lost):
        member = data.draw(st.sampled_from(sorted(self.clients)))
        client = self.clients[member]
        fields = {}
        if speaks != "quiet":
            client.give_up()
            fields["topic_partitions"] = client.report()
        if speaks == "full":
            fields |= {"rebalance_timeout_ms": 7_000, "subscribed_topic_names": ["a", "b"]}
        self.heartbeat(member, client.epoch, lost=lost, **fields)

    @precondition(lambda self: self.clients)
    @rule(
        data=st.data(),
        names=st.none() | names,
        regex=regexes,
        assignor=assignors,
        rack=st.sampled_from([None, "r1"]),
    )
    def change(self, data, names, regex, assignor, rack):
        member = data.draw(st.sampled_from(sorted(self.clients)))
        self.heartbeat(
            member, self.clients[member].epoch, subscribed_topic_names=names, rack_id=rack,
            subscribed_topic_regex=regex, server_assignor=assignor,
        )  # fmt: skip

    @rule(
        member=members, epoch=st.integers(-3, 12), instance=st.sampled_from([None, "i0", "i1"]),
        owned=st.none() | st.dictionaries(st.sampled_from([*TOPICS, "x"]), st.lists(st.integers(0, 5), max_size=3)),
    )  # fmt: skip
    def lie(self, member, epoch, instance, owned):
        """Send a false request under any member id. It may cost a live member its partitions."""
        found = self.group.members.get(member) if self.group else None
        epoch_before = found.epoch if found else None
        answer = self.ask(Heartbeat("g", member, epoch, instance, topic_partitions=owned))
        if not isinstance(answer, GroupError) and epoch_before is not None:
            self.clients.pop(member, None)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), for_good=st.booleans())
    def leave(self, data, for_good):
        member = data.draw(st.sampled_from(sorted(self.clients)))
        instance = self.clients[member].instance
        self.heartbeat(member, -1 if for_good or not instance else -2, instance_id=instance)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def die(self, data):
        """The process is gone; the coordinator will notice."""
        del self.clients[data.draw(st.sampled_from(sorted(self.clients)))]

    @rule(ms=st.sampled_from([1, 500, 1_000, 3_000, 7_000, 11_000, 45_000]))
    def advance(self, ms):
        self.shell.advance(ms)

    @rule(member=members, epoch=st.integers(-1, 9), topic=st.sampled_from(TOPICS))
    def commit(self, member, epoch, topic):
        self.ask(OffsetCommit("g", member, epoch, {topic: {0: (1, "")}}))

    # What is around ------------------------------------------------------------------------------

    @rule(topic=st.sampled_from(TOPICS), partitions=st.integers(0, 5))
    def topic_comes_or_grows(self, topic, partitions):
        old = self.shell.catalog.topics().get(topic)
        self.shell.catalog.set(topic, max(partitions, old.partitions if old else 0))
        self.processor.see_topics()

    @rule(topic=st.sampled_from(TOPICS), again=st.booleans())
    def topic_goes(self, topic, again):
        self.shell.catalog.delete(topic)
        if again:
            self.ids += 1
            self.shell.catalog.set(topic, 3, f"{topic} again {self.ids}")
        self.processor.see_topics()

    @rule(given=group_settings)
    def configure(self, given):
        self.ask(ConfigureGroup("g", given))

    @rule()
    def delete_group(self):
        self.ask(DeleteGroup("g"))

    @rule()
    def expire(self):
        self.ask(ExpireOffsets())

    @rule()
    def fail_over(self):
        before = fingerprint(self.processor.state)
        self.shell.reload()
        self.same_after_load(before)

    @rule()
    def fail_over_from_a_snapshot(self):
        before = invariants.as_kept(self.processor.state)
        log = self.processor.log
        log.snapshot(
            list(state_records.records_of(self.processor.state)),
            self.processor.position,
            self.shell.now,
        )
        self.shell.reload()
        self.same_after_load(before)

    def same_after_load(self, before):
        """Except for a computation of the predecessor's own engine, which starts again."""
        after = fingerprint(self.processor.state)
        assert invariants.as_loaded(after) == invariants.as_loaded(before)

    # Off the heartbeat path ----------------------------------------------------------------------

    @rule(now=st.booleans())
    def do_tasks(self, now):
        for task in self.processor.take_tasks():
            if isinstance(task, ResolveRegexes):
                self.landing.append(prepare_resolution(self.processor, task)())
            elif (job := restore_basis(self.processor, task)) is not None:
                self.landing.append(self.engine.compute(job))
        if now:
            self.land()

    @rule()
    def land(self):
        waiting, self.landing = self.landing, []
        for event in waiting:
            self.ask(event)

    @rule()
    def prepare(self):
        self.ids += 1
        answer = self.ask(PrepareAssignment("g", f"job-{self.ids}"))
        if not isinstance(answer, GroupError):
            self.prepared = answer.response

    @precondition(lambda self: self.prepared is not None)
    @rule(wrong=st.booleans(), assignor=st.sampled_from(["uniform", "range"]))
    def install(self, wrong, assignor):
        found = self.prepared
        spec = GroupSpec.from_arrow(found["members"], found["topics"], found["owned"])
        ranges = get_assignor(assignor).assign(spec).to_arrow()
        if wrong:
            ranges = ranges.slice(1)
        self.ask(InstallAssignment("g", found["computation_id"], found["group_epoch"], ranges))

    # What must hold ------------------------------------------------------------------------------

    @invariant()
    def nothing_is_broken(self):
        state = self.processor.state
        with self.shell.history.printed_on_failure():
            invariants.check(state)
            rising = invariants.epochs(state)
            invariants.check_rising(self.rising, rising)
        self.rising = rising

    @invariant()
    def no_member_uses_what_is_not_its_own(self):
        """What a member got and has not reported as given up is assigned or pending to it."""
        if self.group is None:
            return
        held = invariants.holders(self.group)
        for member_id, client in self.clients.items():
            member = self.group.members.get(member_id)
            if member is not None and member.epoch > 0 and client.epoch in known_epochs(member):
                foreign = {p for p in client.owns if member_id not in held.get(p, ())}
                with self.shell.history.printed_on_failure():
                    assert not foreign, f"{member_id} uses {foreign}"

    def teardown(self):
        """Without further faults, honest members settle, and every subscribed partition is owned."""
        self.ask(ConfigureGroup("g", {}))
        for _ in range(QUIET_ROUNDS):
            self.shell.advance(1_000)
            self.do_tasks(now=True)
            for member in sorted(self.clients):
                client = self.clients[member]
                client.give_up()
                self.heartbeat(member, client.epoch, topic_partitions=client.report())
                self.nothing_is_broken()
                self.no_member_uses_what_is_not_its_own()
        if self.group is not None and self.group.members:
            with self.shell.history.printed_on_failure():
                self.check_rest()
        all_records = [r for batch in self.shell.storage.batches for r in batch.records]
        assert fingerprint(invariants.replayed(all_records)) == fingerprint(self.processor.state)

    def check_rest(self):
        group, state = self.group, self.processor.state
        assert group.state is GroupState.STABLE
        owners = {partition: who for partition, (who,) in invariants.holders(group).items()}
        for name, topic in state.topics.items():
            subscribers = {
                m for m, found in group.members.items() if group.subscriptions(found.meta)(name)
            }
            for partition in range(topic.partitions if subscribers else 0):
                assert owners.pop((topic.key, partition), None) in subscribers
        assert owners == {}, "partitions without subscribers are owned"


def known_epochs(member):
    """The epochs that the coordinator accepts from a member."""
    return {member.current.member_epoch, member.current.previous_member_epoch}


Machine.TestCase.settings = settings(
    max_examples=1_500 if EVERY else 30, stateful_step_count=60 if EVERY else 40
)
TestMachine = Machine.TestCase
