"""What fails with every try is logged once, until it works or fails otherwise."""

from __future__ import annotations

import pytest

from coordinator.errors.trouble import Trouble


@pytest.fixture
def lines():
    return []


@pytest.fixture
def trouble(lines):
    return Trouble(lambda message, *values: lines.append(message % values), "%s waits: %s", "p-3")


def test_the_same_reason_is_logged_once(trouble, lines):
    for _ in range(3):
        trouble.note(OSError("no route"))
    assert lines == ["p-3 waits: no route"]


def test_another_reason_and_one_that_comes_back_are_logged(trouble, lines):
    for why in ("no route", "refused", "no route"):
        trouble.note(why)
    assert trouble.end()
    assert not trouble.end()
    trouble.note("no route")
    assert lines == [f"p-3 waits: {why}" for why in ("no route", "refused", "no route", "no route")]


def test_an_error_without_a_text_is_logged_too(trouble, lines):
    trouble.note(OSError())
    assert lines == ["p-3 waits: "]


def test_values_of_one_try_come_before_the_reason(lines):
    trouble = Trouble(lambda message, *values: lines.append(message % values), "down, %s: %s")
    trouble.note("no route", "standing by")
    assert lines == ["down, standing by: no route"]
