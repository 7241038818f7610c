"""Files of an object store, on obstore: each is an object, there whole or not at all.

Nothing needs a sync, and nothing has a mode: who may read a store, its bucket's policy says. What
is published without a rename or a lock is put on a condition: that no object is there, or that it
is still the one that was read. A put that was given up may land later: who writes the log sees to
that (fenced_table.py).
"""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PreconditionError,
)
from obstore.store import AzureStore, GCSStore, S3Store

from coordinator.config import ConfigError, StoreConfig
from coordinator.storage.tables.files import (
    Files,
    Listed,
    Source,
    StoreRefusedError,
    SwapLostError,
)
from coordinator.storage.tables.filesystem import make_data_file
from coordinator.storage.tables.store_errors import (
    NO_BUCKET_TEXT,
    NO_TAGS_TEXT,
    explain_credentials,
    explain_store_error,
    find_refusal,
)
from coordinator.storage.tables.store_options import (
    check_environment,
    place_options,
    reading_options,
    used_settings,
)
from coordinator.storage.tables.urls import split_container

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore

CUT, CUT_PAUSES_S = "response body", (0.1, 0.4)
"""What the error says of an answer that ended in its middle, and when it is asked again."""
SWAPS = 3
"""How often an object that only we write is replaced, before its store is refused."""
T = TypeVar("T")
_TRUE = ("1", "true", "yes", "on")


class ObjectFiles:
    """The objects of one bucket or container.

    Parameters
    ----------
    bucket
        Its URL, with which all paths begin.
    store
        The same for obstore.
    """

    has_locks = needs_sync = syncs_beside = False
    lands_late = lists_late = True
    trust_s = 2.0
    poll_s = 2.0

    def __init__(self, bucket: str, store: ObjectStore) -> None:
        self._bucket = bucket
        self._store: Any = store

    def options(self) -> dict[str, str] | None:
        """Return how delta-rs reaches it; the rest it reads from the environment."""
        return reading_options(urlsplit(self._bucket).scheme)

    def pause(self, seconds: float) -> None:
        """Wait so long."""
        time.sleep(seconds)

    def make_folder(self, path: str) -> None:
        """Do nothing: object stores have no folders."""

    def permit(self, path: str) -> None:
        """Do nothing: object stores have no modes."""

    def permit_all(self, folder: str) -> None:
        """Do nothing: object stores have no modes."""

    def exists(self, path: str) -> bool:
        """Whether an object is there; an error is not an absence."""
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def is_file(self, path: str) -> bool:
        """Whether an object is there."""
        return self.exists(path)

    def is_folder(self, path: str) -> bool:
        """Whether any object is below a path."""
        above = self._above(path)
        return _try_again(
            path, lambda: any(map(len, obstore.list(self._store, above, chunk_size=1)))
        )

    def size(self, path: str) -> int:
        """Return how many bytes an object has."""
        with _explaining(path):
            return int(obstore.head(self._store, self._key(path))["size"])

    def names(self, folder: str) -> list[str]:
        """List the objects in a folder, without those in its folders."""
        return sorted(self.listed(folder))

    def listed(self, folder: str) -> dict[str, Listed]:
        """List the objects in a folder, without those in its folders, with their tags."""
        above = self._above(folder)
        found = _try_again(folder, lambda: obstore.list_with_delimiter(self._store, above))
        return {
            str(one["path"]).rpartition("/")[2]: Listed(
                int(one["size"]), one["e_tag"] or "", int(one["last_modified"].timestamp() * 1000)
            )
            for one in found["objects"]
        }

    def names_below(self, folder: str) -> list[str]:
        """List the objects in a folder and in its folders, by their paths from there, sorted."""
        above = self._above(folder)
        found = _try_again(
            folder,
            lambda: [str(one["path"]) for some in obstore.list(self._store, above) for one in some],
        )
        return sorted(path.removeprefix(above) for path in found)

    def read(self, path: str) -> bytes:
        """Return what an object holds."""
        return self.read_tagged(path)[0]

    def read_tagged(self, path: str) -> tuple[bytes, str]:
        """Return what an object holds, and its tag for `swap`."""

        def read() -> tuple[bytes, Any]:
            found = obstore.get(self._store, self._key(path))
            return bytes(found.bytes()), found.meta

        content, meta = _try_again(path, read)
        return content, _tag_of(meta, path)

    def source(self, path: str) -> Source:
        """Return an object's bytes: one request, as data files are read whole."""
        return pa.BufferReader(self.read(path))

    def sync(self, path: str) -> None:
        """Do nothing: what a store has answered is durable."""

    def sync_above(self, path: str) -> None:
        """Do nothing: object stores have no folders."""

    def write_rows(self, path: str, rows: pa.Table) -> int:
        """Put a data file, with checksums, and return its size."""
        content = make_data_file(rows)
        self._put(path, content.to_pybytes(), "overwrite")
        return int(content.size)

    def replace(self, path: str, content: bytes, *, sync: bool = False) -> None:  # noqa: ARG002 - it is
        """Put an object, and replace one that is there."""
        self._put(path, content, "overwrite")

    def create(self, path: str, content: bytes) -> None:
        """Put an object where none is; no other writer may have the same content.

        A request whose answer was lost is sent again, and then finds its own object: the content
        tells. Where it finds none, the first request is still under way, and lands later or never.

        Raises
        ------
        FileExistsError
            Another one is there.
        OSError
            It is not known whether it landed, or lands later.
        """
        try:
            self._put(path, content, "create")
        except FileExistsError:
            resolve_create(self, path, content)

    def swap(self, path: str, content: bytes, tag: str | None) -> str:
        """Replace the object that has a tag, or put it where none is; return the new tag.

        No other writer may have the same content, as for `create`.

        Raises
        ------
        SwapLostError
            It has another tag by now.
        OSError
            It is not known whether it landed, or lands later.
        """
        try:
            made = self._put(path, content, "create" if tag is None else {"e_tag": tag})
        except FileExistsError:
            return self._resolve_swap(path, content, tag)
        except FileNotFoundError:
            raise SwapLostError(errno.EAGAIN, "removed by another", path) from None
        return _tag_of(made, path)

    def move(self, path: str, to: str) -> None:
        """Copy an object, then remove it."""
        _try_again(path, lambda: obstore.copy(self._store, self._key(path), self._key(to)))
        self.remove(path)

    def remove(self, path: str) -> None:
        """Remove an object; it may be gone already."""
        with suppress(FileNotFoundError):
            _try_again(path, lambda: obstore.delete(self._store, self._key(path)))

    def remove_all(self, paths: Iterable[str]) -> None:
        """Remove objects, in as few requests as the store has them."""
        found = list(paths)
        if found:
            keys = [self._key(path) for path in found]
            with suppress(FileNotFoundError):
                _try_again(found[0], lambda: obstore.delete(self._store, keys))

    def lock(
        self,
        path: str,
        patience_s: float,  # noqa: ARG002
        *,
        shared: bool = False,  # noqa: ARG002
    ) -> AbstractContextManager[bool]:
        """Refuse: objects cannot be locked."""
        raise OSError(errno.ENOLCK, "an object store has no locks", path)

    def check_conditions(self, root: str) -> None:
        """See by trying that the store keeps the conditions of puts; it may just pass them over.

        Raises
        ------
        ConfigError
            It does not: two coordinators could both write one version of the log.
        OSError
            It cannot be reached or written to.
        """
        path = f"{root}/_probe-{uuid.uuid4().hex}"
        missing = []
        try:
            self.create(path, b"1")
            with suppress(FileExistsError):
                self.create(path, b"2")
                missing.append("If-None-Match")
            tag = self._swap_surely(path)
            with suppress(SwapLostError):
                self.swap(path, b"4", tag)
                missing.append("If-Match")
        finally:
            with suppress(OSError):
                self.remove(path)
        if missing:
            raise ConfigError(
                f"{root} is on an object store that ignores {' and '.join(missing)} of a put: "
                f"two coordinators could own it at once; use a store with conditional puts, "
                f"or a folder"
            )

    def _swap_surely(self, path: str) -> str:
        """Replace an object that only we write, and return the tag that it had.

        One refusal may be for an earlier try of the same put; the next one has another content.

        Raises
        ------
        ConfigError
            The store refuses the tags that it gives.
        """
        for number in range(SWAPS):
            _, tag = self.read_tagged(path)
            try:
                self.swap(path, b"3" * (number + 1), tag)
            except (SwapLostError, _ConflictError):
                continue
            return tag
        raise ConfigError(
            f"{self._bucket} is on an object store that refuses its own tags (ETag), such as "
            f"{tag}: no put can replace the object that was read, so no lease can be renewed; use "
            f"a store whose tags are strong and stable, or a folder"
        )

    def _put(self, path: str, content: bytes, mode: Any) -> Any:  # noqa: ANN401 - obstore's
        def put() -> Any:  # noqa: ANN401 - obstore's
            # In one request: parts of an upload know no condition.
            return obstore.put(
                self._store, self._key(path), content, mode=mode, use_multipart=False
            )

        try:
            return _try_again(path, put)
        except FileNotFoundError:
            if not isinstance(mode, str):  # the object that has the tag
                raise
            raise StoreRefusedError(
                errno.EACCES, f"404 Not Found: {NO_BUCKET_TEXT}", path
            ) from None

    def _resolve_swap(self, path: str, content: bytes, tag: str | None) -> str:
        """Return the tag of our object, which a refused request may have put before."""
        try:
            there, found = self.read_tagged(path)
        except FileNotFoundError:
            if tag is None:
                raise _unknown(path) from None
            raise SwapLostError(errno.EAGAIN, "removed by another", path) from None
        if there == content:
            return found
        if found == tag:  # it is unchanged: the refusal was for our own first request
            raise _unknown(path)
        raise SwapLostError(errno.EAGAIN, "written by another", path)

    def _key(self, path: str) -> str:
        assert f"{path}/".startswith(f"{self._bucket}/"), f"{path} is not in {self._bucket}"
        return path[len(self._bucket) + 1 :]

    def _above(self, folder: str) -> str:
        """Return how the keys in a folder begin; the bucket itself is one, too."""
        key = self._key(folder)
        return f"{key}/" if key else ""


def resolve_create(files: Files, path: str, content: bytes) -> None:
    """Find out what became of a put that was refused because an object is there.

    Raises
    ------
    FileExistsError
        It is another one.
    OSError
        None is there: an earlier try of the same put conflicted with it, and may land later.
    """
    try:
        there = files.read(path)
    except FileNotFoundError:
        raise _unknown(path) from None
    if there != content:
        raise FileExistsError(errno.EEXIST, "another object exists there", path)


class _ConflictError(OSError):
    """A put was refused for what is not there."""


def _unknown(path: str) -> OSError:
    return _ConflictError(
        errno.EAGAIN,
        "the put conflicts, but no object exists there: it may arrive later, or the store refuses "
        "its own tags (ETag)",
        path,
    )


def _tag_of(meta: Any, path: str) -> str:  # noqa: ANN401 - obstore's dictionaries
    if meta["e_tag"] is None:
        raise StoreRefusedError(errno.ENOTSUP, NO_TAGS_TEXT, path)
    return str(meta["e_tag"])


def _try_again(path: str, ask: Callable[[], T]) -> T:
    """Ask, and again where an answer ended in its middle: obstore tries only requests again.

    A put that was done finds its own object then, as one whose answer was lost.
    """
    for pause_s in CUT_PAUSES_S:
        try:
            with _explaining(path):
                return ask()
        except OSError as error:
            if CUT not in str(error):
                raise
        time.sleep(pause_s)
    with _explaining(path):
        return ask()


@contextmanager
def _explaining(path: str) -> Iterator[None]:
    """Raise a store's error as an OSError of one line, without keys, signatures and bodies."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
    except (AlreadyExistsError, PreconditionError):
        raise FileExistsError(errno.EEXIST, "another object exists there", path) from None
    except (BaseError, NotImplementedError) as error:
        why = explain_store_error(error)
        raise find_refusal(path, why) or OSError(errno.EIO, why, path) from None


def object_files(bucket: str) -> ObjectFiles:
    """Return the objects of a bucket or container; a process has one client for it."""
    return _object_files(bucket, used_settings())


@cache
def _object_files(bucket: str, used: StoreConfig) -> ObjectFiles:
    scheme, (container, account) = urlsplit(bucket).scheme, split_container(bucket)
    check_environment(scheme)
    client: ClientConfig = {
        "timeout": f"{used.request_timeout_ms}ms",
        "connect_timeout": f"{used.connect_timeout_ms}ms",
    }
    kind = {"s3": "AWS", "gs": "GOOGLE"}.get(scheme, "AZURE_STORAGE")
    if any(os.environ.get(f"{one}_ALLOW_HTTP", "").lower() in _TRUE for one in (kind, "AZURE")):
        client["allow_http"] = True
    retry: Any = {
        "max_retries": used.retries,
        "retry_timeout": timedelta(milliseconds=used.retry_timeout_ms),
    }
    made: ObjectStore
    try:
        if scheme == "s3":
            place: Any = dict(place_options(scheme))
            if place.pop("aws_allow_http", "") == "true":
                client["allow_http"] = True
            made = S3Store(container, client_options=client, retry_config=retry, config=place)
        elif scheme == "gs":
            made = GCSStore(container, client_options=client, retry_config=retry)
        else:
            named: dict[str, Any] = {"account_name": account} if account else {}
            made = AzureStore(container, client_options=client, retry_config=retry, **named)
    except (BaseError, ValueError) as error:
        why = f"{explain_store_error(error)}: credentials {explain_credentials(scheme)}"
        raise ConfigError(f"{bucket} cannot be reached: {why}") from None
    return ObjectFiles(bucket, made)
