"""Nodes of a store of shards, as processes; and the store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.shape import spread_group_id
from benchmarks.store import write_small_groups
from coordinator.config import Config
from coordinator.storage.shards import make_shards, shard_at

SETTINGS = """
[kafka]
"group.consumer.max.session.timeout.ms" = 3600000
"group.consumer.session.timeout.ms" = 3600000
"""
"""Most members never beat: no one is to wait for their ends."""


def write_shards(store: Path, groups: int, count: int, members: int = 1) -> None:
    """Write a store of shards with settled groups."""
    shards = make_shards(str(store), count, Config())
    names: list[set[str]] = [set() for _ in range(count)]
    for number in range(groups):
        group_id = spread_group_id(number)
        names[shards.shard_of(group_id)].add(group_id)
    for shard, some in enumerate(names):
        write_small_groups(
            Path(shard_at(str(store), shard)), groups, some, members, spread_group_id
        )


class Nodes:
    """Processes that serve a store until the end of the block.

    Parameters
    ----------
    partitions
        Of the topic of the groups.
    """

    def __init__(self, store: Path, partitions: int = 1) -> None:
        self.store, self.config = store, Config()
        self._started: dict[str, subprocess.Popen[str]] = {}
        self._topics = store.with_suffix(".json")
        self._topics.write_text(json.dumps({"topics": {"small": partitions}}))
        self._settings = store.with_suffix(".toml")
        self._settings.write_text(SETTINGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        for address in list(self._started):
            self.kill(address)

    def start(self, count: int) -> list[str]:
        """Start more nodes, wait until they listen, and return the addresses of all."""
        begun = []
        for number in range(len(self._started) + 1, len(self._started) + count + 1):
            words = ["serve", "--store", str(self.store), "--node", str(number)]
            words += ["--listen", "127.0.0.1:0", "--topics", str(self._topics)]
            words += ["--config", str(self._settings)]
            command = [sys.executable, "-m", "coordinator", *words]
            begun.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))  # noqa: S603
        for node in begun:
            assert node.stdout is not None
            line = node.stdout.readline()
            assert line.startswith("muster serves groups at "), line
            self._started[line.split()[4]] = node
        return list(self._started)

    def processes(self) -> list[int]:
        """Return the ids of the processes."""
        return [node.pid for node in self._started.values()]

    def kill(self, address: str) -> None:
        """End a node with SIGKILL."""
        node = self._started.pop(address)
        with node:
            node.kill()
