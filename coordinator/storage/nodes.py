"""Nodes of a store: the servers that coordinate it or stand by, by whose addresses clients go on.

Each server has a file `_nodes/<node id>.json`, which it keeps rewriting, and reads those of the
others. They serve only answers to clients: the log decides who coordinates.

A file's length says whether what it claims has changed since it was read: it is filled up with
spaces. So a list tells which servers are alive and which files must be read, and an object store is
asked little, however many servers there are.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from coordinator.clock import Clock, monotonic_ms, wall_ms
from coordinator.config import LeaseConfig
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.files import Files, Listed, SwapLostError, hold_to_swap

FOLDER, SUFFIX = "_nodes", ".json"
NODE_ID_MAX = 2**31 - 1
BYTES_MAX = 1 << 20
"""Of a node's file: with the most shards there may be it has a tenth."""
YEAR_3000_MS = 32_503_680_000_000
TRIES = 20
LENGTHS = 1_024
"""A file's length, less a multiple of this, is the number of a change."""
AGAIN = 8
"""So many files are read again from one renewal to the next though they have the same length: their
loads are other ones."""
Id: TypeAlias = Annotated[int, Meta(ge=0, le=NODE_ID_MAX)]
Epoch: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Load: TypeAlias = Annotated[float, Meta(ge=0, le=1e9)]
logger = logging.getLogger("muster.coordinator")


class Node(msgspec.Struct, frozen=True):
    """What the file of a node says.

    Attributes
    ----------
    address
        Where clients find it, as host:port.
    coordinator_epoch
        Of its claim of the log; 0 while it stands by.
    renewed_ms
        When it was written: a file that is no longer rewritten is that of a server that has ended.
    token
        Of this very server.
    shards
        Those that it has, each with the coordinator epoch of its claim; 0 where it has no log yet.
    loads
        What was asked of these lately, in steady heartbeats a second; without those that are new.
    of
        How many shards its store has; 0 where that is one, or the server is of an older version.
    misses
        The claim of the root whose owner does not answer its heartbeats; 0 while that does.
    """

    node_id: Id
    address: Annotated[str, Meta(max_length=1_000)]
    coordinator_epoch: Epoch
    renewed_ms: Annotated[int, Meta(ge=0, le=YEAR_3000_MS)]
    token: Annotated[str, Meta(max_length=100)]
    shards: dict[Id, Epoch] = {}
    loads: dict[Id, Load] = {}
    of: Id = 0
    misses: Epoch = 0


class _Read(NamedTuple):
    """A file as it was last read: its content; None if it was not a server's."""

    listed: Listed
    node: Node | None
    tag: str
    turn: int
    """When it was read: the number of the read."""


class StoreNodes:
    """One server's side of the nodes of a store.

    Parameters
    ----------
    root
        Of the store.
    epoch
        Returns the coordinator epoch of this server, 0 while it stands by.
    shards, loads
        Return the shards that this server has, and their loads, as `Node` has them.
    of
        As `Node` has it.
    misses
        Returns that, as `Node` has it.

    Attributes
    ----------
    root
        Of the store.
    others
        The other servers there are, by their ids, as they were seen last.
    every_s
        How often to `renew`.
    """

    def __init__(
        self,
        root: str,
        config: LeaseConfig,
        epoch: Callable[[], int] = lambda: 0,
        clock: Clock = wall_ms,
        disk: Files | None = None,
        shards: Callable[[], Mapping[int, int]] = dict,
        loads: Callable[[], Mapping[int, float]] = dict,
        of: int = 0,
        misses: Callable[[], int] = lambda: 0,
    ) -> None:
        self.root, self._folder = root, f"{root}/{FOLDER}"
        self._disk = disk or filesystem_of(root)
        self._epoch, self._clock = epoch, clock
        self._shards, self._loads, self._of, self._misses = shards, loads, of, misses
        self._turn = threading.Lock()
        """So that a file of ours is never replaced by one of an earlier moment: its tag says only
        that no other process has written it."""
        self._token = uuid.uuid4().hex
        self._patience_s = config.ttl_ms / 1000
        self._own: Node | None = None
        self._change = random.randrange(LENGTHS)  # noqa: S311 - other than our predecessor's
        self._turns = self._rereads = 0
        self._warned = False
        self._seen: dict[int, tuple[Node, int]] = {}
        """Files as they were read last, and when they were first seen so."""
        self._files: dict[int, _Read] = {}
        self.every_s = max(config.renew_ms / 1000, 5 * self._disk.poll_s)
        self._gone_ms = max(config.ttl_ms, int(3_000 * self.every_s))
        self.others: tuple[Node, ...] = ()
        self._written_ms = monotonic_ms()

    @property
    def silent_ms(self) -> int:
        """For how long the store has not let this server say that it is there."""
        return monotonic_ms() - self._written_ms

    @property
    def is_registered(self) -> bool:
        """Whether the others know this server."""
        return self._own is not None

    def register(self, wanted: int, address: str) -> int:
        """Take an id, and tell the others the address.

        It is the one that this address has, so that a server that stood by keeps its own; else the
        one wanted, unless another has it; else the least that is free.

        Raises
        ------
        OSError
            The store cannot be written.
        """
        for _ in range(TRIES):
            with self._hold_lock():
                found = self._look()
                taken = {one.node_id: one.address for one in self.others}
                mine = [node_id for node_id, held in taken.items() if held == address]
                free = (n for n in range(1, NODE_ID_MAX) if n not in taken)
                node_id = mine[0] if mine else wanted if wanted not in taken else next(free)
                try:
                    self._write(node_id, address, found.get(node_id))
                except SwapLostError:
                    continue  # another was faster
            self.others = tuple(one for one in self.others if one.node_id != node_id)
            return node_id
        raise OSError(errno.EAGAIN, "other servers take each node id at the same time", self.root)

    def renew(self) -> None:
        """Rewrite our file, and read those of the others; nothing before we have an id.

        Raises
        ------
        OSError
            The store is gone, or cannot be read or written.
        """
        with self._turn:
            self._rereads = AGAIN
            if self._own is not None:
                self._renew(self._own)

    def _renew(self, own: Node) -> None:
        if self._disk.has_locks and not self._disk.is_folder(self.root):
            raise FileNotFoundError(errno.ENOENT, "the store is gone", self.root)
        node_id, address = own.node_id, own.address
        with self._hold_lock():
            found = self._look()
            clash = next((one for one in self.others if one.node_id == node_id), None)
            if clash is None or clash.address == address:
                with suppress(SwapLostError):  # it is looked at again
                    self._write(node_id, address, found.get(node_id))
            if clash is not None:
                self._warn_of(clash, address)
        self.others = tuple(one for one in self.others if one.node_id != node_id)

    def _warn_of(self, clash: Node, address: str) -> None:
        """Say once that another server has our id, or even our address: clients reach one of us."""
        if self._warned:
            return
        self._warned = True
        if clash.address == address:
            logger.warning(
                "another server says that it is at %s too: give each server an address of its own "
                "(--listen, --advertise)",
                address,
            )
        else:
            logger.warning(
                "%s is node %d too: give each server a server.node_id of its own",
                *(clash.address, clash.node_id),
            )

    def look(self) -> tuple[Node, ...]:
        """Read which servers there are, without being one of them.

        Raises
        ------
        OSError
            The store cannot be read.
        """
        with self._turn:
            if self._own is None:
                self._rereads = AGAIN
            self._look()
        return self.others

    def leave(self) -> None:
        """Remove our file, unless another server has taken the id; where that fails it ages."""
        if self._own is None:
            return
        path = self._path(self._own.node_id)
        try:
            with self._hold_lock():
                content, _ = self._disk.read_tagged(path)
                if msgspec.json.decode(content, type=Node).token == self._token:
                    self._disk.remove(path)
        except (OSError, ValueError) as error:
            logger.info("%s stays until it has aged: %s", path, error)

    def coordinator(self) -> Node | None:
        """Return who coordinates among the others, as far as they say."""
        claimed = [one for one in self.others if one.coordinator_epoch]
        return max(claimed, key=lambda one: one.coordinator_epoch, default=None)

    def with_claim(self, epoch: int) -> Node | None:
        """Return who made a claim of the log, as the files say: it may have ended since."""
        known = [read.node for read in self._files.values() if read.node is not None]
        return next((one for one in known if one.coordinator_epoch == epoch), None)

    def owner_of(self, shard: int) -> tuple[Node | None, int]:
        """Return who of the others has claimed a shard last, as far as they say, and its epoch."""
        claimed = [one for one in self.others if shard in one.shards]
        found = max(claimed, key=lambda one: one.shards[shard], default=None)
        return found, 0 if found is None else found.shards[shard]

    def every(self) -> tuple[Node, ...]:
        """Return this server, if it has an id, and the others, as they were last seen."""
        return self.others if self._own is None else (self._own, *self.others)

    def has_last(self, node: Node, shard: int) -> bool:
        """Whether no other node says that it has claimed a shard later."""
        claimed = [one.shards[shard] for one in self.every() if shard in one.shards]
        return node.shards.get(shard, -1) >= max(claimed, default=0)

    def owners(self) -> dict[int, Node]:
        """Return who of the others has claimed each shard last, as far as they say."""
        claimed = sorted({shard for one in self.others for shard in one.shards})
        return {shard: one for shard in claimed if (one := self.owner_of(shard)[0]) is not None}

    def _look(self) -> dict[int, str]:
        """Read the files that changed, note whose servers are there, and return all tags by id."""
        now, found = self._clock(), {}
        listed = {
            node_id: one
            for name, one in self._disk.listed(self._folder).items()
            if (node_id := _id_of(name)) is not None
        }
        for node_id in sorted(listed, key=self._turn_of):
            if (read := self._read(node_id, listed[node_id], now)) is not None:
                found[node_id] = read
        self._files = found
        newest_ms = max(
            (
                read.listed.written_ms
                for read in found.values()
                if read.node is not None and now - read.node.renewed_ms < self._gone_ms
            ),
            default=0,
        )
        self.others = tuple(
            read.node
            for node_id, read in sorted(found.items())
            if read.node is not None
            and read.node.node_id == node_id
            and read.node.token != self._token
            and self._lives(read, now, newest_ms)
        )
        return {node_id: read.tag for node_id, read in found.items()}

    def _turn_of(self, node_id: int) -> int:
        """Return when a file was read last, which is to be read again before those read later."""
        before = self._files.get(node_id)
        return 0 if before is None else before.turn

    def _read(self, node_id: int, listed: Listed, now: int) -> _Read | None:
        """Read a file, unless it is as it was, or renewed; None where it is gone."""
        before = self._files.get(node_id)
        if before is not None and listed.tag:
            if before.listed[:2] == listed[:2]:
                return before
            if (renewed := self._renewed(before, listed, now)) is not None:
                return renewed
        if listed.size > BYTES_MAX:
            return _Read(listed, None, listed.tag, 0)
        self._turns += 1
        try:
            content, tag = self._disk.read_tagged(self._path(node_id))
        except FileNotFoundError:
            return None
        try:
            return _Read(listed, msgspec.json.decode(content, type=Node), tag, self._turns)
        except (ValueError, RecursionError):
            return _Read(listed, None, tag, self._turns)  # not a server's, and its id is free

    def _renewed(self, before: _Read, listed: Listed, now: int) -> _Read | None:
        """Return what a file says that was rewritten with the same claims; None: read it."""
        node = before.node
        is_ours = node is None or (self._own is not None and node.node_id == self._own.node_id)
        if node is None or is_ours or listed.size != before.listed.size:
            return None
        if self._rereads > 0:
            self._rereads -= 1
            return None
        return _Read(listed, msgspec.structs.replace(node, renewed_ms=now), listed.tag, before.turn)

    def _lives(self, read: _Read, now: int, newest_ms: int) -> bool:
        """Whether a file was written lately: by the clock of the store, or since we look.

        Parameters
        ----------
        newest_ms
            When the newest file was written whose date says that its server lives, by the clock of
            the store; 0 where that is unknown: then its date counts, of a clock that may differ.
        """
        node, written_ms = read.node, read.listed.written_ms
        assert node is not None
        first = min(node.renewed_ms, now)
        if newest_ms and written_ms:
            first = now - max(0, newest_ms - written_ms)
        before, since = self._seen.get(node.node_id, (None, first))
        if before is not None and before != node:
            since = now
        self._seen[node.node_id] = node, since
        return now - since < self._gone_ms

    def _write(self, node_id: int, address: str, tag: str | None) -> None:
        began_ms, shards = monotonic_ms(), dict(self._shards())
        own = Node(
            *(node_id, address, self._epoch(), self._clock(), self._token),
            shards,
            dict(self._loads()),
            self._of,
            self._misses(),
        )
        if self._own is None or _claims(own) != _claims(self._own):
            self._change += 1
        content = _fill(msgspec.json.format(msgspec.json.encode(own)), self._change)
        self._disk.make_folder(self._folder)
        tag = self._disk.swap(self._path(node_id), content, tag)
        self._files[node_id] = _Read(Listed(len(content), tag), own, tag, self._turns)
        self._own, self._written_ms = own, began_ms

    def _path(self, node_id: int) -> str:
        return f"{self._folder}/{node_id}{SUFFIX}"

    def _hold_lock(self) -> AbstractContextManager[bool]:
        """Between reading and writing: two servers must not both find an id free."""
        path = os.path.join(self.root, "_locks", FOLDER)
        return hold_to_swap(self._disk, path, self._patience_s)


def _claims(node: Node) -> tuple[object, ...]:
    """Return what the others must learn at once where it changes."""
    return node.node_id, node.address, node.coordinator_epoch, node.shards, node.misses


def _fill(content: bytes, change: int) -> bytes:
    """Return what a file is to have, with a length that tells of a change."""
    length = -(-(len(content) + 1) // LENGTHS) * LENGTHS + change % LENGTHS
    return content.ljust(length - 1) + b"\n"


def _id_of(name: str) -> int | None:
    """Return the id of the node whose file has a name; None where it is no node's."""
    stem = name.removesuffix(SUFFIX)
    if not stem.isdecimal() or len(stem) > len(str(NODE_ID_MAX)):
        return None
    node_id = int(stem)
    return node_id if name == f"{node_id}{SUFFIX}" and node_id <= NODE_ID_MAX else None
