"""Claim a store: the lease decides when, the claim in the log makes it ours."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeAlias

from coordinator.clock import Clock
from coordinator.config import Config, LogConfig, folder_mode
from coordinator.display import progress
from coordinator.errors import ErrorCode, GroupError
from coordinator.storage.delta_log import DeltaLog, make_root
from coordinator.storage.lease import Holder, Lease, Takeover
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.record_log import MemoryLog, MemoryRecords, RecordLog, WriterFenced
from coordinator.storage.shards import refuse_shards
from coordinator.storage.store_modes import filesystem_of, warn_of_others
from coordinator.storage.tables.patience import Patience
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import MEMORY, files_at
from coordinator.storage.tables.store_root import find_root

StandBy: TypeAlias = Callable[[float, Holder | None], None]
"""Waits so many seconds for the lease of a holder, None where it is not known."""
_SHARED: defaultdict[str, MemoryRecords] = defaultdict(MemoryRecords)
"""Stores by the URL memory://NAME, of this process."""


def sleep(seconds: float, _held: Holder | None) -> None:
    """Wait so long."""
    time.sleep(seconds)


class ReadAhead:
    """The log of a store, which is read once its holder is late: then a claim finds it loaded."""

    def __init__(self, root: str, config: LogConfig) -> None:
        self._root, self._config = root, config
        self._reading: tuple[LogAhead, threading.Thread] | None = None

    def look(self, *, is_late: bool) -> None:
        """Begin to read where the holder is late, and drop what was read where it is not."""
        if not is_late:
            self._reading = None
        elif self._reading is None:
            log = LogAhead.open(self._root, self._config)
            reads = threading.Thread(target=log.read_ahead, name="muster-reads-ahead", daemon=True)
            self._reading = log, reads
            reads.start()

    def take(self) -> LogAhead:
        """Return the log to claim, once it is read; the next one is another."""
        reading, self._reading = self._reading, None
        if reading is None:
            return LogAhead.open(self._root, self._config)
        log, reads = reading
        reads.join()
        return log


def claim_store(
    store: str | Path | None,
    config: Config,
    takeover: str,
    address: str,
    clock: Clock,
    dated: Clock | None = None,
    stand_by: StandBy = sleep,
) -> tuple[RecordLog, Lease | None]:
    """Open the log of a store and claim it, when the lease allows.

    Parameters
    ----------
    clock
        What the lease runs on.
    dated
        What dates the claim, if not that clock.
    stand_by
        Waits while another has the store; what it raises ends the waiting.
    """
    if takeover not in list(Takeover):
        why = f"takeover is {takeover!r}: give one of {', '.join(Takeover)}"
        raise GroupError(ErrorCode.INVALID_REQUEST, why)
    owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    root = None if store is None else find_root(store)
    if root is None or root.startswith(f"{MEMORY}:"):
        memory = MemoryLog() if root is None else MemoryLog(_SHARED[root])
        memory.claim(owner, address, (dated or clock)())
        return memory, None
    disk = filesystem_of(root, folder_mode(config.log))
    ahead = ReadAhead(root, config.log)

    def wait(seconds: float) -> None:
        ahead.look(is_late=lease.is_late)
        stand_by(seconds, lease.seen)

    lease = Lease(root, owner, address, config.lease, clock, wait, disk)
    patience = Patience(root, waits=takeover != Takeover.REFUSE)
    taken = False

    def claim() -> DeltaLog:
        nonlocal taken
        make_root(root)
        disk.make_folder(root)
        disk.check_conditions(root)
        refuse_shards(root)
        while True:
            with progress.task("waiting until no other coordinator has the store"):
                lease.wait(Takeover(takeover), patience)
            taken = True
            with ExitStack() as opened:
                with lease.kept():
                    log = opened.enter_context(closing(ahead.take()))
                    try:
                        epoch = log.claim(owner, address, (dated or clock)())
                    except WriterFenced:
                        continue  # another stand-by was faster: wait for its end
                lease.publish_epoch(epoch)
                opened.pop_all()
                return log

    try:
        log = patience.run(claim)
    except BaseException:
        if taken:
            lease.release()
        raise
    warn_of_others(root, folder_mode(config.log))
    return log, lease


def has_log(store: str | os.PathLike[str]) -> bool:
    """Whether a coordinator has claimed the store before."""
    root = find_root(store)
    if root.startswith(f"{MEMORY}:"):
        return False
    return files_at(root).is_folder(log_folder(f"{root}/log"))
