"""Members against the coordinator's core, in any order, with lost, late and repeated answers.

No partition is worked on by two members at any instant, and every one is worked on in bounded time
once nothing more is lost. `MUSTER_LONG=1` runs many times as many, and longer, examples.
"""

from __future__ import annotations

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.errors import ErrorCode
from coordinator.member.events import Leave, Resume, Stall, Subscribe
from coordinator.member.states import BEATING, ENDED, ClientState
from tests.member.world import World, partitions
from tests.support.coordinator_core import Core

MEMBERS_MAX = 5
TOPICS = ("a", "b")
names = st.sets(st.sampled_from(TOPICS), min_size=1).map(lambda found: tuple(sorted(found)))
refusals = st.sampled_from(
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ]
)
which = st.integers(0, 7)


class Machine(RuleBasedStateMachine):
    """One group, its members and its coordinator."""

    def __init__(self):
        super().__init__()
        core = Core()
        core.topics(a=4, b=2)
        self.world = World(core)
        self.joined = 0

    def pick(self, index, wanted):
        """One of the players that fit; None when none does."""
        found = [player for player in self.world.players if wanted(player)]
        return found[index % len(found)] if found else None

    def live(self):
        return [p for p in self.world.players if p.state in BEATING]

    @precondition(lambda self: len(self.live()) < MEMBERS_MAX)
    @rule(names=names, static=st.sampled_from([None, None, "i0", "i1"]))
    def join(self, names, static):
        others = [p for p in self.world.players if p.state not in ENDED]
        if static in {p.membership.settings.instance_id for p in others}:
            static = None  # it would wait for as long as the other one lives
        self.world.join(Subscribe(names), f"m{self.joined}", instance_id=static)
        self.joined += 1

    @rule(index=which)
    def member_dies(self, index):
        if player := self.pick(index, lambda _: True):
            self.world.players.remove(player)

    @rule(index=which, refusal=st.none() | st.none() | st.none() | refusals)
    def request_arrives(self, index, refusal):
        if player := self.pick(index, lambda p: p.request):
            player.reach(refusal)

    @rule(index=which, answer=which, again=st.booleans())
    def answer_arrives(self, index, answer, again):
        if player := self.pick(index, lambda p: p.answers and not p.paused):
            player.hear(answer % len(player.answers), again=again)

    @rule(index=which)
    def answer_is_lost(self, index):
        if player := self.pick(index, lambda p: p.answers):
            player.answers.pop(0)

    @rule(index=which)
    def member_waits_no_longer(self, index):
        if player := self.pick(index, lambda p: not p.paused):
            player.give_up()

    @rule(index=which)
    def step_is_done(self, index):
        if player := self.pick(index, lambda p: p.steps and not p.paused):
            player.finish()

    @rule(index=which)
    def all_of_one_arrives(self, index):
        if player := self.pick(index, lambda p: not p.paused):
            player.talk()

    @rule(ms=st.sampled_from([1, 100, 1_000, 5_000, 5_000, 9_000, 40_000, 50_000]))
    def time_passes(self, ms):
        self.world.advance(ms)

    @rule(index=which)
    def member_stops_or_goes_on(self, index):
        if player := self.pick(index, lambda _: True):
            player.paused = not player.paused

    @rule(index=which, names=names)
    def member_resubscribes(self, index, names):
        if player := self.pick(index, lambda p: p.state in BEATING and not p.paused):
            player.tell(Subscribe(names))

    @rule(index=which, for_a_while=st.booleans())
    def member_leaves(self, index, for_a_while):
        if player := self.pick(index, lambda p: not p.paused):
            player.tell(Leave(for_a_while=for_a_while))

    @rule(index=which, event=st.sampled_from([Stall(), Resume()]))
    def work_stalls_or_resumes(self, index, event):
        if player := self.pick(index, lambda p: not p.paused):
            player.tell(event)

    @rule(counts=st.fixed_dictionaries({"a": st.integers(1, 6)}), delete=st.booleans())
    def topic_changes(self, counts, delete):
        self.world.core.topics(delete=("a",) if delete else (), **counts)

    @invariant()
    def no_member_works_on_what_another_works_on(self):
        self.world.check()

    def teardown(self):
        """When all is quiet, everything is worked on, and no member waits."""
        for player in self.world.players:
            player.paused = False
            player.tell(Resume())
        self.world.settle()
        live = [p for p in self.world.players if p.state in BEATING]
        assert all(p.state is ClientState.STABLE for p in live)
        group = self.world.core.state.groups.get("g")
        assert {p.name for p in live} == set(group.members if group else ())
        wanted = {name for p in live for name in group.members[p.name].meta.subscribed_topic_names}
        topics = [self.world.core.state.topics[name] for name in wanted]
        everything = {(t.key.topic_id, n) for t in topics for n in range(t.partitions)}
        assert set().union(*(partitions(p.membership.owned) for p in live)) == everything
        super().teardown()


many = int(os.environ.get("MUSTER_LONG", "0"))
Machine.TestCase.settings = settings(
    max_examples=1_000 if many else 40,
    stateful_step_count=150 if many else 50,
    deadline=None,
)
TestMembers = Machine.TestCase
