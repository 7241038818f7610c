"""Rounds through the inbox of a store of shards: one look for all the parts that a node has."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from coordinator.config import Config
from coordinator.config.settings import TelemetryConfig
from coordinator.runtime.coordinator import Coordinator
from coordinator.storage.inbox import Inbox
from coordinator.storage.shards import ROOT, Shards
from coordinator.storage.tables.store_files import files_at

MAINTENANCE_MS = 2_000
logger = logging.getLogger("muster.shards")


def config_of_part(config: Config) -> Config:
    """Return the settings of a part's coordinator, which is one of hundreds.

    It reads requests when the node says so, and looks for maintenance less often: it is woken where
    each commit makes that later. Its node sends what is counted of all parts.
    """
    never_ms = int(threading.TIMEOUT_MAX * 1000)
    return replace(
        config,
        telemetry=TelemetryConfig(),
        engine=replace(config.engine, proposals_ms=never_ms),
        log=replace(config.log, maintenance_ms=max(MAINTENANCE_MS, config.log.maintenance_ms)),
    )


class InboxRounds:
    """A node's side of the inbox: whose requests wait reads them, no other part looks.

    Parameters
    ----------
    root
        Of the store.
    find
        Returns the coordinator of a part, by its name, if the node has it.
    """

    def __init__(
        self, root: str, shards: Shards, config: Config, find: Callable[[str], Coordinator | None]
    ) -> None:
        self._inbox = Inbox(root)
        self._parts = {ROOT, *(f"{number:04d}" for number in range(shards.count))}
        self._find = find
        self._every_s = max(config.engine.proposals_ms / 1000, files_at(root).poll_s)

    def run(self, ending: threading.Event) -> None:
        """Look again and again, until the node ends."""
        while not ending.wait(self._every_s):
            try:
                self.look()
            except OSError as error:
                logger.warning("the inbox of the shards cannot be read, retrying: %s", error)

    def look(self) -> None:
        """Have the parts that are here read their requests; set aside what names no part."""
        self._inbox.set_strangers_aside()
        asked = set()
        for name in self._inbox.waiting():
            part, dash, _ = name.partition("-")
            if dash and part in self._parts:
                asked.add(part)
            else:
                self._inbox.set_aside(name, "it names no shard of the store: write 0000-NAME.json")
        for part in sorted(asked):
            coordinator = self._find(part)
            if coordinator is not None:
                coordinator.read_requests()
