"""What other processes ask of a store's coordinator: a file for each request, in `inbox/`.

The coordinator does what is asked, and takes the file away; its answer is in the log, in a record
of kind `proposal` that has the request's id. Who may write to the store may put anything there.
A file that is not a request, or cannot be dealt with, is set aside with the reason, so that it does
not hold up the others.

All parts of a store of shards have one inbox, that of the whole store, where the names of requests
begin with that of the part: a node looks there once for all of them.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from assignors import SpecError
from coordinator.core.events import REQUEST, DecidePlan
from coordinator.storage.shards import whole_of
from coordinator.storage.store_modes import filesystem_of
from coordinator.storage.tables.store_files import root_of

FOLDER = "inbox"
PROPOSALS = "proposals"
OLD_FOLDERS = {"requests": ".request", "plans": ".json", PROPOSALS: ".json"}
"""Of versions before 0.2, with the endings of their files."""
BYTES_MAX = 1 << 28
NAME_BYTES_KEPT = 150
"""Of a file that is set aside: its new name is longer than the old one."""
logger = logging.getLogger("muster.coordinator")


class Compact(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field=REQUEST, tag="compact"
):
    """Pack the log: `muster compact` waits until the request is gone."""

    request_id: str


Request: TypeAlias = DecidePlan | Compact


class RequestError(ValueError):
    """A file is not a request."""


class _Proposal(msgspec.Struct):
    """Of a target that a job of a version before 0.2 proposed."""

    group_id: str


class Inbox:
    """The requests to a store's coordinator; each is one file, there whole or not at all.

    Parameters
    ----------
    folder
        The inbox, or the folder of an older version.
    bytes_max
        The most that a request may have.
    """

    def __init__(
        self, store: str | os.PathLike[str], folder: str = FOLDER, bytes_max: int = BYTES_MAX
    ) -> None:
        self.folder = folder
        self._bytes_max = bytes_max
        whole = whole_of(store) if folder == FOLDER else None
        root, part = whole or (root_of(store), "")
        self._prefix = f"{part}-" if part else ""
        self._path = os.path.join(root, folder)
        self._aside = os.path.join(root, "_set_aside")
        self._ending = OLD_FOLDERS.get(folder, ".json")
        self._disk = filesystem_of(root)

    def put(self, request: Request) -> None:
        """Ask for something; the request is durable when this returns.

        Raises
        ------
        SpecError
            It is larger than a coordinator reads: a plan of very many moves.
        """
        content = msgspec.json.encode(request)
        if len(content) > self._bytes_max:
            plan = request.plan if isinstance(request, DecidePlan) else None
            moves = 0 if plan is None else len(plan.moves)
            raise SpecError(
                f"the request has {len(content):,} bytes, {moves:,} moves of a plan: a coordinator "
                f"reads at most {self._bytes_max:,} bytes; plan fewer moves with "
                "consumer.assignor.max.moves, or let the coordinator compute the target"
            )
        self._disk.make_folder(self._path)
        self._disk.replace(self._file(request.request_id), content, sync=True)

    def waiting(self) -> list[str]:
        """Return the ids of the requests that are still there, in order."""
        found = (file.removesuffix(self._ending) for file in self._files() if self._is_one(file))
        return [name.removeprefix(self._prefix) for name in found]

    def read(self, request_id: str) -> Request:
        """Return a request.

        Raises
        ------
        RequestError
            It cannot be read, is too large, or has another id.
        """
        path = self._file(request_id)
        if (size := self._disk.size(path)) > self._bytes_max:
            raise RequestError(f"it has {size:,} bytes, a request has at most {self._bytes_max:,}")
        try:
            found = self._parse(request_id, self._disk.read(path))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RequestError(f"it cannot be read: {error}") from None
        if found.request_id != request_id:
            raise RequestError(f"it is named {request_id!r}, and says {found.request_id!r}")
        return found

    def _parse(self, request_id: str, content: bytes) -> Request:
        if self.folder == "requests":
            if not request_id.startswith("compact-"):
                raise RequestError("it contains no request that this version knows")
            return Compact(request_id)
        if self.folder == "plans":
            return msgspec.json.decode(content, type=DecidePlan)
        if self.folder == PROPOSALS:
            group_id = msgspec.json.decode(content, type=_Proposal).group_id
            return DecidePlan("propose", group_id, request_id, request_id=request_id)
        found: Request = msgspec.json.decode(content, type=Request)
        return found

    def remove(self, request_id: str) -> None:
        """End a request: it is answered, or no longer waited for; it may be gone already."""
        self._disk.remove(self._file(request_id))

    def set_aside(self, request_id: str, reason: str) -> None:
        """Move a request to `_set_aside`, with the reason in a file beside it."""
        self._move(self._name(request_id), reason)

    def set_strangers_aside(self) -> None:
        """Set entries aside that are named like requests, but are not regular files."""
        if self._disk.poll_s:
            return
        for file in self._files():
            if not self._is_one(file):
                self._move(file, "it is not a regular file, or its name is not text")

    def _move(self, file: str, reason: str) -> None:
        """Move a file; one that cannot be moved stays, and does not hold up the others."""
        kept = os.fsdecode(os.fsencode(file)[:NAME_BYTES_KEPT])
        aside = os.path.join(self._aside, f"{self.folder}-{uuid.uuid4().hex[:8]}-{kept}")
        try:
            self._disk.move(os.path.join(self._path, file), aside)
            self._disk.replace(f"{aside}.reason", reason.encode(errors="replace") + b"\n")
        except FileNotFoundError:
            return  # taken away meanwhile
        except OSError as error:
            logger.warning("%a in %s cannot be set aside: %s", file, self._path, error)
        else:
            logger.warning("%a in %s is set aside as %a: %s", file, self._path, aside, reason)

    def _files(self) -> list[str]:
        names = self._disk.names(self._path)
        return [n for n in names if n.startswith(self._prefix) and n.endswith(self._ending)]

    def _is_one(self, file: str) -> bool:
        return file.isprintable() and self._disk.is_file(os.path.join(self._path, file))

    def _file(self, request_id: str) -> str:
        return os.path.join(self._path, self._name(request_id))

    def _name(self, request_id: str) -> str:
        return self._prefix + request_id + self._ending


def old_inboxes(store: str | os.PathLike[str]) -> Iterator[Inbox]:
    """Yield the folders in which versions before 0.2, which had no shards, left requests."""
    for folder in OLD_FOLDERS if whole_of(store) is None else ():
        yield Inbox(store, folder)
