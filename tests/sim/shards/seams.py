"""What the product takes for its machine while a simulation runs; all else of it is the product's."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from assignors import registry
from coordinator import clock
from coordinator.engines import engine
from coordinator.member import application
from coordinator.runtime import (
    background_tasks,
    beside,
    coordinator,
    event_loop,
    futures,
    log_maintenance,
    regex_jobs,
    target_computations,
)
from coordinator.shards import load_order, looks_ahead, node, root, router, shard_loads, shards_here
from coordinator.storage import lease, nodes, state_loader, store_claim
from coordinator.storage.tables import patience
from coordinator.telemetry.follower import Follower
from coordinator.wire import listener

from .machine import Pool, Threading, Time, futures_of
from .member import NodeMember
from .processor import CheckedProcessor
from .server import Front
from .store import NodeLog

if TYPE_CHECKING:
    from .world import ShardWorld

WITH_THREADS = (
    application, background_tasks, beside, coordinator, event_loop, lease, listener, load_order, node,
    nodes, shards_here, store_claim, target_computations,
)  # fmt: skip

WITH_TIME = (
    background_tasks, clock, event_loop, load_order, log_maintenance, node, root,
    target_computations,
)  # fmt: skip
WITH_FUTURES = (event_loop, futures, router)


class NoMetrics:
    """Metrics that no one reads; making real ones takes time."""

    def follow(self, _state: Any) -> Follower:
        """Return what follows nothing."""
        return Follower()

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@contextmanager
def on_machine(world: ShardWorld) -> Iterator[None]:
    """Let the product run on the machine of a world."""
    machine = world.machine
    threads, time, future = Threading(machine), Time(machine), futures_of(machine)
    found: list[tuple[object, str, object]] = [
        *((module, "threading", threads) for module in WITH_THREADS),
        *((module, "time", time) for module in WITH_TIME),
        *((module, "Future", future) for module in WITH_FUTURES),
    ]
    metrics = NoMetrics()

    def make_patience(*given: Any, **named: Any) -> patience.Patience:
        return patience.Patience(*given, **named, sleep=time.sleep)

    def make_nodes(*given: Any, **named: Any) -> nodes.StoreNodes:
        return nodes.StoreNodes(*given, **named, disk=world.files())

    def make_loads(asked: Any) -> shard_loads.ShardLoads:
        return shard_loads.ShardLoads(asked, time.monotonic)

    def look_ahead(*given: Any) -> looks_ahead.LooksAhead:
        return looks_ahead.LooksAhead(*given, time.monotonic)

    def make_task(name: str, every_s: float, run: Any, wake: Any = None) -> Any:
        return background_tasks_task(name, every_s, run, wake or threads.Event())

    background_tasks_task = background_tasks.PeriodicTask
    logs = SimpleNamespace(open=world.open_log)
    ids = SimpleNamespace(uuid4=lambda: uuid.UUID(int=world.next_id()))
    nothing = SimpleNamespace(register=lambda _: None, unregister=lambda _: None)
    found += [
        (registry, "entry_points", lambda **_: ()),  # looking for them takes time
        (engine, "entry_points", lambda **_: ()),
        (regex_jobs, "ThreadPoolExecutor", lambda *_, **__: Pool(machine)),
        (target_computations, "ThreadPoolExecutor", lambda *_, **__: Pool(machine)),
        (background_tasks, "PeriodicTask", make_task),
        (coordinator, "EventProcessor", world.bound(CheckedProcessor)),
        (coordinator, "Metrics", lambda *_: metrics),
        (coordinator, "Patience", make_patience),
        (coordinator, "atexit", nothing),
        (node, "InboxRounds", lambda *_: SimpleNamespace(run=lambda ending: ending.wait())),
        (looks_ahead, "LogAhead", logs),
        (looks_ahead, "is_remote", lambda _: True),
        (node, "LooksAhead", look_ahead),
        (node, "Member", world.bound(NodeMember)),
        (node, "ShardLoads", make_loads),
        (node, "StoreNodes", make_nodes),
        (node, "NodeMetrics", lambda *_: metrics),
        (node, "leave", lambda _: None),
        (node, "make_root", str),
        (node, "serve", world.bound(Front)),
        (node, "uuid", ids),
        (event_loop, "leave", lambda _: None),
        (background_tasks, "leave", lambda _: None),
        (shards_here, "LogAhead", logs),
        (shards_here, "files_at", lambda _: world.files()),
        (state_loader, "LogAhead", NodeLog),
        (store_claim, "LogAhead", logs),
        (store_claim, "Patience", make_patience),
        (store_claim, "filesystem_of", lambda *_: world.files()),
        (store_claim, "make_root", str),
        (store_claim, "refuse_shards", lambda _: None),
        (store_claim, "warn_of_others", lambda *_: None),
    ]
    with ExitStack() as patched:
        for module, name, replacement in found:
            patched.enter_context(patch.object(module, name, replacement))
        yield
