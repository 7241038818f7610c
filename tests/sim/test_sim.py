"""A few seeds of the simulation, and bugs planted to see that it finds them; `make sim` runs more."""

from __future__ import annotations

import json
import operator
import os
import subprocess
import sys

import pytest
from deltalake import CommitProperties, DeltaTable

from coordinator.core.consumer import member_update, reconcile
from coordinator.core.state import partition_owners
from coordinator.core.state.records import CurrentMember
from coordinator.core.state.state_records import records_of
from coordinator.runtime.log_writer import LogWriter
from coordinator.runtime.timers import GroupTimers
from coordinator.storage import state_loader
from coordinator.storage.record_log import MemoryLog
from coordinator.storage.tables import fenced_table
from coordinator.storage.tables.commit_writer import COMMIT_ID
from coordinator.storage.tables.fenced_table import FencedTable
from coordinator.storage.tables.newest_version import open_newest
from tests.conftest import ROOT
from tests.sim import delta
from tests.sim.checkers import differences
from tests.sim.run import DELTA_EVERY, simulate
from tests.sim.shrink import shrink
from tests.support.longer import EVERY

SEEDS = 25 if EVERY else 12
FOUND = (6018, 320, 490, 730)
"""Of those that failed once: wishes for assignors that were even, and moves left to be finished;
claims that slept while a live coordinator wrote and cleaned up."""
IN_MEMORY = [seed for seed in range(60) if seed % DELTA_EVERY]
IN_A_FOLDER = range(0, 100, DELTA_EVERY)

PLANTED = {
    "partitions are given before they are revoked": (reconcile, "_owns", lambda *_: False),
    "partitions are given that others hold": (
        reconcile, "free_of", lambda _group, spans, _serial: spans
    ),
    "what a member gives up is not released": (
        partition_owners, "release_partitions", lambda *_: None
    ),
    "any member epoch is accepted": (member_update, "_check_epoch", lambda *_: None),
    "answers leave before their records are durable": (LogWriter, "append", lambda *_: None),
    "no look at the log before a steady answer": (LogWriter, "confirm", lambda _self: None),
    "a coordinator that lost the log still writes": (MemoryLog, "look", lambda _self: None),
    "no timers are started after a load": (GroupTimers, "start", lambda self, _state: self.clear()),
    "a snapshot forgets what members hold": (
        state_loader,
        "StateRecords",
        lambda state: (r for r in records_of(state) if not isinstance(r, CurrentMember)),
    ),
}  # fmt: skip
"""Where, what is replaced, and by what."""


def rebased(_disk, path, commit):
    """Commit with delta-rs's own retries."""
    table = DeltaTable(path)
    properties = CommitProperties(custom_metadata={COMMIT_ID: commit.commit_id})
    table.create_write_transaction(
        list(commit.actions),
        "append",
        table.schema(),
        table.metadata().partition_columns or None,
        commit_properties=properties,
    )


def refreshed(self):
    """Look at the newest version, and take it for durable."""
    self._adopt(open_newest(self._disk, self.path))
    return self.load()


PLANTED_IN_A_FOLDER = {
    "commits are not synced": (FencedTable, "_persist", lambda *_: None),
    "what landed unheard is not synced": (FencedTable, "refresh", refreshed),
    "a coordinator that lost the log still writes": (FencedTable, "refuse_fenced", lambda *_: None),
    "commits are laid on top of others'": (delta, "write_commit", rebased),
    "a torn commit is left where it is": (fenced_table, "set_aside_torn", lambda *_: None),
}


def violations(seeds):
    return (found for found in map(simulate, seeds) if found.violation is not None)


@pytest.mark.parametrize("seed", [*range(SEEDS), *FOUND])
def test_all_holds(seed):
    outcome = simulate(seed)
    assert outcome.violation is None, f"seed {seed}: {outcome.violation}\n{outcome.commands}"


@pytest.mark.parametrize("bug", PLANTED if EVERY else list(PLANTED)[::2])
def test_a_planted_bug_is_found(monkeypatch, bug):
    monkeypatch.setattr(*PLANTED[bug])
    assert next(violations(IN_MEMORY)).violation


@pytest.mark.parametrize("bug", PLANTED_IN_A_FOLDER)
def test_a_planted_bug_of_the_log_in_a_folder_is_found(monkeypatch, bug):
    monkeypatch.setattr(*PLANTED_IN_A_FOLDER[bug])
    assert next(violations(IN_A_FOLDER)).violation


def test_the_shrunk_story_of_a_bug_shows_it_in_muster_trace(monkeypatch, muster_here):
    """The answers go wrong as long as the bug is there, and only so long."""

    def errors(story):
        done = muster_here("trace", stdin="\n".join(story.trace))
        answers = [
            json.loads(line)["response"] for line in done.stdout.splitlines() if b"response" in line
        ]
        return {answer.get("error") for answer in answers}

    with monkeypatch.context() as planted:
        planted.setattr(*PLANTED["partitions are given that others hold"])
        stories = (shrink(found, runs_max=60) for found in violations(IN_MEMORY))
        story = next(story for story in stories if not story.untold)
        assert "UNKNOWN_SERVER_ERROR" in errors(story)
    assert errors(story) == {"NONE"}


ONE_RUN = """
from tests.sim.objects.store import ObjectWorld
from tests.sim.run import simulate
from tests.sim.shards.world import ShardWorld
from tests.sim.world import World
for kind, seed in ((World, {folder}), (ObjectWorld, {objects}), (ShardWorld, 0)):
    ran = simulate(seed, kind=kind)
    print(kind.__name__, *ran.events, *ran.faults, sep="\\n")
"""


def test_a_seed_is_one_run_in_every_process():
    """Of each kind of world."""
    code = ONE_RUN.format(folder=7 * DELTA_EVERY, objects=34 if EVERY else 3)
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": order},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for order in ("1", "2")
    ]
    assert said[0] == said[1]
    starts = [said[0].index(name) for name in ("World", "ObjectWorld", "ShardWorld")]
    assert min(map(operator.sub, [*starts[1:], len(said[0])], starts)) > 60


def test_differences_of_fingerprints_come_in_their_order():
    mine, logged = {9: "a"}, {3: "b", 1: "c", 2: "d"}
    assert [one.split()[0] for one in differences(mine, logged)] == ["/9", "/3", "/1", "/2"]
