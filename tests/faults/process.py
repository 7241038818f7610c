"""A coordinator's process as its members see it, to be killed, stopped and woken."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from typing import Any

from coordinator.config import Config, LeaseConfig, LogConfig
from coordinator.config.kafka import kafka_config
from tests.support.members import wait_for

from . import node

# One process imports everything once; coordinators are forked from it, which costs 20 ms instead
# of two seconds. They share nothing but those imports.
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(["coordinator.runtime.coordinator", "coordinator.engines.engine"])

PATIENCE_S = 180.0
QUICK = Config(
    lease=LeaseConfig(ttl_ms=400, renew_ms=100, check_ms=100),
    # Small enough that coordinators die in the middle of all that, too.
    log=LogConfig(reopen_commits=7, pack_commits=20, snapshot_rows=150, files_kept_ms=2_000),
    kafka=kafka_config(
        {
            "group.consumer.assignment.interval.ms": 0,
            "group.consumer.min.session.timeout.ms": 1_000,
            "group.consumer.min.heartbeat.interval.ms": 100,
            "group.consumer.heartbeat.interval.ms": 100,
        }
    ),
)
"""Leases and heartbeats as short as can be; members keep their 45 s."""


class Gone(ConnectionError):  # noqa: N818 - what the process is
    """The process ended before it answered."""


class Node:
    """A coordinator in a process of its own.

    Attributes
    ----------
    began_at, served_at
        When it began to open the store, and when it had; on the clock of `time.monotonic`.
    serves
        Whether it has claimed the store, and answers.
    failed
        Why it could not open the store.
    said
        What it logged.
    answers
        What it answered and is not taken yet, by the number of the request.
    """

    def __init__(
        self,
        store: str | os.PathLike[str],
        config: Config = QUICK,
        takeover: str = "wait",
        main: Callable[..., None] = node.serve,
    ) -> None:
        self.serves = self.ended = False
        self.began_at = self.served_at = 0.0
        self.failed = ""
        self.said: list[str] = []
        self.answers: dict[int, Any] = {}
        self._asked = 0
        self._pipe, theirs = FORK.Pipe()
        words = (theirs, str(store), config, takeover)
        self._process = FORK.Process(target=main, args=words, daemon=True)
        self._process.start()
        theirs.close()

    # Signals -------------------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9. What it sent before is still taken."""
        self._process.kill()
        self._process.join()
        self.hear()

    def kill_all(self) -> None:
        """kill -9 a driver together with its JVM, which else ends a little later by itself."""
        assert self._process.pid is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self.kill()

    def stop(self) -> None:
        """SIGSTOP; returns once it stands still, with everything taken that it sent."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        wait_for(lambda: _state(self._process.pid) == "T")
        self.hear()

    def wake(self) -> None:
        """SIGCONT."""
        assert self._process.pid is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it in order: the store is handed over."""
        self._pipe.close()
        self._process.join(PATIENCE_S)
        self._process.kill()

    # Talking -------------------------------------------------------------------------------------

    def send(self, method: str, **fields: object) -> int:
        """Ask without waiting; returns the number of the request."""
        self._asked += 1
        try:
            self._pipe.send((self._asked, method, fields))
        except OSError:
            self.ended = True
        return self._asked

    def ask(self, method: str, **fields: object) -> Any:
        """Ask and wait for the answer."""
        number = self.send(method, **fields)
        self.wait(lambda: number in self.answers)
        return self.answers.pop(number)

    def wait(self, there: Callable[[], object]) -> None:
        """Read messages until a condition holds."""
        end = time.monotonic() + PATIENCE_S
        while not there():
            if self.ended or self.failed:
                raise Gone(self.failed or "the process ended")
            if time.monotonic() > end:
                raise AssertionError(f"no answer for {PATIENCE_S:.0f} s; it said {self.said[-5:]}")
            self.hear(0.02)

    def wait_serves(self) -> None:
        """Read messages until it serves."""
        self.wait(lambda: self.serves)

    def hear(self, patience_s: float = 0.0) -> None:
        """Take what it has sent, waiting for the first of it at most so long."""
        while not self.ended and self._pipe.poll(patience_s):
            patience_s = 0.0
            try:
                kind, *what = self._pipe.recv()
            except (EOFError, OSError):
                self.ended = True
                return
            self._take(kind, what)

    def _take(self, kind: str, what: list[Any]) -> None:
        if kind == "answer":
            number, answer = what
            self.answers[number] = answer
        elif kind == "said":
            self.said += what
        elif kind == "failed":
            (self.failed,) = what
        elif kind == "began":
            (self.began_at,) = what
        else:
            self.serves = True
            (self.served_at,) = what


def _state(pid: int | None) -> str:
    """Return the state of a process as the system calls it; T is stopped."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]
