"""examples/worker.py in processes of their own, stopped, killed and ended; Kafka's wire between."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from coordinator import Coordinator
from tests.conftest import ROOT
from tests.member.runs import PATIENCE_S, QUICK, until


class Worker:
    """A process, and what it says that it worked on."""

    def __init__(self, name, address, folder):
        self.file = folder / name
        words = [sys.executable, str(ROOT / "examples/worker.py"), address, "g", "clicks"]
        with self.file.open("w") as out:
            self.process = subprocess.Popen(words, cwd=ROOT, stdout=out)

    def said(self):
        """(time, partition, offset) of each piece of work."""
        whole = self.file.read_text().rpartition("\n")[0]
        lines = [line.split() for line in whole.splitlines()]
        return [(float(at), partition, int(offset)) for at, partition, offset in lines]

    def works_on(self, count):
        """Whether its newest pieces of work are of so many partitions."""
        return len({partition for _, partition, _ in self.said()[-4:]}) == count


@pytest.fixture
def crew(tmp_path):
    """A coordinator, and two workers that have one partition each."""
    opened = Coordinator.open(None, config=QUICK, topics={"clicks": 2})
    with opened as coordinator, coordinator.serve("127.0.0.1:0") as serving:
        workers = [Worker(name, serving.address, tmp_path) for name in ("ann", "bob")]
        assert until(lambda: all(w.works_on(1) and len(w.said()) > 4 for w in workers), 60)
        yield coordinator, *workers
        for worker in workers:
            worker.process.kill()
            worker.process.wait()


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
