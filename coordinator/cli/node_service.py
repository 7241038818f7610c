"""A node of a Kafka cluster that keeps the history of the cluster's groups, and shows it.

The history is what `muster watch` keeps, of all groups of the cluster; those that the node leads
have the leader's own reasons. It may fail, as a disk does: the node goes on, and it is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from coordinator.cli.service import Service, Stop, check_store, open_in_thread
from coordinator.config import Config, ConfigError
from coordinator.core.state.groups import BY_NODE
from coordinator.errors import GroupError
from coordinator.storage.record_log import LogError
from coordinator.watcher.watch import Watch, open_store

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from coordinator.kraft.node import ClusterNode
    from coordinator.runtime.coordinator import Coordinator
    from coordinator.watcher.source import Source

AGAIN_S = 5.0
OF_THE_HISTORY = "watched_"
"""How metrics of reading the cluster's topic begin: all others are the node's."""
Guard = Callable[[Coroutine[Any, Any, str]], str]
logger = logging.getLogger("muster.node")


class NodeThread:
    """A node in a thread of its own.

    Parameters
    ----------
    run
        Runs the node's loop to its end, and returns why it ended.

    Attributes
    ----------
    ended
        Called once it has, in its thread.
    """

    def __init__(self, node: ClusterNode, run: Guard) -> None:
        self.node, self._guard = node, run
        self.ended: Callable[[], object] = lambda: None
        self.has_ended = False
        self._why = ""
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._is_running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="muster-node", daemon=True)
        self._thread.start()
        self._is_running.wait()

    def _run(self) -> None:
        async def run() -> str:
            self._loop = asyncio.get_running_loop()
            self._is_running.set()
            return await self.node.run(self._stop)

        try:
            self._why = self._guard(run())
        except BaseException as error:  # noqa: BLE001 - raised by `close`
            self._failure = error
        finally:
            self._is_running.set()
            self.has_ended = True
            self.ended()

    def close(self) -> str:
        """Let brokers lead, end the node, and return why it ended; raises what ended it."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self._why


class NodeRegistry(CollectorRegistry):
    """The metrics of a node, with those of the history that it keeps."""

    def __init__(self, node: ClusterNode, history: CollectorRegistry) -> None:
        super().__init__()
        self._node, self._history = node, history

    def collect(self) -> Iterator[Metric]:
        """Yield today's values."""
        for registry in (self._node.metrics.registry, self._history):
            for one in registry.collect():
                if one.name.startswith(OF_THE_HISTORY) == (registry is self._history):
                    yield one


def run_with_history(
    node: ClusterNode,
    run: Guard,
    open_source: Callable[[], Source],
    store: str,
    config: Config,
    again_s: float = AGAIN_S,
) -> str:
    """Be a node, keep the history, and show it, until stopped; return why it ended.

    Parameters
    ----------
    run
        As for `NodeThread`.
    open_source
        Returns what the history is read from.
    again_s
        How long after a failure the history is begun again.

    Raises
    ------
    ConfigError
        The node, or the history, cannot be in this store or of this cluster.
    """
    check_store(store, config)
    thread = NodeThread(node, run)
    try:
        stop = _keep_history(thread, open_source(), store, config, is_first=True)
        while not stop.wait(again_s):
            stop = _keep_history(thread, open_source(), store, config, is_first=False)
    except BaseException:
        thread.close()  # what ended the node says more
        raise
    return thread.close()


def _keep_history(
    thread: NodeThread, source: Source, store: str, config: Config, *, is_first: bool
) -> Stop:
    """Keep it until it fails, or until a stop or the end of the node; return that."""
    following: list[Watch] = []
    asked = [Stop()]

    def open_history(stop: Stop) -> Watch | None:
        asked[0] = stop
        thread.ended = partial(stop.end, "the end of the node")
        if thread.has_ended:
            thread.ended()
        opening = open_in_thread(
            stop, lambda: open_store(source, store, config, "wait", stop, BY_NODE)
        )
        found = None if opening is None else opening.result()
        return None if found is None else Watch(found, source)

    def start(opened: Watch, open_now: ExitStack) -> tuple[Coordinator, str]:
        following.append(open_now.enter_context(opened))
        opened.coordinator.forward_plans(thread.node.decide_plan)
        thread.node.keep_records(opened.coordinator)
        open_now.callback(thread.node.keep_records, None)
        return opened.coordinator, f"muster node keeps the history of its cluster (store {store})"

    def look() -> bool:
        following[0].wait(0)
        return False

    def is_ready() -> bool:
        return thread.node.is_ready and following[0].store.has_caught_up

    service = Service(
        open=open_history,
        start=start,
        look=look,
        is_ready=is_ready,
        registry=lambda history: NodeRegistry(thread.node, history),
    )
    try:
        service.run(config, store)
    except (LogError, OSError, GroupError, ConfigError) as error:
        if is_first and not following and isinstance(error, ConfigError):
            raise
        logger.warning("the history has stopped, and is begun again: %s", error)
    return asked[0]
