"""The checker of histories against all orders, and what it finds in real ones."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults import registers
from tests.faults.crowd import Broken
from tests.faults.linear import NEVER, Operation, certain, epoch, linearize, register
from tests.faults.planted import serve_hasty


@st.composite
def histories(draw, kinds):
    """Up to six operations at whole seconds; one in five has no answer."""
    found = []
    for client in range(draw(st.integers(0, 6))):
        asked_at = draw(st.integers(0, 8))
        answered_at = asked_at + draw(st.integers(0, 4)) if draw(st.integers(0, 4)) else NEVER
        kind = draw(st.sampled_from(kinds))
        value = client + 1 if kind == "write" else draw(st.integers(0, 4))
        found.append(Operation(client, kind, value, asked_at, answered_at))
    return found


def by_all_orders(operations, model, state):
    """Say whether any order of any operations that may be left out agrees with model and times."""
    answered = {one for one in operations if one.answered_at < NEVER}
    chosen = (
        [*answered, *some]
        for count in range(len(operations) - len(answered) + 1)
        for some in itertools.combinations([o for o in operations if o not in answered], count)
    )
    orders = itertools.chain.from_iterable(map(itertools.permutations, chosen))
    return any(agrees(order, model, state) for order in orders)


def agrees(order, model, state):
    for number, one in enumerate(order):
        if any(later.answered_at < one.asked_at for later in order[number + 1 :]):
            return False
        state = model(state, one)
        if state is None:
            return False
    return True


@given(histories(("write", "read")))
def test_the_search_agrees_with_all_orders_of_a_register(operations):
    wanted = by_all_orders(operations, register, 0)
    assert bool(linearize(operations, register, 0)) == wanted
    assert bool(linearize(certain(operations), register, 0)) == wanted


@given(histories(("learn", "read")))
def test_the_search_agrees_with_all_orders_of_an_epoch(operations):
    assert bool(linearize(operations, epoch, 0)) == by_all_orders(operations, epoch, 0)


def test_a_stale_read_is_named():
    history = [Operation(1, "write", 5, 0, 1), Operation(2, "read", -1, 2, 3)]
    verdict = linearize(history, register, -1)
    assert not verdict
    assert verdict.stuck == (history[1],)


def test_histories_of_coordinators_that_die_and_wake_are_linearizable(tmp_path):
    registers.checked(tmp_path / "store", seed=1, times=2)


def test_offsets_acknowledged_before_they_are_durable_are_found(tmp_path):
    with pytest.raises(Broken, match="in ledger is not linearizable"):
        registers.checked(tmp_path / "store", 1, 1, serve=serve_hasty, faults=("kill",))
