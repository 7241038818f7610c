"""Where a store is: a folder on this machine, or the URL of one in an object store."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from deltalake import DeltaTable

from assignors.errors import SpecError
from coordinator.config import ConfigError
from coordinator.errors.texts import one_line
from coordinator.storage.record_log import CommitFailed, Unreachable
from coordinator.storage.tables.files import Files, Source, StoreRefusedError
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.store_errors import short_reason
from coordinator.storage.tables.urls import hide_secret, path_of

MEMORY = "memory"
SCHEMES = {
    "s3": "s3", "s3a": "s3",
    "gs": "gs", "gcs": "gs",
    "az": "az", "azure": "az", "abfs": "abfss", "abfss": "abfss",
    "file": "file",
    MEMORY: MEMORY,
}  # fmt: skip
"""Schemes of stores, and what each is called here."""
KNOWN = "s3://, gs://, az://, abfss://, file:// or memory://"
ELSEWHERE = re.compile(r"%[0-9A-Fa-f]{2}|[\x00-\x1f\x7f\\]")
"""What delta-rs decodes in a path, or refuses."""
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""As `pathlib` writes it: with one slash."""
_PLACE = re.compile(r"[\w.$-]+(@[\w.-]+)?", re.ASCII)
"""What names a bucket, or a container and its account: of what any store allows."""
_LOCAL = Filesystem()
AT_ONCE = 16
"""How much of a bucket is asked for at once: each answer takes 10 to 100 ms."""
T = TypeVar("T")


def is_remote(store: str) -> bool:
    """Whether the root of a store, or a path in one, is a URL and no path of this machine."""
    return "://" in store


def root_of(store: str | os.PathLike[str]) -> str:
    """Return the root of a store, with which paths in it begin: an absolute path, or a URL.

    `pathlib` makes `s3:/bucket` of a URL; that is taken for what it was.

    Raises
    ------
    ConfigError
        It is a URL that names no store.
    """
    text = os.fspath(store)
    found = _URL.match(text)
    if found is None:
        return os.path.abspath(text)
    scheme = SCHEMES.get(found[1].lower())
    if scheme is None:
        raise ConfigError(
            f"the store {hide_secret(text)} has an unknown scheme: use {KNOWN}; for a local "
            "folder of that name write it with ./ before it"
        )
    if scheme == "file":
        return _root_of_file(text)
    place, _, inside = text[found.end() :].removeprefix("/").rstrip("/").partition("/")
    if not place:
        raise ConfigError(f"the store's URL names no bucket: give {scheme}://BUCKET/FOLDER")
    if not inside.isprintable():
        raise ConfigError(
            f"the store {hide_secret(text)!r} has a control character in its name: give another"
        )
    steps = {"", ".", ".."} & set(inside.split("/")[:-1])
    if not _PLACE.fullmatch(place) or set(inside) & set("?#") or steps:
        raise ConfigError(
            f"the store {hide_secret(text)} is not a plain {scheme}://BUCKET/FOLDER: it has a "
            "password, a query, an empty name, a step (. or ..), or a bucket of more than ASCII "
            "letters, digits and . _ -; credentials are given by the environment"
        )
    return f"{scheme}://{place}/{inside}".rstrip("/")


def _root_of_file(url: str) -> str:
    try:
        return os.path.abspath(path_of(url, "the store"))
    except SpecError as error:
        raise ConfigError(str(error)) from None


def files_at(path: str) -> Files:
    """Return the calls on files for a path, to read there; `filesystem_of` gives files modes."""
    if not is_remote(path):
        return _LOCAL
    if path.startswith(f"{MEMORY}:"):
        raise ConfigError(f"{path} is in a coordinator's memory: only it can read it")
    # Imported here because most stores do without it.
    from coordinator.storage.tables.object_files import object_files  # noqa: PLC0415

    return object_files("/".join(path.split("/", 3)[:3]))


def ask_each(ask: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    """Return the answer of each path: of several at once where they are in a bucket."""
    if len(paths) < 2 or not is_remote(paths[0]):  # noqa: PLR2004 - one alone has no company
        return [ask(one) for one in paths]
    with ThreadPoolExecutor(min(AT_ONCE, len(paths)), "muster-ask") as pool:
        return list(pool.map(ask, paths))


def source_of(path: str) -> Source:
    """Return what pyarrow reads a file from."""
    return files_at(path).source(path)


def open_delta(path: str, version: int | None = None) -> DeltaTable:
    """Open a Delta table, at a version or its newest; delta-rs's errors are raised as they are."""
    return DeltaTable(path, version=version, storage_options=files_at(path).options())


def failed_to_answer(path: str, error: Exception) -> bool:
    """Whether an object store did not bring a file, which says nothing of what is in it.

    A file that is gone is an answer; so is one that pyarrow cannot read: its errors have no number.
    """
    known = isinstance(error, OSError) and error.errno not in {None, errno.ENOENT}
    return known and is_remote(path)


def refuse_silence(path: str, error: Exception) -> None:
    """Raise the error of an object store that did not bring a file; return after any other.

    Raises
    ------
    Unreachable
        It does not answer now.
    StoreRefusedError
        It does not let us read it.
    """
    if isinstance(error, StoreRefusedError):
        raise error
    if failed_to_answer(path, error):
        why = getattr(error, "strerror", None) or one_line(error)
        raise Unreachable(f"{path} cannot be read now: {why}") from None


def explain_unwritten(
    folder: str, error: Exception | None, reason: str
) -> CommitFailed | StoreRefusedError:
    """Return the error for what was not written; of an object store, whether time may mend it."""
    if isinstance(error, StoreRefusedError):
        return error
    silent = is_remote(folder) and isinstance(error, OSError)
    return (Unreachable if silent else CommitFailed)(f"nothing was written to {folder}: {reason}")


def explain_silence(error: Exception) -> str | None:
    """Return in one line what an object store did not bring or take now; None of another error."""
    if isinstance(error, Unreachable):
        return str(error)
    if isinstance(error, OSError) and failed_to_answer(str(error.filename), error):
        return f"{error.filename} cannot be reached now: {error.strerror}"
    return None


def explain(path: str, error: Exception) -> str:
    """Return in one line why something failed; of an object store, without what is secret."""
    if not is_remote(path):
        return one_line(error)
    if isinstance(error, OSError) and error.errno is not None:  # ours: delta-rs's have no number
        return str(error.strerror)
    return short_reason(error)
