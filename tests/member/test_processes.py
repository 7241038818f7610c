"""Workers in processes of their own, stopped, killed and ended, over both transports."""

from __future__ import annotations

import signal
import sys

import pytest

from coordinator import Coordinator
from tests.conftest import ROOT
from tests.member.runs import PATIENCE_S, QUICK, until
from tests.support.longer import longer
from tests.support.processes import Worker


def example(name, folder, address):
    """Start the example, over the wire."""
    words = [sys.executable, "examples/worker.py", address, "g", "clicks"]
    return Worker(words, folder / name, cwd=ROOT)


def embedded(name, folder):
    """Start one with its coordinator in its process."""
    words = [sys.executable, "-m", "tests.member.embedded", folder / "store"]
    return Worker(words, folder / name, cwd=ROOT)


@pytest.fixture
def crew(tmp_path):
    """A coordinator, and two workers that have one partition each."""
    opened = Coordinator.open(None, config=QUICK, topics={"clicks": 2})
    with opened as coordinator, coordinator.serve("127.0.0.1:0") as serving:
        workers = []
        try:
            workers += [example(name, tmp_path, serving.address) for name in ("ann", "bob")]
            assert until(lambda: all(w.works_on(1) and len(w.said()) > 4 for w in workers))
            yield coordinator, *workers
        finally:
            for worker in workers:
                worker.end()


def test_workers_follow_each_other(crew):
    """Stopped, one says nothing between two pieces of the other, nor of an offset that is done."""
    coordinator, ann, bob = crew
    (of_ann,) = {partition for _, partition, _ in ann.said()[-4:]}

    ann.process.send_signal(signal.SIGSTOP)
    assert until(lambda: bob.works_on(2))
    before = len(ann.said())
    ann.process.send_signal(signal.SIGCONT)
    assert until(lambda: bob.works_on(1) and ann.works_on(1) and len(ann.said()) > before + 4)
    early = [at for at, partition, _ in ann.said()[:before] if partition == of_ann]
    taken = [at for at, partition, _ in bob.said() if partition == of_ann and at > early[0]]
    late = [at for at, partition, _ in ann.said()[before:] if partition == of_ann]
    assert early[-1] < taken[0], "it worked on what another one had"
    assert not [at for at in late if taken[0] <= at <= taken[-1]], "so it did when it woke up"

    ann.process.send_signal(signal.SIGKILL)
    assert until(lambda: bob.works_on(2))
    bob.process.send_signal(signal.SIGTERM)
    assert bob.process.wait(PATIENCE_S) == 0
    (group,) = coordinator.consumer_group_describe("g")
    assert [m["member_id"] for m in group["members"]] == []  # it left; the killed one was missed


@longer("MUSTER_LONG=1: a quarter of a minute")
def test_workers_with_their_coordinators_follow_each_other(tmp_path):
    """Stopped with its coordinator, one works no more on what another process has meanwhile."""
    crew = [ann := embedded("ann", tmp_path)]
    try:
        assert until(lambda: ann.works_on(2) and len(ann.said()) > 4, 60)
        ann.process.send_signal(signal.SIGSTOP)
        before = len(ann.said())
        crew.append(bob := embedded("bob", tmp_path))
        assert until(lambda: bob.works_on(2), 60), "it waited for the lease, then for the session"
        ann.process.send_signal(signal.SIGCONT)
        count = len(bob.said())
        assert until(lambda: len(bob.said()) > count + 40)
        began = bob.said()[0][0]
        assert [line for line in ann.said() if line[0] > began] == []
        assert len(ann.said()) <= before + 2, "what it was about to say when it was stopped"

        bob.process.send_signal(signal.SIGKILL)
        crew.append(cid := embedded("cid", tmp_path))
        assert until(lambda: cid.works_on(2), 60)
        for one, next_one in ((ann, bob), (bob, cid)):
            for name in ("clicks-0", "clicks-1"):
                last = [offset for _, partition, offset in one.said() if partition == name][-1]
                later = [offset for _, partition, offset in next_one.said() if partition == name]
                assert later[0] in {last, last + 1}, "it goes on from the last commit"
    finally:
        for worker in crew:
            worker.end()
