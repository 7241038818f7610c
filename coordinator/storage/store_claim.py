"""Claim a store: the lease decides when, the claim in the log makes it ours."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

from coordinator.clock import Clock
from coordinator.config import Config, folder_mode
from coordinator.display import progress
from coordinator.errors import ErrorCode, GroupError
from coordinator.storage.delta_log import DeltaLog, find_root, make_root
from coordinator.storage.lease import TAKEOVERS, Lease
from coordinator.storage.record_log import MemoryLog, MemoryRecords, RecordLog, WriterFenced
from coordinator.storage.shards import refuse_shards
from coordinator.storage.store_modes import filesystem_of, warn_of_others
from coordinator.storage.tables.patience import Patience
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import MEMORY, files_at

_SHARED: defaultdict[str, MemoryRecords] = defaultdict(MemoryRecords)
"""Stores by the URL memory://NAME, of this process."""


def claim_store(
    store: str | Path | None,
    config: Config,
    takeover: str,
    address: str,
    clock: Clock,
    dated: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[RecordLog, Lease | None]:
    """Open the log of a store and claim it, when the lease allows.

    Parameters
    ----------
    clock
        What the lease runs on.
    dated
        What the claim is dated by, where that is another clock.
    sleep
        As `Lease` takes it.
    """
    dated = dated or clock
    if takeover not in TAKEOVERS:
        raise GroupError(
            ErrorCode.INVALID_REQUEST, f"takeover is {takeover!r}: give wait, refuse or force"
        )
    owner = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    root = None if store is None else find_root(store)
    if root is None or root.startswith(f"{MEMORY}:"):
        memory = MemoryLog() if root is None else MemoryLog(_SHARED[root])
        memory.claim(owner, address, dated())
        return memory, None
    disk = filesystem_of(root, folder_mode(config.log))
    lease = Lease(root, owner, address, config.lease, clock, sleep, disk)
    patience = Patience(root, waits=takeover != "refuse")
    taken = False

    def claim() -> DeltaLog:
        nonlocal taken
        make_root(root)
        disk.make_folder(root)
        disk.check_conditions(root)
        refuse_shards(root)
        while True:
            with progress.task("waiting until no other coordinator has the store"):
                lease.wait(takeover, patience)
            taken = True
            with ExitStack() as opened:
                with lease.kept():
                    log = opened.enter_context(closing(DeltaLog.open(root, config.log)))
                    try:
                        epoch = log.claim(owner, address, dated())
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
