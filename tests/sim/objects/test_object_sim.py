"""A few seeds on a simulated object store, and bugs planted to see that it finds them."""

from __future__ import annotations

import pytest

from coordinator.storage import delta_log
from coordinator.storage.maintenance import Maintenance
from coordinator.storage.record_log import WriterFenced
from coordinator.storage.snapshot_table import Snapshot
from coordinator.storage.tables import fenced_table, object_files
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.old_commits import OldCommits
from tests.sim.objects.store import ObjectWorld
from tests.sim.run import simulate
from tests.support.longer import EVERY

SEEDS = (0, 2, 4, 5, 36)
FOUND_BY = (139, 2, 20, 67, 138, 34, 158, 47, 173)
FOUND_AT_ONCE = {
    "a list that lacks commits is believed": 138,
    "a data file that is to be committed is removed": 211,
    "what tells of a successor is removed": 158,
}
"""Where the first seeds take long and find nothing."""
RESOLVE = FencedTable._resolve


def abandoned_at_once(self, _epoch):
    """Take every data file that no version names for one that none will."""
    return self._without_named(self._disk.names(self._table.path))


def removed_by_the_fenced(self, commit, *why):
    """Remove the data files of a commit that a successor may have cleaned up."""
    try:
        RESOLVE(self, commit, *why)
    except WriterFenced:
        self.discard(commit.actions)
        raise


def believed(_files, path, _content):
    """Take a conflict for another's object, whether one is there or not."""
    raise FileExistsError(path)


PLANTED = {
    "a retry that conflicts with itself is believed": (object_files, "resolve_create", believed),
    "a late put is not waited for": (FencedTable, "_seal", lambda _self: None),
    "a list that lacks commits is believed": (
        fenced_table, "open_surely", lambda disk, path, _known, opened: opened(disk, path)
    ),
    "a coordinator that lost the log still writes": (FencedTable, "refuse_fenced", lambda *_: None),
    "a data file that is to be committed is removed": (
        Maintenance, "_find_abandoned", abandoned_at_once
    ),
    "a data file of a commit that was cleaned up is removed": (
        FencedTable, "_resolve", removed_by_the_fenced
    ),
    "what tells of a successor is removed": (
        OldCommits, "_without_staying", lambda _self, versions: versions
    ),
}  # fmt: skip
"""Where, what is replaced, and by what."""
COPIED_FOUND_BY = (12, 17)


def test_a_snapshot_of_another_copy_that_is_believed_is_found(monkeypatch):
    """Also where it is ahead of the log at first, which is refused before."""
    monkeypatch.setattr(Snapshot, "is_of", lambda _self, _log: True)
    monkeypatch.setattr(delta_log, "find_lost_rows", lambda *_: None)
    assert any(simulate(seed, kind=ObjectWorld).violation for seed in COPIED_FOUND_BY)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_holds(seed):
    outcome = simulate(seed, kind=ObjectWorld)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}\n{outcome.commands}"


@pytest.mark.parametrize("bug", PLANTED if EVERY else list(PLANTED)[::2])
def test_a_planted_bug_is_found(monkeypatch, bug):
    monkeypatch.setattr(*PLANTED[bug])
    seeds = (FOUND_AT_ONCE.get(bug, FOUND_BY[0]), *FOUND_BY)
    assert any(simulate(seed, kind=ObjectWorld).violation for seed in seeds)
