"""The store that all nodes share: logs and small files in memory, which are slow, silent or cut off.

A request is on its way to the store, and so is its answer: meanwhile others write, the process may
be stopped or killed, and either may be lost.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from coordinator.core.state.records import Record
from coordinator.storage.loaded_state import LoadedState
from coordinator.storage.record_log import Batch, CorruptLog, MemoryLog, MemoryRecords
from coordinator.storage.tables.files import Listed, SwapLostError

if TYPE_CHECKING:
    from .world import ShardWorld

ROOT = "/sim"
USUAL_MS, SLOW_MS = (1, 8), (200, 2_500)
CUT_MS = 1_500
"""How long a request waits for a store that cannot be reached."""


class Way:
    """The way of each request to the store, and of its answer back."""

    def __init__(self, world: ShardWorld) -> None:
        self.world = world
        self._count = 0
        self.cut: dict[str, int] = {}
        self.slow: dict[str, int] = {}
        """Until when a process, by its name, is cut off from the store, or waits long for it."""

    def go(self, what: str) -> None:
        """Be under way: one half of a request."""
        world, machine = self.world, self.world.machine
        process, now = machine.check(), world.schedule.now
        self._count += 1
        key = (process.name, self._count)
        if self.cut.get(process.name, 0) > now:
            machine.sleep(CUT_MS / 1000)
            raise OSError(errno.ETIMEDOUT, f"the store cannot be reached (simulated): {what}")
        is_slow = self.slow.get(process.name, 0) > now
        if self.happens("store is slow"):
            is_slow = True
            world.disturbed(process.name)
        low, high = SLOW_MS if is_slow else USUAL_MS
        machine.sleep(world.chance.between(low, high, "on its way", *key) / 1000)

    def reads(self) -> None:
        """Read a log that is long."""
        world, name = self.world, self.world.machine.check().name
        wait = world.chance.between(0, world.read_ms, "reads", name, self._count)
        world.machine.sleep(wait / 1000)

    def happens(self, fault: str) -> bool:
        """Whether something goes wrong with this request."""
        process = self.world.machine.check()
        return self.world.chance.happens(fault, process.name, self._count)

    def fails(self, fault: str, error: type[Exception] = OSError) -> None:
        """Raise an error if it does."""
        if self.happens(fault):
            name = self.world.machine.check().name
            self.world.tell(f"{name}: {fault}")
            self.world.disturbed(name)
            if error is OSError:
                raise OSError(errno.ETIMEDOUT, f"{fault} (simulated)")
            raise error(f"{fault} (simulated)")

    def crashes(self, fault: str) -> None:
        """End the process if it does."""
        if self.happens(fault):
            name = self.world.machine.check().name
            self.world.tell(f"{name}: {fault}")
            self.world.disturbed(name)
            self.world.machine.die(fault)


class NodeLog(MemoryLog):
    """The log of a shard, or of the root, as one process sees it."""

    def __init__(self, way: Way, path: str, records: MemoryRecords) -> None:
        self._way, self.path = way, path
        super().__init__(records, self._commits)
        self._ahead: LoadedState | None = None
        self._looked: list[Batch] | None = None
        self._commits_now = False

    def claim(self, owner: str, address: str, at_ms: int) -> int:
        """Claim the log."""
        epoch = super().claim(owner, address, at_ms)
        world = self._way.world
        world.claims[self.path] = world.schedule.now, world.host_of(world.machine.check())
        world.tell(f"{world.machine.check().name}: claims {self.path} with epoch {epoch}")
        return epoch

    def append(self, records: Sequence[Record], at_ms: int | Sequence[int]) -> int:
        """Make records durable."""
        self._way.fails("commit fails before")
        self._commits_now = True  # to land says whether the log is ours
        try:
            return super().append(records, at_ms)
        finally:
            self._commits_now = False

    def look(self) -> None:
        """Look whether the log is still ours; the answer is of the moment when it was given."""
        if self._commits_now:
            super().look()
            return
        self._way.go("look")
        super().look()
        self._way.go("look")
        self._way.fails("look fails")

    def replay(self) -> Iterator[Batch]:
        """Replay the log."""
        self._way.go("replay")
        self._way.fails("replay fails", CorruptLog)
        yield from super().replay()
        self._way.go("replay")

    def look_ahead(self) -> bool:
        """Look at what is there long before the claim, as `LogAhead` does."""
        try:
            self._way.go("look ahead")
            self._way.fails("replay fails")
            self._looked = list(self.storage.batches)
            self._way.go("look ahead")
        except OSError:
            self._looked = None
        return self._looked is not None

    def read_ahead(self) -> int:
        """Read what is there before the claim, as `LogAhead` does."""
        if not self.storage.epoch:
            return 0
        try:
            self._way.go("read ahead")
            self._way.fails("replay fails")
            loaded = LoadedState()
            loaded.read(self._looked or list(self.storage.batches))
            self._way.go("read ahead")
            self._way.reads()
        except OSError:
            return 0
        self._ahead = loaded
        return loaded.position

    def take_ahead(self) -> tuple[LoadedState, Iterator[Batch]] | None:
        """Return what was read ahead and what is left to read."""
        ahead, self._ahead = self._ahead, None
        return None if ahead is None else (ahead, self._rest(ahead.position))

    def _rest(self, after: int) -> Iterator[Batch]:
        self.look()
        self._way.fails("replay fails", CorruptLog)
        self.position = self.storage.position
        yield from [batch for batch in self.storage.batches if batch.position > after]

    def _commits(self, when: str) -> None:
        self._way.crashes(f"crash {when} a commit")
        self._way.go("commit")
        if when == "after":
            self._way.fails("commit fails after")


class NodeFiles:
    """The small files of the store, as one process sees them: an object store without locks."""

    has_locks = needs_sync = syncs_beside = lands_late = lists_late = False
    trust_s = 0.0

    def __init__(self, way: Way, files: dict[str, tuple[bytes, str]], poll_s: float) -> None:
        self._way, self._files = way, files
        self.poll_s = poll_s

    def check_conditions(self, root: str) -> None:
        """Files are replaced on conditions."""

    def make_folder(self, path: str) -> None:
        """There are no folders."""

    def is_folder(self, path: str) -> bool:
        """Whether a shard has a log."""
        self._way.go("list")
        self._way.fails("disk cannot be read")
        records = self._way.world.records.get(path.removesuffix("/log/_delta_log"))
        return records is not None and records.epoch > 0

    def listed(self, folder: str) -> dict[str, Listed]:
        """List the files in a folder."""
        self._way.go("list")
        self._way.fails("disk cannot be read")
        found = sorted(path for path in self._files if path.startswith(f"{folder}/"))
        return {
            path.removeprefix(f"{folder}/"): Listed(len(content), tag)
            for path, (content, tag) in ((path, self._files[path]) for path in found)
        }

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        """Return what a file holds, and its tag."""
        self._way.go("get")
        self._way.fails("disk cannot be read")
        found = self._files.get(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", path)
        return found

    def swap(self, path: str, content: bytes, tag: str | None) -> str:
        """Replace a file that has a tag; its answer may be lost."""
        self._way.go("put")
        self._way.fails("put is refused")
        found = self._files.get(path)
        if (None if found is None else found[1]) != tag:
            raise SwapLostError(errno.EEXIST, "another was faster", path)
        self._way.world.swaps += 1
        mine = str(self._way.world.swaps)
        self._files[path] = content, mine
        self._way.go("put")
        self._way.fails("put is not answered")
        return mine

    def remove(self, path: str) -> None:
        """Remove a file."""
        self._way.go("delete")
        self._files.pop(path, None)
