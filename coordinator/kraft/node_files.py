"""Who a node is, kept on its disk: its ids, and whether it may come back as the one that it was.

Controllers know a node by its incarnation. One that comes back as the same keeps its place among
the replicas in sync, so it must still have all that it had: after its process ended, or after
everything was flushed to the disk. A machine that failed may have lost the end of its logs.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from coordinator.clock import wall_ms
from coordinator.config import ConfigError
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.table_io import BusyError

FOLDER, LOGS = "kafka_node", "logs"
NODE, DIRECTORY, LOCK, WINDOW = "node.json", "directory.json", "lock", "uncordon.json"
NO_EPOCH = -1
BOOT_ID = "/proc/sys/kernel/random/boot_id"
LOCK_PATIENCE_S = 0.0
_FILES = Filesystem()
T = TypeVar("T")


class NodeState(msgspec.Struct, frozen=True):
    """What a node was when it was registered last.

    Attributes
    ----------
    broker_epoch
        That the controllers gave it; -1 before they did.
    boot_id
        Of the run of the operating system in which it was; empty where that has none.
    was_flushed
        Whether it ended with everything on the disk.
    is_known
        Whether the controllers have registered it, ever: then the id is its own.
    """

    cluster_id: str
    node_id: int
    incarnation_id: str
    broker_epoch: int = NO_EPOCH
    boot_id: str = ""
    was_flushed: bool = False
    is_known: bool = False


class _Directory(msgspec.Struct, frozen=True):
    directory_id: str


class Identity(NamedTuple):
    """With what a node registers.

    Attributes
    ----------
    directory_id
        Of the folder of its logs: another one, where that was lost.
    previous_epoch
        The epoch after which it lost nothing; -1 if it may have, or is new.
    """

    node_id: int
    cluster_id: str
    incarnation_id: UUID
    directory_id: UUID
    previous_epoch: int


class NodeFiles:
    """The folder of a node: its state, and the logs of its replicas.

    Parameters
    ----------
    store
        The folder of a store of Muster's, or of one to be.
    boot_id
        Of this run of the operating system; empty for none.
    """

    def __init__(self, store: str, boot_id: str | None = None) -> None:
        if "://" in store and not store.startswith("file:"):
            raise ConfigError(
                f"{store} is a URL, but a node keeps the logs of its partitions on a disk: give "
                "a folder"
            )
        self.folder = os.path.join(os.path.abspath(store.removeprefix("file://")), FOLDER)
        self.logs = os.path.join(self.folder, LOGS)
        self._boot_id = read_boot_id() if boot_id is None else boot_id

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from being this node.

        Raises
        ------
        BusyError
            Another one is.
        """
        with _FILES.lock(os.path.join(self.folder, LOCK), LOCK_PATIENCE_S) as is_ours:
            if not is_ours:
                raise BusyError(
                    f"another process is the node of {self.folder}: stop it, or name another store"
                )
            yield

    def read_state(self) -> NodeState | None:
        """Return what the node was; None before it was any."""
        return _read(os.path.join(self.folder, NODE), NodeState)

    def begin(self, cluster_id: str, node_id: int | None) -> Identity:
        """Return who the node is from now on, and keep that.

        Parameters
        ----------
        node_id
            None for the one that it was.

        Raises
        ------
        ConfigError
            The folder is of another cluster's node, or of another id; or no id is known.
        """
        was = self.read_state()
        if node_id is None and was is None:
            raise ConfigError("--node-id is missing: give an id that no broker of the cluster has")
        if was is not None and was.cluster_id != cluster_id:
            raise ConfigError(
                f"{self.folder} is of a node of cluster {was.cluster_id}, but this is "
                f"{cluster_id}: name another store"
            )
        if was is not None and node_id not in {None, was.node_id}:
            raise ConfigError(
                f"{self.folder} is of node {was.node_id}, not of {node_id}: name another store, or "
                f"give --node-id {was.node_id}"
            )
        directory = _read(os.path.join(self.logs, DIRECTORY), _Directory)
        lost = directory is None
        directory_id = UUID(directory.directory_id) if directory else _new_id()
        _FILES.make_folder(self.logs)
        if lost:
            self._write(os.path.join(self.logs, DIRECTORY), _Directory(str(directory_id)))
        incarnation, previous = _new_id(), NO_EPOCH
        if was is not None and not lost:
            if was.was_flushed:
                previous = was.broker_epoch
            elif self._boot_id and was.boot_id == self._boot_id:
                incarnation, previous = UUID(was.incarnation_id), was.broker_epoch
        known = node_id if was is None else was.node_id
        assert known is not None
        is_known = was is not None and was.is_known
        now = NodeState(
            cluster_id, known, str(incarnation), previous, self._boot_id, is_known=is_known
        )
        self._write(os.path.join(self.folder, NODE), now)
        return Identity(known, cluster_id, incarnation, directory_id, previous)

    def forget(self, identity: Identity) -> Identity:
        """Return who the node is as another incarnation, which may have lost records; keep that."""
        incarnation = _new_id()
        self._change(incarnation_id=str(incarnation), broker_epoch=NO_EPOCH)
        return identity._replace(incarnation_id=incarnation, previous_epoch=NO_EPOCH)

    def keep_epoch(self, broker_epoch: int) -> None:
        """Keep the epoch with which the node was registered."""
        self._change(broker_epoch=broker_epoch, is_known=True)

    def end(self) -> None:
        """Note that everything is on the disk; the next start is another incarnation."""
        self._change(was_flushed=True)

    def _change(self, **changes: object) -> None:
        was = self.read_state()
        assert was is not None, "a node begins before it changes"
        self._write(os.path.join(self.folder, NODE), msgspec.structs.replace(was, **changes))

    def _write(self, path: str, value: object) -> None:
        _FILES.replace(path, msgspec.json.encode(value), sync=True)

    # The window in which controllers may give replicas -------------------------------------------

    def open_window(self, seconds: float) -> None:
        """Let the node take new replicas for some seconds."""
        until_ms = wall_ms() + round(seconds * 1000)
        _FILES.make_folder(self.folder)
        _FILES.replace(os.path.join(self.folder, WINDOW), msgspec.json.encode(until_ms))

    def close_window(self) -> None:
        """Let the node no longer take new replicas."""
        _FILES.remove(os.path.join(self.folder, WINDOW))

    def is_window_open(self) -> bool:
        """Whether the node takes new replicas now."""
        return (_read(os.path.join(self.folder, WINDOW), int) or 0) > wall_ms()


def read_boot_id() -> str:
    """Return what names this run of the operating system; empty where nothing does."""
    try:
        with open(BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _new_id() -> UUID:
    return uuid.uuid4()


def _read(path: str, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(_FILES.read(path), type=kind)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"{path} is damaged: {error}; remove it, and the node is a new one"
        ) from None
