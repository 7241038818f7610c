"""Nodes of a store of shards: how long the groups wait for one that takes all."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.measure import Bench, Figure
from benchmarks.report import Section
from benchmarks.shape import small_group_id
from benchmarks.shards.client import Beater
from benchmarks.store import temporary_store, write_small_groups
from coordinator import Coordinator
from coordinator.config import Config
from coordinator.storage.shards import make_shards, shard_at

TITLE = "Shards and nodes"
TEXT = """\
Elapsed, with default settings, on this disk. *One node takes all*: a node starts on a store in
shards; *first* is the first group that answers once it listens, *all* is when each of a thousand
groups has answered, by the load of as many groups in a store of one shard.
"""
SETTINGS = """
[kafka]
"group.consumer.max.session.timeout.ms" = 3600000
"group.consumer.session.timeout.ms" = 3600000
"""
"""Most members never beat: no one is to wait for their ends."""


def run(bench: Bench) -> Section:
    """Measure; each on a store of its own."""
    figures: list[Figure] = []
    bench.say("shards: one node takes all")
    figures += taken(*(20, 8) if bench.smoke else (100_000, 64))
    return Section(TITLE, TEXT, figures)


def taken(groups: int, count: int) -> Iterator[Figure]:
    """Start the only node of a store, and compare with a store of one shard."""
    with temporary_store() as store:
        write_small_groups(store, groups)
        began = time.perf_counter()
        with Coordinator.open(store, topics={"small": 1}):
            whole = time.perf_counter() - began
    with temporary_store() as store:
        _write_shards(store, groups, count)
        began = time.perf_counter()
        with serving(store, 1, {"small": 1}) as nodes:
            started = time.perf_counter()
            beater = Beater(list(nodes))
            beater.beat(small_group_id(0), "m0")
            first = time.perf_counter()
            for number in range(0, groups, max(1, groups // 1_000)):
                beater.beat(small_group_id(number), f"m{number}")
            last = time.perf_counter()
            beater.close()
    named = f"one node takes {count} shards of {groups:,} members"
    yield Figure.of("start of a node until it listens", [(started - began) * 1000])
    yield Figure.of(f"{named}: first answer after that", [(first - started) * 1000], goal=2_000.0)
    yield Figure.of(f"{named}: all, by the load of one shard", [(last - started) / whole], "x", 1.0)


def _write_shards(store: Path, groups: int, count: int) -> None:
    shards = make_shards(str(store), count, Config())
    names: list[set[str]] = [set() for _ in range(count)]
    for number in range(groups):
        group_id = small_group_id(number)
        names[shards.shard_of(group_id)].add(group_id)
    for shard, some in enumerate(names):
        write_small_groups(Path(shard_at(str(store), shard)), groups, some)


@contextmanager
def serving(
    store: Path, count: int, topics: dict[str, int]
) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Serve a store by so many nodes until the end; yield their processes by address."""
    listed = store.with_suffix(".json")
    listed.write_text(json.dumps({"topics": topics}))
    settings = store.with_suffix(".toml")
    settings.write_text(SETTINGS)
    with ExitStack() as left:
        nodes = {}
        for number in range(1, count + 1):
            words = ["serve", "--store", str(store), "--node", str(number)]
            words += ["--listen", "127.0.0.1:0", "--topics", str(listed), "--config", str(settings)]
            command = [sys.executable, "-m", "coordinator", *words]
            node = left.enter_context(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True)  # noqa: S603
            )
            left.callback(node.kill)
            assert node.stdout is not None
            line = node.stdout.readline()
            assert line.startswith("muster serves groups at "), line
            nodes[line.split()[4]] = node
        yield nodes
