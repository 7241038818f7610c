"""examples/push_worker.py and `muster serve --push` in processes of their own, killed and stopped."""

from __future__ import annotations

import itertools
import signal
import socket
import subprocess
import sys

import pytest

from coordinator import Coordinator
from tests.conftest import ROOT
from tests.member.runs import until
from tests.push.test_push import push
from tests.push.workers import QUICK
from tests.support.longer import longer
from tests.support.processes import Worker, running

PATIENCE_S = 120


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Process(Worker):
    """A worker that listens, and what it says that it worked on."""

    def __init__(self, folder):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # Isolated, and without site-packages: nothing but the standard library.
        program = ROOT / "examples/push_worker.py"
        words = [sys.executable, "-I", "-S", program, self.port, "g", "clicks"]
        super().__init__(words, folder / str(self.port), cwd="/")

    def works_again(self, count):
        seen = len(self.said())
        return until(lambda: len(self.said()) > seen + 4 and self.works_on(count), PATIENCE_S)


@pytest.fixture
def crew(tmp_path):
    return [Process(tmp_path) for _ in range(2)]


def check_alone(*workers):
    """No partition was worked on by two at a time, and no offset by two."""
    rows = sorted((*row, worker.port) for worker in workers for row in worker.said())
    for partition in {partition for _, partition, _, _ in rows}:
        owners = [port for _, p, _, port in rows if p == partition]
        changes = sum(one != two for one, two in itertools.pairwise(owners))
        assert changes <= 4, f"{partition} goes to and fro {changes} times"


def test_workers_are_stopped_and_killed(crew):
    """Stopped, one says nothing between two pieces of the other; killed, the other takes all."""
    ann, bob = crew
    with Coordinator.open(None, config=QUICK, topics={"clicks": 2}) as coordinator:
        with push(coordinator, ann, bob):
            assert until(lambda: all(w.works_on(1) and len(w.said()) > 4 for w in crew), PATIENCE_S)
            (of_ann,) = {partition for _, partition, _ in ann.said()[-4:]}
            ann.process.send_signal(signal.SIGSTOP)
            assert until(lambda: bob.works_on(2), PATIENCE_S)
            before = len(ann.said())
            ann.process.send_signal(signal.SIGCONT)
            assert until(lambda: len(ann.said()) > before + 4 and bob.works_on(1), PATIENCE_S)
            early = [at for at, partition, _ in ann.said()[:before] if partition == of_ann]
            taken = [at for at, partition, _ in bob.said() if partition == of_ann and at > early[0]]
            late = [at for at, partition, _ in ann.said()[before:] if partition == of_ann]
            assert early[-1] < taken[0], "it worked on what another one had"
            assert not [at for at in late if taken[0] <= at <= taken[-1]], "so when it woke up"
            bob.end()
            assert until(lambda: ann.works_on(2), PATIENCE_S)
            bob.start()
            assert until(lambda: ann.works_on(1) and bob.works_on(1), PATIENCE_S)
        check_alone(ann, bob)


@longer("make test-clients")
def test_a_server_that_is_killed_is_followed_by_another(crew, tmp_path):
    """The workers stop by themselves, and go on when the next one registers them."""
    store, settings = tmp_path / "store", tmp_path / "muster.toml"
    settings.write_text(
        "[lease]\nttl_ms = 1000\nrenew_ms = 200\n"
        "[push]\nretry_ms = 100\nsession_timeout_ms = 1500\n"
    )
    words = ["--store", str(store), "--listen", "127.0.0.1:0", "--config", str(settings)]
    words += ["--topic", "clicks=2", *(f"--push={worker.url}" for worker in crew)]
    command = [sys.executable, "-m", "coordinator", "serve", *words]
    with running(command, cwd=ROOT, stdout=subprocess.DEVNULL):
        assert until(lambda: all(w.works_on(1) and len(w.said()) > 4 for w in crew), PATIENCE_S)
    assert until(lambda: quiet(crew), PATIENCE_S)
    with (
        Coordinator.open(
            store, config=QUICK, takeover="force", topics={"clicks": 2}
        ) as coordinator,
        push(coordinator, *crew),
    ):
        assert all(worker.works_again(1) for worker in crew)
    assert quiet(crew)  # asked to stop, not left to it
    check_alone(*crew)


def quiet(crew):
    """Whether no process says anything for a moment."""
    before = [len(worker.said()) for worker in crew]
    return not until(lambda: [len(worker.said()) for worker in crew] != before, 0.5)
