"""For how long groups have no coordinator, and what happened meanwhile.

A prober asks every node directly. Beside them works a coordinator that nothing befalls: for as long
as it does not answer, the machine or its store does not let any.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from coordinator.history import frame
from coordinator.storage.shards import NODES, root_at
from coordinator.wire.codec import Api
from tests.faults import process
from tests.support.wire_client import Client

ANSWER_S, EVERY_S = 5.0, 0.05
"""Longer than a node lets requests wait that makes way for a claim, where commits are slow."""


class Place(Protocol):
    """Where a node runs."""

    port: int
    is_well: bool
    """Whether it is expected to answer."""


class Gaps:
    """How long the longest silence of some things was.

    Attributes
    ----------
    asked
        When that was asked which each of them answered last.
    longest_s
        The longest time between two answers of each.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._heard = dict.fromkeys(names, 0.0)
        self.asked = dict.fromkeys(names, 0.0)
        self.longest_s = dict.fromkeys(names, 0.0)

    def hear(self, name: str, asked_s: float) -> None:
        """Note an answer to what was asked then."""
        with self._lock:
            now, before = time.monotonic(), self._heard[name]
            if before:
                self.longest_s[name] = max(self.longest_s[name], now - before)
            self._heard[name] = now
            self.asked[name] = max(asked_s, self.asked[name])

    def start_over(self) -> None:
        """Count from now on."""
        with self._lock:
            self.longest_s = dict.fromkeys(self.longest_s, 0.0)


class Repeated:
    """Threads that do something again and again until they are closed."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def repeat(self, work: Callable[[], object]) -> None:
        """Begin to do something."""

        def run() -> None:
            while not self._over.wait(EVERY_S):
                work()

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def close(self) -> None:
        """Do nothing more."""
        self._over.set()
        for thread in self._threads:
            thread.join()


class Prober(Repeated):
    """Asks each node for the offsets of all groups; a group is answered by whichever has it.

    Parameters
    ----------
    topic, partitions
        Whose offsets.
    floor, check
        Return what was acknowledged for a partition, and see that an answer is no older.
    """

    def __init__(
        self,
        places: Sequence[Place],
        groups: Sequence[str],
        topic: str,
        partitions: int,
        floor: Callable[[tuple[str, int]], int],
        check: Callable[[tuple[str, int], int, int], None],
    ) -> None:
        super().__init__()
        self._groups, self._topic, self._partitions = groups, topic, partitions
        self._floor, self._check = floor, check
        self._clients: dict[int, Client] = {}
        self.gaps = Gaps(groups)
        for place in places:
            self.repeat(lambda place=place: place.is_well and self._ask(place.port))  # type: ignore[misc]

    def close(self) -> None:
        """Ask no more."""
        super().close()
        for client in self._clients.values():
            client.socket.close()

    def wait_for_all(self, patience_s: float = 120.0) -> None:
        """Wait until each group has answered from now on."""
        began = time.monotonic()
        while min(self.gaps.asked.values()) < began:
            if time.monotonic() > began + patience_s:
                silent = [one for one, at in self.gaps.asked.items() if at < began]
                raise AssertionError(f"no answer of {silent} for {patience_s:.0f} s")
            time.sleep(EVERY_S / 2)

    def _ask(self, port: int) -> None:
        began = time.monotonic()
        floors = {
            (group_id, n): self._floor((group_id, n))
            for group_id in self._groups
            for n in range(self._partitions)
        }
        wanted = {"name": self._topic, "partition_indexes": list(range(self._partitions))}
        groups = [{"group_id": one, "topics": [wanted]} for one in self._groups]
        try:
            if port not in self._clients:
                self._clients[port] = Client(f"127.0.0.1:{port}")
                self._clients[port].socket.settimeout(ANSWER_S)
            answer = self._clients[port].ask(Api.OFFSET_FETCH, 8, groups=groups)
        except Exception:  # noqa: BLE001 - it is gone, or does not answer
            if port in self._clients:
                self._clients.pop(port).socket.close()
            return
        for group in answer.groups:
            if group.error_code:
                continue
            for topic in group.topics:
                for one in topic.partitions:
                    key = (group.group_id, one.partition_index)
                    self._check(key, one.committed_offset, floors[key])
            self.gaps.hear(group.group_id, began)


class Bystander(Repeated):
    """A coordinator of a store of its own, which commits for one client.

    Attributes
    ----------
    took_s
        How long each of its commits took since `start_over`.
    """

    def __init__(self, store: Path | str) -> None:
        super().__init__()
        self.took_s: list[float] = []
        self._node = process.Node(f"{store}-beside")
        self._node.wait_serves()
        self._value = 0
        self.repeat(self._commit)

    @property
    def mean_s(self) -> float:
        """How long a commit took, on average."""
        took_s = self.took_s.copy()
        return sum(took_s) / max(1, len(took_s))

    def start_over(self) -> None:
        """Count from now on."""
        self.took_s = []

    def _commit(self) -> None:
        began = time.monotonic()
        self._value += 1
        with suppress(process.Gone, AssertionError):
            topics = {"clicks": {0: self._value}}
            answer = self._node.ask("offset_commit", group_id="beside", topics=topics)
            if not isinstance(answer, Exception):
                self.took_s.append(time.monotonic() - began)

    def close(self) -> None:
        """End it."""
        super().close()
        self._node.close()


def tell_timeline(
    store: Path | str, began_s: float, heard: Mapping[str, Sequence[str]], what: Sequence[str]
) -> str:
    """Return what happened since a moment, each with its time: what nodes logged, and the root has.

    Parameters
    ----------
    began_s
        By the clock of `time.monotonic`.
    heard
        What each node said, a text that begins with the time by that clock.
    what
        The same for what was seen from outside.
    """
    lines = [
        (float(at), f"{name}: {text}") for name, said in heard.items() for at, text in _cut(said)
    ]
    lines += [(float(at), text) for at, text in _cut(what)]
    to_monotonic = time.monotonic() - time.time()
    rows: list[dict[str, Any]] = frame(root_at(str(store)), "events", group_id=NODES).to_pylist()
    for row in rows:
        if row["event"].startswith(("member_", "epoch")):
            at = row["recorded_at"].replace(tzinfo=UTC).timestamp() + to_monotonic
            who = row["member_id"] or row["reason_member_id"] or ""
            lines.append((at, f"root: {row['event']} {who}: {row['reason'] or ''}"))
    shown = [f"  {at - began_s:+7.2f} s  {text}" for at, text in sorted(lines) if at > began_s - 1]
    return "\n".join(shown)


def _cut(said: Sequence[str]) -> list[tuple[str, str]]:
    return [(at, text) for at, _, text in (one.partition(" ") for one in said)]


def show(text: str) -> None:
    """Print a text at once, with the time of day."""
    sys.stdout.write(f"{datetime.now(UTC):%H:%M:%S} {text}\n")
    sys.stdout.flush()
