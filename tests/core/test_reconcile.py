"""reconcile: a member's next step towards its target, case by case, and against an obvious twin."""

from __future__ import annotations

import random

import pytest

from coordinator.core.consumer.reconcile import ALLOWED_MOVES, ReconcileGoal, reconcile
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey, add_epoch, spans_of, union
from coordinator.core.state.records import CurrentMember, MemberMetadata, MemberState, TopicChanged
from coordinator.core.state.replay import replay
from coordinator.errors import GroupError, IllegalStateError
from tests.support.coordinator_core import STABLE, UNRELEASED, UNREVOKED, Code, lists
from tests.support.twins_coordinator import FENCED, Place, held, partitions, reconciled

UNKNOWN = MemberState.UNKNOWN
ME, OTHER = "me", "other"


def key(name):
    return TopicKey(name, f"{name}-id")


def parsed(text):
    """ "a0 a1 b2" as partitions."""
    return {(key(word[0]), int(word[1:])) for word in text.split()}


def shown(holding):
    return " ".join(f"{k.name}{p}" for k, p in sorted(partitions(holding)))


def holding(text, epoch):
    return add_epoch(spans_of(parsed(text)), epoch)


def world(current, names, others, topics="ab"):
    """A state in which `me` has this current assignment and another member holds `others`."""
    state = State()
    for name in topics:
        replay(state, TopicChanged(name, f"{name}-id", 10))
    replay(state, MemberMetadata("g", ME, subscribed_topic_names=tuple(sorted(names))))
    replay(state, current)
    replay(state, MemberMetadata("g", OTHER))
    replay(state, CurrentMember("g", OTHER, 3, 3, STABLE, add_epoch(spans_of(others), 3)))
    return state


def next_step(state, goal):
    group = state.groups["g"]
    member = group.members[ME]
    return (
        reconcile(state, group, member.meta, member.current, member.serial, goal) or member.current
    )


# (state, assigned, pending), (target, owned, others, subscribed, target epoch), (state, assigned,
# pending, epoch). The member is at epoch 5, what it has was given at 4. "-" is null: not reported.
CASES = {
    # id: (where it is), (what it heads for), (where it comes)
    "G-50 at its target: nothing": ((STABLE, "a0", ""), ("a0", "-", "", "a", 5), (STABLE, "a0", "", 5)),
    "G-51 stable→stable": ((STABLE, "a0", ""), ("a0", "-", "", "a", 6), (STABLE, "a0", "", 6)),
    "G-60 stable→stable, new partitions": ((STABLE, "a0", ""), ("a0 a1 b0", "-", "", "ab", 6), (STABLE, "a0 a1 b0", "", 6)),
    "G-58 stable→unrevoked": ((STABLE, "a0 a1", ""), ("a0 b0", "-", "", "ab", 6), (UNREVOKED, "a0", "a1", 5)),
    "G-58 stable→unrevoked, still owned": ((STABLE, "a0 a1", ""), ("a0", "a1", "", "a", 6), (UNREVOKED, "a0", "a1", 5)),
    "G-59 not owned: no revocation": ((STABLE, "a0 a1", ""), ("a0 b0", "a0", "", "ab", 6), (STABLE, "a0 b0", "", 6)),
    "G-61 stable→unreleased": ((STABLE, "a0", ""), ("a0 a1", "-", "a1", "a", 6), (UNRELEASED, "a0", "", 6)),
    "G-60 stable→unreleased, some free": ((STABLE, "a0", ""), ("a0 a1 a2", "-", "a1", "a", 6), (UNRELEASED, "a0 a2", "", 6)),
    "G-59 stable→unreleased, not owning the revoked": ((STABLE, "a0 a1", ""), ("a0 a2", "a0", "a2", "a", 6), (UNRELEASED, "a0", "", 6)),
    "G-53 stays unrevoked: still owned": ((UNREVOKED, "a0", "a1"), ("a0", "a0 a1", "", "a", 6), (UNREVOKED, "a0", "a1", 5)),
    "G-53 stays unrevoked: not reported": ((UNREVOKED, "a0", "a1"), ("a0", "-", "", "a", 6), (UNREVOKED, "a0", "a1", 5)),
    "G-53 unrevoked→stable": ((UNREVOKED, "a0", "a1"), ("a0 b0", "a0", "", "ab", 6), (STABLE, "a0 b0", "", 6)),
    "G-67 unrevoked→unrevoked: a newer target takes more": ((UNREVOKED, "a0 a2", "a1"), ("a0", "a0 a2", "", "a", 7), (UNREVOKED, "a0", "a2", 5)),
    "G-61 unrevoked→unreleased": ((UNREVOKED, "a0", "a1"), ("a0 a2", "a0", "a2", "a", 6), (UNRELEASED, "a0", "", 6)),
    "G-57 pending and given back: it is its own": ((UNREVOKED, "a0", "a1"), ("a0 a1", "a0", "", "a", 6), (STABLE, "a0 a1", "", 6)),
    "G-57 given back before it is acknowledged: waits": ((UNREVOKED, "a0", "a1"), ("a0 a1", "a0 a1", "", "a", 6), (UNREVOKED, "a0", "a1", 5)),
    "G-54 unreleased→stable": ((UNRELEASED, "a0", ""), ("a0", "-", "", "a", 5), (STABLE, "a0", "", 5)),
    "G-54 unreleased→stable, new partitions": ((UNRELEASED, "a0", ""), ("a0 a1", "-", "", "a", 5), (STABLE, "a0 a1", "", 5)),
    "G-54 unreleased→unreleased, one comes free": ((UNRELEASED, "a0", ""), ("a0 a1 a2", "-", "a2", "a", 5), (UNRELEASED, "a0 a1", "", 5)),
    "G-54 unreleased→unrevoked: a newer target": ((UNRELEASED, "a0 a1", ""), ("a1 a2", "-", "a2", "a", 7), (UNREVOKED, "a1", "a0", 5)),
    "G-55 unknown, owning nothing": ((UNKNOWN, "a0", "a1"), ("a0 a2", "", "", "a", 6), (STABLE, "a0 a2", "", 6)),
    "G-56 not subscribed: not given": ((STABLE, "a0", ""), ("a0 b0", "-", "", "a", 6), (STABLE, "a0", "", 6)),
    "G-56 not subscribed: taken": ((STABLE, "a0 b0", ""), ("a0 b0", "-", "", "a", 6), (UNREVOKED, "a0", "b0", 5)),
    "G-56 a topic that is gone: not given": ((STABLE, "a0", ""), ("a0 x0", "-", "", "ax", 6), (STABLE, "a0", "", 6)),
}  # fmt: skip


@pytest.mark.behaviour(
    "K-32", "G-50", "G-51", "G-53", "G-54", "G-55", "G-56", "G-57", "G-58", "G-59", "G-60", "G-61", "G-62", "G-67",
    "G-68", "G-157", "S-23", "S-27", "S-29",
)  # fmt: skip
@pytest.mark.parametrize(("here", "goal", "there"), CASES.values(), ids=CASES)
def test_cases(here, goal, there):
    state, assigned, pending = here
    target, owned, others, names, epoch = goal
    current = CurrentMember("g", ME, 5, 5, state, holding(assigned, 4), holding(pending, 4))
    found = next_step(
        world(current, names, parsed(others)),
        ReconcileGoal(
            epoch,
            spans_of(parsed(target)),
            lambda _near: None if owned == "-" else spans_of(parsed(owned)),
            resubscribed=False,
        ),
    )
    assert (found.state, shown(found.assigned), shown(found.pending), found.member_epoch) == there
    assert found.previous_member_epoch == 5
    for partition, given in held(found.assigned).items():
        kept = partition in parsed(assigned)
        assert given == (4 if kept else epoch)  # stamped with the target epoch it came by


TRIMS = {
    # id: (state, assigned, pending), owned, (state, assigned, pending)
    "still owned": ((STABLE, "a0 b0", ""), "a0 b0", (UNREVOKED, "a0", "b0")),
    "not reported": ((STABLE, "a0 b0", ""), "-", (UNREVOKED, "a0", "b0")),
    "given up already": ((STABLE, "a0 b0", ""), "a0", (STABLE, "a0", "")),
    "nothing to trim": ((STABLE, "a0", ""), "a0", (STABLE, "a0", "")),
    "more to revoke": ((UNREVOKED, "a0 b0", "a1"), "a1 b0", (UNREVOKED, "a0", "a1 b0")),
}


@pytest.mark.behaviour("G-52", "G-63", "G-64", "S-26")
@pytest.mark.parametrize(("here", "owned", "there"), TRIMS.values(), ids=TRIMS)
def test_a_smaller_subscription_is_trimmed_before_a_new_target_is_there(here, owned, there):
    state, assigned, pending = here
    current = CurrentMember("g", ME, 5, 4, state, holding(assigned, 4), holding(pending, 4))
    owns = None if owned == "-" else spans_of(parsed(owned))
    found = next_step(
        world(current, "a", set()),
        ReconcileGoal(5, spans_of(parsed(assigned)), lambda _near: owns, resubscribed=True),
    )
    assert (found.state, shown(found.assigned), shown(found.pending)) == there
    assert found.member_epoch == 5
    trimmed = found != current
    assert found.previous_member_epoch == (5 if trimmed else 4)


@pytest.mark.behaviour("G-55", "S-40")
@pytest.mark.parametrize("owned", [None, "a0"])
def test_a_member_in_a_state_of_a_newer_version_must_give_everything_up(owned):
    current = CurrentMember("g", ME, 5, 5, UNKNOWN, holding("a0", 4))
    reported = owned and spans_of(parsed(owned))
    goal = ReconcileGoal(6, (), lambda _near: reported, resubscribed=False)
    with pytest.raises(GroupError) as fenced:
        next_step(world(current, "a", set()), goal)
    assert fenced.value.code is Code.FENCED_MEMBER_EPOCH


@pytest.mark.behaviour("G-3")
def test_codes_of_member_states():
    assert {state.name: int(state) for state in MemberState} == {
        "STABLE": 0, "UNREVOKED_PARTITIONS": 1, "UNRELEASED_PARTITIONS": 2, "UNKNOWN": 127,
    }  # fmt: skip


@pytest.mark.behaviour("G-7", "G-66")
def test_an_owner_is_never_replaced_by_another():
    state = world(CurrentMember("g", ME, 5, 5, STABLE, holding("a0", 4)), "a", parsed("a1"))
    with pytest.raises(IllegalStateError, match="me claims a"):
        replay(state, CurrentMember("g", ME, 6, 5, STABLE, holding("a0 a1", 4)))


# The twin ----------------------------------------------------------------------------------------

STATES = {"STABLE": STABLE, "UNREVOKED": UNREVOKED, "UNRELEASED": UNRELEASED, "UNKNOWN": UNKNOWN}


def some(choice, pool, most=6):
    return set(choice.sample(sorted(pool), choice.randint(0, min(most, len(pool)))))


def case(seed):
    """A random member, target and report: every possible one, and some impossible ones."""
    choice = random.Random(seed)
    pool = {(key(name), p) for name in "abx" for p in range(4)}  # topic x is gone
    name = choice.choice([*STATES, "STABLE", "UNREVOKED", "UNRELEASED"])
    assigned = some(choice, pool)
    pending = some(choice, pool - assigned) if name in {"UNREVOKED", "UNKNOWN"} else set()
    others = some(choice, pool - assigned - pending)
    target = some(choice, pool)
    owned = choice.choice([None, set(), assigned, assigned | pending, some(choice, pool)])
    member = Place(
        name,
        5,
        choice.randint(3, 5),
        {p: choice.randint(2, 5) for p in assigned},
        dict.fromkeys(pending, 2),
    )
    names = some(choice, "abx")
    epoch = choice.choice([5, 6])
    return member, target, epoch, owned, names, others, choice.random() < 0.5


def as_record(member):
    assigned = pending = ()
    for epoch in range(2, 6):
        assigned = union(
            assigned,
            add_epoch(spans_of(p for p, e in member.assigned.items() if e == epoch), epoch),
        )
        pending = union(
            pending, add_epoch(spans_of(p for p, e in member.revoked.items() if e == epoch), epoch)
        )
    return CurrentMember(
        "g", ME, member.epoch, member.previous, STATES[member.state], assigned, pending
    )


def as_place(record):
    name = next(name for name, code in STATES.items() if code is record.state)
    epochs = record.member_epoch, record.previous_member_epoch
    return Place(name, *epochs, held(record.assigned), held(record.pending))


@pytest.mark.behaviour("K-32", "G-56", "G-57", "G-58", "G-60", "G-63")
def test_reconcile_equals_its_twin_on_sets():
    moves = set()
    for seed in range(4_000):
        member, target, epoch, owned, names, others, resubscribed = case(seed)
        subscribed = {key(name) for name in names if name != "x"}
        wanted = reconciled(member, target, epoch, owned, subscribed, others, resubscribed)
        reported = None if owned is None else spans_of(owned)
        goal = ReconcileGoal(
            epoch, spans_of(target), lambda _near, found=reported: found, resubscribed
        )
        before = as_record(member)
        try:
            found = next_step(world(before, names, others), goal)
        except GroupError:
            assert wanted == FENCED, seed
            continue
        assert as_place(found) == wanted, seed
        if found != before:
            moves.add((before.state, found.state))
    assert moves == {(here, there) for here, to in ALLOWED_MOVES.items() for there in to}


# Several members ---------------------------------------------------------------------------------


@pytest.mark.behaviour("G-65", "G-67", "S-20")
def test_a_pending_revocation_keeps_everybody_else_waiting(group):
    group.join("m1", "a")
    group.join("m2", "a")
    group.beat("m1")  # it must give three up, and says nothing for now
    for _ in range(3):
        assert group.acknowledge("m2").assignment is None
        assert group.current("m2")[1:3] == (UNRELEASED, {})
    group.acknowledge("m1")
    assert lists(group.acknowledge("m2").assignment) == {"a": [3, 4, 5]}


@pytest.mark.behaviour("G-57", "G-58", "G-66", "S-28")
def test_two_members_swap_without_a_deadlock(group):
    """range gives the halves in member order: under an instance id m2 comes before m1."""
    group.join("m1", "a", server_assignor="range")
    group.join("m2", "a", server_assignor="range")
    group.settle()
    assert group.given == {"m1": {"a": [0, 1, 2]}, "m2": {"a": [3, 4, 5]}}
    group.join("m2", "a", server_assignor="range", instance_id="first")
    group.topics(a=8)
    epochs = {member: group.member(member).epoch for member in ("m1", "m2")}
    for member, epoch in epochs.items():
        assert group.beat(member).member_epoch == epoch  # revokes first, and keeps its epoch
        assert group.member(member).current.state is UNREVOKED
    group.settle()
    assert group.given == {"m1": {"a": [4, 5, 6, 7]}, "m2": {"a": [0, 1, 2, 3]}}


@pytest.mark.behaviour("G-54", "G-67", "S-27")
def test_a_newer_target_is_followed_from_every_state(group):
    group.join("m1", "a")
    group.join("m2", "a")
    group.beat("m1")
    assert group.member("m1").current.state is UNREVOKED
    assert group.member("m2").current.state is UNRELEASED
    group.beat("m2", -1)  # what m1 gives up comes back to it before it acknowledged
    group.settle()
    assert group.given["m1"] == {"a": [0, 1, 2, 3, 4, 5]}


@pytest.mark.behaviour("G-8")
def test_one_list_of_names_is_homogeneous_and_any_regex_or_other_list_is_not(group):
    """What the assignors see: equal subscriptions are one class, however many members have them."""
    from coordinator.core.targets.basis import MemberChange, build_input

    def classes():
        spec = build_input(group.state, group.group, MemberChange()).spec()
        return len(set(spec.member_class.tolist()))

    group.join("m1", "a", "b")
    group.join("m2", "b", "a")
    assert classes() == 1
    group.join("m3", "a", subscribed_topic_regex="b.*")
    group.resolve()
    group.beat("m1", names=["b"])
    group.beat("m2", names=["a"])
    assert classes() == 3
