"""Read Parquet, Delta and JSON without a JVM, and replace a table in one commit.

A Delta table has one writer process at a time, which holds `<folder>/_locks/<table>`.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, QueryBuilder, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs

from assignors import SpecError
from coordinator.errors.texts import gist
from coordinator.storage.tables.store_errors import check_table, check_url, unreachable_error
from coordinator.storage.tables.store_options import reading_options
from coordinator.storage.tables.urls import is_file_url, is_url, path_of, split_version

RUN_VERSION = 1
"""A run id is a Delta application id; all of a run is its transaction number 1."""


FEATURES_READ = frozenset(
    {"columnMapping", "deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Reader features of Delta tables that are read as Spark reads them; tests compare both."""
FEATURES_WRITTEN = frozenset(
    {
        "appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors", "generatedColumns",
        "invariants", "timestampNtz", "v2Checkpoint",
    }
)  # fmt: skip
"""Features of tables that delta-rs replaces, by what it says when it is asked to."""
_CHECKED = "failed validation check"
"""What delta-rs says of rows that a table's CHECK refuses."""
MAPPING_MODE = "delta.columnMapping.mode"


class UnreadableTableError(SpecError):
    """A Delta table uses a feature that only other engines read."""


class BusyError(RuntimeError):
    """Another process is at work here: nothing was done, try again later."""


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table as named on the command line: PATH, or PATH@VERSION of a Delta table.

    Attributes
    ----------
    path
        Of a Delta table's folder, or of a Parquet file or folder; or a Delta table's URL.
    version
        None for the newest.
    delta
        Whether it is a Delta table.
    """

    path: str
    version: int | None
    delta: bool

    @classmethod
    def of(cls, name: str, what: str) -> TableRef:
        """Look at what is there.

        Raises
        ------
        SpecError
            Nothing is there or can be reached, it is not a table, or has no such version.
        """
        if is_url(name):
            return cls._of_url(name, what)
        path, version = name, None
        head, at, tail = name.rpartition("@")
        if at and not os.path.exists(name):
            if not tail.isdigit():
                raise SpecError(f"{what} {name!r}: {tail!r} is not a version; give PATH@NUMBER")
            path, version = head, int(tail)
        if not os.path.isfile(path) and DeltaTable.is_deltatable(path):
            return cls(path, version, delta=True)
        if not os.path.exists(path):
            raise SpecError(f"{what} {path!r} not found: give a Delta table or Parquet")
        if version is not None:
            raise SpecError(f"{what} {path!r} is not a Delta table, so it has no version {version}")
        if not _is_parquet(Path(path)):
            raise SpecError(f"{what} {path!r} is neither a Delta table nor Parquet")
        return cls(path, None, delta=False)

    @classmethod
    def _of_url(cls, name: str, what: str) -> TableRef:
        url, version = split_version(name)
        check_url(url, what)
        if is_file_url(url):
            path = path_of(url, what)
            return cls.of(path if version is None else f"{path}@{version}", what)
        check_table(url, version, what)
        return cls(url, version, delta=True)

    def pin(self) -> TableRef:
        """Return the same table at the version it has now."""
        return TableRef(self.path, self.open().version(), delta=True) if self.delta else self

    def some_file(self) -> str:
        """Return one of the table's files: what sees it, sees the table."""
        if is_url(self.path) or os.path.isfile(self.path):
            return self.path
        inside = os.path.join(self.path, "_delta_log") if self.delta else self.path
        names = sorted(n for n in os.listdir(inside) if n.endswith((".json", ".parquet")))
        return os.path.join(inside, names[-1]) if names else inside

    def read(self, what: str) -> pa.Table:
        """Read the table into memory.

        Raises
        ------
        SpecError
            It cannot be read, or the version does not exist.
        """
        try:
            if not self.delta:
                return pq.read_table(self.path)
            return read_delta(self.open())
        except UnreadableTableError as error:
            raise SpecError(f"{what} {self}: {error}: use --engine spark") from None
        except (DeltaError, pa.ArrowException, OSError) as error:
            if is_url(self.path):
                raise unreachable_error(self.path, what, error) from None
            raise SpecError(f"{what} {self}: cannot be read: {gist(error)}") from None

    def open(self) -> DeltaTable:
        """Open the Delta table at its version.

        Raises
        ------
        SpecError
            It does not have it, or cannot be read.
        """
        remote = is_url(self.path)
        options = reading_options(urlsplit(self.path).scheme) if remote else None
        try:
            return DeltaTable(self.path, version=self.version, storage_options=options)
        except (DeltaError, OSError) as error:
            if remote:
                raise unreachable_error(self.path, "table", error) from None
            if isinstance(error, OSError):
                raise
            newest = DeltaTable(self.path).version()
            raise SpecError(
                f"{self.path!r} has no version {self.version}: its newest is {newest}"
            ) from None

    def rows(self) -> int:
        """Count rows without reading them."""
        if self.delta:
            return self.open().count()
        return sum(pq.read_metadata(file).num_rows for file in parquet_files(Path(self.path)))

    def columns(self) -> list[str]:
        """Return the names of the columns, of a Parquet table those of its first file."""
        if self.delta:
            return [field.name for field in self.open().schema().fields]
        return list(pq.read_schema(parquet_files(Path(self.path))[0]).names)

    def __str__(self) -> str:
        return self.path if self.version is None else f"{self.path}@{self.version}"


def read_delta(table: DeltaTable) -> pa.Table:
    """Read a Delta table into memory, as its readers' protocol says.

    Local files go through Arrow's own file system: through delta-rs's, which calls back into
    Python, a process that ends soon after reading is now and then aborted by Arrow's threads.
    Arrow knows neither deletion vectors nor column mapping: renamed columns would be null. A table
    whose protocol allows them is read by delta-rs itself.

    Raises
    ------
    UnreadableTableError
        It uses another reader feature, which is named.
    """
    protocol = table.protocol()
    if protocol.min_reader_version > 1:
        unknown = sorted(set(protocol.reader_features or ()) - FEATURES_READ)
        if unknown:
            raise UnreadableTableError(
                f"uses {', '.join(unknown)}, which cannot be read without Spark"
            )
        return _read_by_delta_rs(table)
    folder = table.table_uri.removeprefix("file://")
    if not os.path.isdir(folder):
        return _read_by_delta_rs(table)
    return table.to_pyarrow_table(filesystem=fs.SubTreeFileSystem(folder, fs.LocalFileSystem()))


def _read_by_delta_rs(table: DeltaTable) -> pa.Table:
    try:
        found = QueryBuilder().register("it", table).execute("SELECT * FROM it")
        return pa.table(found.read_all())
    except Exception as error:  # noqa: BLE001 - delta-rs raises no other of these
        raise OSError(str(error)) from None


def _is_parquet(path: Path) -> bool:
    files = parquet_files(path)
    if not files:
        return False
    with files[0].open("rb") as file:
        return file.read(4) == b"PAR1"


def parquet_files(path: Path) -> list[Path]:
    """Return a file itself, or the files below a folder that readers of Parquet see."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*.parquet") if not file.name.startswith(("_", ".")))


@contextmanager
def table_lock(path: str) -> Iterator[None]:
    """Hold a table against other writers, for as long as the process lives.

    Raises
    ------
    BusyError
        Another run holds it.
    """
    lock = _lock_of(path)
    lock.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(handle, 200, 0).decode(errors="replace").strip() or "another run"
            raise BusyError(
                f"{path} is being written by {holder}: wait for it to end, or stop it"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}".encode(), 0)
        yield
        os.ftruncate(handle, 0)
    finally:
        os.close(handle)


def _lock_of(path: str) -> Path:
    """Return the file that is locked for a table: one, also where links name the table."""
    table = Path(os.path.realpath(path))
    return table.parent / "_locks" / table.name


def was_interrupted(path: str) -> bool:
    """Whether the last run that held a table failed or was killed, or holds it now."""
    lock = _lock_of(path)
    return lock.is_file() and lock.stat().st_size > 0


def check_replaceable(path: str) -> None:
    """Check that a Delta table, if one is there, can be replaced without a JVM.

    Raises
    ------
    SpecError
        It uses a feature that only Spark writes, or is where only Spark does.
    """
    if set("[]") & set(os.path.abspath(path)):  # delta-rs panics
        raise SpecError(
            f"--output {path!r} has a bracket in its path, where only Spark writes a Delta table: "
            "use --engine spark, or name another"
        )
    try:
        table = DeltaTable(path)
    except TableNotFoundError:
        return
    asked = table.protocol()
    features = {*(asked.reader_features or ()), *(asked.writer_features or ())} - FEATURES_WRITTEN
    if table.metadata().configuration.get(MAPPING_MODE, "none") != "none":
        features.add("columnMapping")
    else:
        features.discard("columnMapping")
    if features:
        raise SpecError(
            f"--output {path!r} uses {', '.join(sorted(features))}, which only Spark writes: "
            "use --engine spark"
        )


def replace_delta(
    path: str, seen: int | None, rows: pa.Table, run_id: str, user_metadata: str
) -> int:
    """Replace a Delta table whole in one commit that carries the run id; return its version.

    Parameters
    ----------
    seen
        The version that is replaced; None makes the table.
    user_metadata
        Text that the commit keeps, where Spark keeps it too.

    Raises
    ------
    SpecError
        A CHECK of the table refuses rows.
    BusyError
        Another process has written since, without seeing the lock: nothing is replaced.
    """
    os.makedirs(path, exist_ok=True)
    try:
        write_deltalake(
            path if seen is None else DeltaTable(path, seen),
            rows,
            mode="error" if seen is None else "overwrite",
            schema_mode=None if seen is None else "overwrite",
            commit_properties=CommitProperties(
                app_transactions=[Transaction(run_id, RUN_VERSION)],
                custom_metadata={"userMetadata": user_metadata},
                max_commit_retries=0,
            ),
        )
    except DeltaError as error:
        if _newest(path) != seen:
            raise BusyError(
                f"{path} was written by another program since this run began: nothing was "
                "replaced; try again"
            ) from None
        if _CHECKED not in str(error):
            raise
        checks = describe_checks(DeltaTable(path))
        raise SpecError(
            f"--output {path!r}: nothing was replaced: the table's {checks} refuses rows of the "
            "assignment: drop it from the table, or name another output"
        ) from None
    return 0 if seen is None else seen + 1


def _newest(path: str) -> int | None:
    return DeltaTable(path).version() if DeltaTable.is_deltatable(path) else None


def describe_checks(table: DeltaTable) -> str:
    """Return the CHECK constraints of a table."""
    found = table.metadata().configuration
    prefix = "delta.constraints."
    named = (f"CHECK ({found[key]})" for key in sorted(found) if key.startswith(prefix))
    return ", ".join(named) or "NOT NULL"


def replace_file(path: str, schema: pa.Schema, parts: Iterable[pa.Table]) -> None:
    """Replace a Parquet file whole, by rows in parts: written beside it, then renamed over it."""
    target = Path(os.path.realpath(path))  # what a link names, and not the link
    name = target.parent / f".{target.name}.{uuid.uuid4().hex}"  # readable as the umask says
    try:
        with pq.ParquetWriter(name, schema) as writer:
            for rows in parts:
                writer.write_table(rows)
        _sync(name)
        name.replace(target)
    except BaseException:
        name.unlink(missing_ok=True)
        raise


def replace_text(path: str, text: str) -> None:
    """Replace a text file whole."""
    target = Path(os.path.realpath(path))  # what a link names, and not the link
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent or ".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        _sync(name)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _sync(name: str | Path) -> None:
    handle = os.open(name, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
