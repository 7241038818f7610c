"""What pages share of a store: computed once, and let go when it has changed."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from coordinator.web.store_reader import VERSIONS_MAX, Kept


class View:
    """Something large."""


def test_views_of_former_versions_are_let_go():
    kept, seen = Kept(), []
    for version in range(20):
        view = kept.get(("g", "members"), version, View)
        kept.get("groups", 0, View)
        seen.append(weakref.ref(view))
        del view
    gc.collect()
    alive = [version for version, view in enumerate(seen) if view() is not None]
    assert alive == list(range(20))[-VERSIONS_MAX:], "views as large as the history pile up"


def test_other_things_are_kept_while_one_changes():
    kept, calls = Kept(), []
    for version in range(200):
        kept.get("g", version, View)
        kept.get("still", 0, lambda: calls.append("computed"))
    assert calls == ["computed"]


def test_a_page_that_is_behind_does_not_replace_what_is_newer():
    kept, calls = Kept(), []
    for version in (5, 6):
        kept.get("g", version, View)
    assert kept.get("g", 3, lambda: "of 3") == "of 3"
    kept.get("g", 6, lambda: calls.append("again"))
    assert not calls


def test_many_threads_compute_once():
    kept, calls, begin = Kept(), [], threading.Barrier(8)

    def look(_: int) -> object:
        begin.wait()
        return kept.get("g", 1, lambda: calls.append(1) or View())

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(look, range(8)))
    assert len(calls) == 1
    assert len({id(one) for one in found}) == 1


def test_an_error_is_raised_and_not_kept():
    kept = Kept()

    def fail() -> None:
        raise ValueError("the store is gone")

    with pytest.raises(ValueError, match="gone"):
        kept.get("g", 1, fail)
    assert kept.get("g", 1, lambda: "again") == "again"
