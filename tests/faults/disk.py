"""The store's disk fills up, or becomes read-only, under load; and is well again."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .crowd import Broken, Crowd
from .process import PATIENCE_S, Gone, Node
from .report import Outcome
from .shadow import Shadow

GROUPS = {"billing": 4, "search": 2}
MIB = 64
PAGE, PIECE_ITEMS = 4096, 1 << 20
FULL, READ_ONLY = "No space left on device", "Read-only file system"
ROOM_PAGES = 8
"""A commit of a few rows needs about four pages."""


class NoDisk(RuntimeError):  # noqa: N818 - what is missing
    """No small disk can be made here."""


@contextmanager
def small_disk(folder: Path, mib: int = MIB) -> Iterator[Path]:
    """Mount a small disk in memory."""
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        raise NoDisk("only root may mount a small disk: run this as root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def full(store: Path, seed: int, times: int) -> Outcome:
    """Fill the disk but for a few pages."""
    chance = random.Random(seed)
    with small_disk(store) as disk:

        def begin() -> None:
            fill(disk, chance.randrange(ROOM_PAGES) * PAGE)

        def persist() -> None:
            fill(disk, 0)  # what the dead one had open and removed is room again

        return _trouble(disk / "store", chance, times, begin, persist, lambda: empty(disk), FULL)


def read_only(store: Path, seed: int, times: int) -> Outcome:
    """Mount the disk read-only, as a kernel does that has seen an error on it."""
    with small_disk(store) as disk:
        return _trouble(
            disk / "store",
            random.Random(seed),
            times,
            lambda: remount(disk, "ro"),
            lambda: None,
            lambda: remount(disk, "rw"),
            READ_ONLY,
        )


def fill(disk: Path, room: int) -> None:
    """Leave so many bytes of room, or as few as others let us."""
    with open(disk / "ballast", "wb", buffering=0) as file, suppress(OSError):
        while (free := shutil.disk_usage(disk).free) > room:
            file.write(bytes(min(free - room, PIECE_ITEMS)))


def empty(disk: Path) -> None:
    """Make room again."""
    (disk / "ballast").unlink()


def remount(disk: Path, how: str) -> None:
    """Make a disk read-only ("ro"), or not ("rw"); tried again while a file is being written."""
    command = ["mount", "-o", f"remount,{how}", str(disk)]
    end = time.monotonic() + PATIENCE_S
    while subprocess.run(command, check=False, capture_output=True).returncode:
        if time.monotonic() > end:
            raise NoDisk(f"{disk} cannot be mounted {how}")


def _trouble(
    store: Path,
    chance: random.Random,
    times: int,
    begin: Callable[[], None],
    persist: Callable[[], None],
    end: Callable[[], None],
    reason: str,
) -> Outcome:
    """Let the trouble come and go under a living coordinator, and under one that opens."""
    crowd = Crowd(GROUPS, chance)
    node = Node(store)
    node.wait_serves()
    for _ in range(times):
        crowd.live(node, 0.3)
        begin()
        _refused(crowd, node)
        _named(node.said, store, reason)
        if chance.random() < 0.5:
            node.kill()
            crowd.take(node)
            crowd.lose()
            persist()
            _opens_not(store, reason)
            end()
            node = Node(store)
            node.wait_serves()
        else:
            end()
        _goes_on(crowd, node)
    crowd.check(node)
    node.close()
    shadow = Shadow(store)
    shadow.follow()
    return Outcome(
        times,
        f"{crowd.acknowledged:,} answers acknowledged, none lost, {crowd.refused:,} refused with "
        "a retriable error; the log of the coordinator and the error of one that opens name the "
        "store; service went on by itself",
    )


def _refused(crowd: Crowd, node: Node) -> None:
    """Live until the trouble is felt, and a little longer."""
    refused, end = crowd.refused, time.monotonic() + PATIENCE_S
    while crowd.refused == refused:
        crowd.live(node, 0.05)
        if time.monotonic() > end:
            raise Broken("no request is refused")
    crowd.live(node, 0.3)


def _named(said: list[str], store: Path, reason: str) -> None:
    if not any(str(store) in text and reason in text for text in said):
        raise Broken(f"nothing says {reason!r} of {store}: {said[-5:]}")
    said.clear()


def _opens_not(store: Path, reason: str) -> None:
    """A coordinator that cannot write its lease, or its claim, does not start."""
    node = Node(store, takeover="force")
    try:
        node.wait_serves()
    except Gone as error:
        _named([str(error)], store, reason)
    else:
        raise Broken(f"{store} is opened: {reason}")


def _goes_on(crowd: Crowd, node: Node) -> None:
    """Everybody is served again, and nothing is missing."""
    acknowledged, end = crowd.acknowledged, time.monotonic() + PATIENCE_S
    while crowd.acknowledged < acknowledged + len(crowd.members):
        crowd.live(node, 0.05)
        if time.monotonic() > end:
            raise Broken(f"service does not go on: {node.said[-5:]}")
