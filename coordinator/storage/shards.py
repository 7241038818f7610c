"""The shards of a store: which there are, which one has a group, and where each of them is.

A store of shards has a file `_shards.json`, written once. Each shard is a store of its own below
it, as is the root, which has the group of the nodes. A store without that file is one shard.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import Literal
from uuid import uuid4

import msgspec

from coordinator.config import Config, ConfigError, folder_mode
from coordinator.core.java_hash import place_of
from coordinator.storage.delta_log import make_root
from coordinator.storage.store_marks import refuse_incomplete
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.files import Files, SwapLostError, hold_to_swap
from coordinator.storage.tables.newest_version import (
    FORMAT_OF_SHARDS,
    FORMAT_PROPERTY,
    RESTORE_FILE,
)
from coordinator.storage.tables.recovery import commit_file, log_folder
from coordinator.storage.tables.store_files import MEMORY, ask_each, files_at, refuse_silence
from coordinator.storage.tables.store_root import find_root

FILE, FOLDER, ROOT = "_shards.json", "shards", "root"
NODES, SHARDS_TOPIC = "muster.nodes", "muster.shards"
"""The group whose members are the nodes, and the topic whose partitions are the shards."""
SHARDS_MOST = 1_024
_PART = re.compile(rf"(?P<whole>.+)/(?:{FOLDER}/(?P<shard>\d{{4}})|{ROOT})", re.DOTALL)
_WHOLES: set[str] = set()
"""Stores that were seen to have shards, which never changes."""
COUNT_PROPERTY = "muster.shards"
LOCK_S = 10.0
SCHEMA = (
    '{"type":"struct","fields":[{"name":"none","type":"string","nullable":true,"metadata":{}}]}'
)
NEEDS_ONE = (
    "needs a store of one shard, and {} has several: leave it out (guide: several nodes on one "
    "store)"
)


class Shards(msgspec.Struct, frozen=True):
    """What `_shards.json` says.

    Attributes
    ----------
    count
        How many there are; it never changes.
    hash
        By what a group's shard is found: "java", as Kafka finds the partition of its topic.
    """

    count: int
    hash: Literal["java"] = "java"
    format: Literal[1] = 1

    def shard_of(self, group_id: str) -> int:
        """Return the number of the shard that has a group."""
        return place_of(group_id, self.count)


def shard_at(root: str, number: int) -> str:
    """Return where a shard of a store is."""
    return f"{root}/{FOLDER}/{number:04d}"


def root_at(root: str) -> str:
    """Return where the store is that has the group of the nodes."""
    return f"{root}/{ROOT}"


def whole_of(store: str | os.PathLike[str]) -> tuple[str, str] | None:
    """Return the store of shards that a store is part of, and the name of the part there.

    A part is a shard, "0004", or "root"; None is a store of its own.

    Raises
    ------
    ConfigError
        As `read_shards`.
    """
    found = _PART.fullmatch(find_root(store))
    if found is None:
        return None
    whole = found["whole"]
    if whole not in _WHOLES:
        if read_shards(whole) is None:
            return None
        _WHOLES.add(whole)
    return whole, found["shard"] or ROOT


def shard_number(store: str | os.PathLike[str]) -> int | None:
    """Return which shard of a store of shards a store is; None for the root, and any other store.

    Raises
    ------
    ConfigError
        As `read_shards`.
    """
    whole = whole_of(store)
    return None if whole is None or whole[1] == ROOT else int(whole[1])


def read_shards(store: str | os.PathLike[str]) -> Shards | None:
    """Return the shards of a store; None where it is one.

    Raises
    ------
    ConfigError
        Its file says something that this version does not know.
    """
    root = find_root(store)
    if root.startswith(f"{MEMORY}:"):
        return None
    path = f"{root}/{FILE}"
    try:
        content = files_at(root).read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse_silence(path, error)
        raise ConfigError(f"{path} cannot be read: {error}: restore it, or the store") from None
    try:
        found = msgspec.json.decode(content, type=Shards)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"{path} is damaged, or of a newer version: {error}: restore it, or the store"
        ) from None
    check_count(found.count, path)
    return found


def read_whole(store: str | os.PathLike[str]) -> Shards | None:
    """Return the shards of a store that is about to be read; None where it is one.

    Raises
    ------
    ConfigError
        It is a copy that has only some of its shards yet; else as `read_shards`.
    """
    found = read_shards(store)
    if found is not None:
        refuse_incomplete(find_root(store))
    return found


def store_of(store: str | os.PathLike[str], group_id: str) -> str:
    """Return the store that has a group's log: of a store of shards, a part of it.

    Raises
    ------
    ConfigError
        As `read_whole`.
    """
    shards = read_whole(store)
    if shards is None:
        return os.fspath(store)
    return part_of(find_root(store), shards, group_id)


def part_of(root: str, shards: Shards, group_id: str) -> str:
    """Return the part of a store of shards that has a group's log: its shard, or the root."""
    return root_at(root) if group_id == NODES else shard_at(root, shards.shard_of(group_id))


def stores_of(store: str | os.PathLike[str]) -> list[str]:
    """Return the stores that a store is made of: its shards that have a log, or itself.

    Raises
    ------
    ConfigError
        As `read_whole`.
    """
    files, own, places = files_at(find_root(store)), os.fspath(store), places_of(store)
    if places == [own]:
        return places
    has_log = ask_each(lambda one: files.is_folder(log_folder(f"{one}/log")), places)
    return [one for one, found in zip(places, has_log, strict=True) if found]


def places_of(store: str | os.PathLike[str]) -> list[str]:
    """Return the same with the shards that have no log yet.

    Raises
    ------
    ConfigError
        As `read_whole`.
    """
    shards = read_whole(store)
    if shards is None:
        return [os.fspath(store)]
    root = find_root(store)
    return [shard_at(root, number) for number in range(shards.count)]


def refuse_shards(store: str | os.PathLike[str], remedy: str | None = None) -> None:
    """Refuse a store of shards where a single log is meant.

    Parameters
    ----------
    remedy
        What to do instead; None: serve the store, or name one of its shards.

    Raises
    ------
    ConfigError
        It is one.
    """
    shards = read_shards(store)
    if shards is not None:
        remedy = remedy or (
            f"serve it with `muster serve --store {store}`, or name one of them, such as "
            f"{shard_at(find_root(store), 0)}"
        )
        raise ConfigError(f"{store} is a store of {shards.count} shards: {remedy}")


def make_shards(store: str, count: int, config: Config) -> Shards:
    """Make a store of so many shards, or return those of one that has as many.

    Raises
    ------
    ConfigError
        The store has another number of shards, which is fixed, or has groups in one.
    """
    check_count(count, "--shards")
    found = read_shards(store) or write_shards(make_root(store), Shards(count), config)
    refuse_count(store, found, count)
    return found


def refuse_count(store: str, found: Shards | None, wanted: int) -> None:
    """Refuse a number of shards that a store was not made with.

    Raises
    ------
    ConfigError
        It has another, permanently.
    """
    if found is not None and found.count != wanted:
        raise ConfigError(
            f"--shards is {wanted}, but {store} has {found.count}, permanently: leave the option "
            "out"
        )


def write_shards(root: str, wanted: Shards, config: Config) -> Shards:
    """Write the file of a store that has none; return what is there, where another was faster.

    Raises
    ------
    ConfigError
        The store is in memory, or has groups in one shard.
    """
    if root.startswith(f"{MEMORY}:"):
        raise ConfigError(f"--store {root} is in memory: shards need a folder or a bucket")
    disk = filesystem_of(root, folder_mode(config.log))
    if disk.is_folder(log_folder(f"{root}/log")):
        if disk.is_folder(f"{root}/{ROOT}"):
            raise ConfigError(f"{root} has shards, but its file {FILE} is gone: {RESTORE_FILE}")
        raise ConfigError(
            f"{root} is a store of one shard, permanently: give --shards with a new store"
        )
    disk.make_folder(root)
    disk.check_conditions(root)
    content = msgspec.json.format(msgspec.json.encode(wanted)) + b"\n"
    with hold_to_swap(disk, f"{root}/_locks/{FILE}", LOCK_S):
        if (found := read_shards(root)) is None:
            with suppress(SwapLostError):  # another node was faster
                disk.swap(f"{root}/{FILE}", content, None)
            found = read_shards(root)
        if found is not None:
            _keep_out(disk, root, found.count)
    if found is None:
        raise ConfigError(f"{root}/{FILE} was removed as soon as it was written: start again")
    return found


def refuse_other_count(root: str, shards: Shards) -> None:
    """Refuse a store whose file says another number of shards than it was made with.

    Raises
    ------
    ConfigError
        It does: a group would be in several shards.
    OSError
        The store cannot be read.
    """
    try:
        entry = files_at(root).read(commit_file(f"{root}/log", 0))
        lines = map(msgspec.json.decode, entry.splitlines())
        made = next(one["metaData"]["configuration"] for one in lines if "metaData" in one)
    except (FileNotFoundError, ValueError, LookupError, TypeError, StopIteration):
        return  # of an older version
    if (count := made.get(COUNT_PROPERTY, str(shards.count))) != str(shards.count):
        raise ConfigError(
            f"{root}/{FILE} says {shards.count} shards, and the store was made with {count}, which "
            "never changes: restore the file as it was"
        )


def _keep_out(disk: Files, root: str, count: int) -> None:
    """Put a log where that of a store of one shard is, which no version opens; it keeps the number.

    Muster 0.2 knows no shards, and would serve the store as a new one. So would any version if
    `_shards.json` were lost.
    """
    actions = (
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": str(uuid4()),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": SCHEMA,
                "partitionColumns": [],
                "configuration": {
                    FORMAT_PROPERTY: str(FORMAT_OF_SHARDS),
                    COUNT_PROPERTY: str(count),
                },
            }
        },
    )
    content = b"\n".join(map(msgspec.json.encode, actions)) + b"\n"
    disk.make_folder(log_folder(f"{root}/log"))
    with suppress(SwapLostError):
        disk.swap(commit_file(f"{root}/log", 0), content, None)


def check_count(count: int, name: str, least: int = 2) -> None:
    """Refuse a number of shards that no store has, or that is less than the least.

    Raises
    ------
    ConfigError
        It is one.
    """
    if not least <= count <= SHARDS_MOST:
        raise ConfigError(f"{name} is {count}: give {least} to {SHARDS_MOST}")


def refuse_with_shards(config: Config, store: str) -> None:
    """Refuse settings that a store of shards does not have yet.

    Raises
    ------
    ConfigError
        One of them is set.
    """
    if config.push.workers:
        raise ConfigError(f"--push (push.workers) {NEEDS_ONE.format(store)}")
