"""Pages that stay open while a group rebalances: `make soak-web`, `python -m tests.web.soak`.

An hour of one rebalance a second is pressed into some minutes. Memory must stay flat, every page
that reads must be up to date, and one that does not read must cost the others nothing, and be let go.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from coordinator import Coordinator
from coordinator.config import Config, LogConfig
from coordinator.history.log_reader import LogReader
from coordinator.web.live import STALL_S

PAGES, STALLED = 30, 10
REST_S = 0.05
LATE_S = 5.0
"""How old what a page shows may be."""
LOOKS = 20
GROWN_MB = 40
BEAT_MS = 500
POSITION = re.compile(rb"As of position ([0-9,]+)")
PATHS = ("/live?view=group&id=g", "/live?view=groups")


class Page(threading.Thread):
    """An open page: which position it shows."""

    def __init__(self, url: str, path: str) -> None:
        super().__init__(daemon=True)
        at = urlsplit(url)
        self.path = path
        self.connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=60)
        self.connection.request("GET", path)
        self.answer = self.connection.getresponse()
        self.position = 0
        self.start()

    def run(self) -> None:
        """Read until the page ends."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            while line := self.answer.readline():
                if found := POSITION.search(line):
                    self.position = int(found[1].replace(b",", b""))


def stall(url: str) -> socket.socket:
    """Open a page that is not read."""
    at = urlsplit(url)
    opened = socket.socket()
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    opened.connect((at.hostname, at.port))
    opened.sendall(f"GET {PATHS[0]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return opened


class Group:
    """A member that stays, and one that comes and goes."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.known: dict[str, tuple[int, dict[str, list[int]]]] = {}
        self.took_ms: list[float] = []
        self.beat("a", 0)

    def beat(self, member: str, epoch: int | None = None) -> None:
        """Send a heartbeat, and note how long it took."""
        reached, owned = self.known.get(member, (0, {}))
        begun = time.perf_counter()
        answer = self.coordinator.consumer_group_heartbeat(
            group_id="g", member_id=member, member_epoch=reached if epoch is None else epoch,
            rebalance_timeout_ms=60_000, subscribed_topic_names=["clicks"],
            topic_partitions={} if epoch == 0 else owned,
        )  # fmt: skip
        self.took_ms.append(1000 * (time.perf_counter() - begun))
        assigned = answer.assignment
        self.known[member] = (answer.member_epoch, owned if assigned is None else assigned)

    def turn(self) -> None:
        """Let the other member come, settle, and go."""
        for member, epoch in (("b", 0), ("a", None), ("a", None), ("b", None), ("b", -1)):
            self.beat(member, epoch)
        self.beat("a")
        self.beat("a")


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmRSS:\s+([0-9]+)", text)
    assert found is not None
    return int(found[1]) / 1024


def soak(store: Path, seconds: float) -> list[str]:
    """Return what is wrong; say how it goes."""
    config = Config(log=LogConfig(fsync=False))
    wrong = []
    with Coordinator.open(store, config=config, topics={"clicks": 16}) as coordinator:
        group = Group(coordinator)
        with served(store) as (process, url):
            pages = [Page(url, PATHS[number % 2]) for number in range(PAGES)]
            stalled = [stall(url) for _ in range(STALLED)]
            group.beat("a", 0)  # opening pages may have taken longer than a session
            memory, turns = follow(group, pages, store, process.pid, seconds, wrong)
            if seconds > 2 * STALL_S and (kept := count_open(stalled)):
                wrong.append(f"{kept} unread pages were kept")
    grown = statistics.median(memory[-4:]) - statistics.median(memory[4:8])
    p99 = statistics.quantiles(group.took_ms, n=100)[98]
    say(f"{turns:,} turns, memory grew by {grown:.1f} MB, heartbeats' p99 {p99:.1f} ms")
    if grown > GROWN_MB:
        wrong.append(f"memory grew by {grown:.0f} MB")
    if p99 > BEAT_MS:
        wrong.append(f"heartbeats waited: p99 {p99:.0f} ms")
    return wrong


def follow(
    group: Group, pages: list[Page], store: Path, pid: int, seconds: float, wrong: list[str]
) -> tuple[list[float], int]:
    """Let the group rebalance; return the memory of the server at times, and how often it did."""
    memory: list[float] = []
    begun, looked, turns = time.monotonic(), 0.0, 0
    while (passed := time.monotonic() - begun) < seconds:
        group.turn()
        turns += 1
        time.sleep(REST_S)
        if passed - looked > seconds / LOOKS:
            looked = passed
            late = find_late(pages, store)
            memory.append(memory_mb(pid))
            head = f"{passed:5.0f} s  {turns:6,} turns  {memory[-1]:6.0f} MB"
            say(f"{head}  pages {late:.1f} s behind at most")
            if late > LATE_S:
                wrong.append(f"at {passed:.0f} s pages were behind: {describe_late(pages, store)}")
    return memory, turns


@contextlib.contextmanager
def served(store: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve the pages of a store in a process of their own."""
    words = [sys.executable, "-u", "-m", "coordinator", "web", "--store", str(store)]
    with subprocess.Popen(
        [*words, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, next(w for w in process.stdout.readline().split() if "://" in w)
        finally:
            process.terminate()


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def find_late(pages: list[Page], store: Path) -> float:
    """Return how long the slowest page takes to show what the log has now."""
    wanted, begun = LogReader(store).position, time.monotonic()
    while time.monotonic() - begun < 2 * LATE_S:
        if all(page.position >= wanted for page in pages):
            break
        time.sleep(0.05)
    return time.monotonic() - begun


def describe_late(pages: list[Page], store: Path) -> str:
    """Return which open pages are behind, and what the server shows who asks now."""
    wanted = LogReader(store).position
    behind = [f"{one.path} at {one.position:,}" for one in pages if one.position < wanted]
    asked = http.client.HTTPConnection(pages[0].connection.host, pages[0].connection.port)
    asked.request("GET", "/group.json?id=g")
    shown = json.loads(asked.getresponse().read())["position"]
    return f"{len(behind)} of {len(pages)} ({behind[:2]}), the log has {wanted:,}, asked {shown:,}"


def count_open(stalled: list[socket.socket]) -> int:
    """Return how many stalled pages the server has not let go."""
    count = 0
    for one in stalled:
        one.settimeout(5)
        try:
            while one.recv(1 << 16):
                pass
        except TimeoutError:
            count += 1
        except OSError:
            pass
    return count


def main() -> None:
    """Soak, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    with TemporaryDirectory() as folder:
        wrong = soak(Path(folder) / "store", parser.parse_args().seconds)
    for line in wrong:
        sys.stderr.write(f"{line}\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
