"""Read columns of the log's rows by kind, up to a position; of one group if wanted.

Other columns are not read at all. Row groups without the wanted kinds and group are skipped, and so
are files without the wanted positions.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from assignors import SpecError
from coordinator.core.state.records import TopicChanged
from coordinator.history.log_reader import LogReader
from coordinator.storage.data_files import AS_TEXT_ONCE
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.shards import shard_number
from coordinator.storage.tables.store_files import is_remote, refuse_silence, source_of

logger = logging.getLogger("muster.coordinator")
Filter: TypeAlias = pc.Expression
FILTERED = ("kind", "position", "group_id")
SMALL_ROWS, KEPT_ROWS_MAX = 100, 20_000
"""The most rows of a file that is read whole, and of all of them together: 10 MB or so."""
FRAGMENTS_MAX = 64
"""Files of a log that are kept so: each has 100 columns."""
LOCAL = LocalFileSystem()
FORMAT = ds.ParquetFileFormat(read_options={"dictionary_columns": [AS_TEXT_ONCE]})


class LogRows:
    """The rows of a log up to a position, in order.

    Parameters
    ----------
    reading
        The log, and the position.
    group_id
        Only rows of this group, and rows of topics; None for all groups.

    Raises
    ------
    SpecError
        The group id is not a valid string.
    """

    def __init__(self, reading: LogReader, group_id: str | None = None) -> None:
        if group_id is not None and not is_text(group_id):
            raise SpecError(f"group_id {group_id!r} is not a string: give the id of a group")
        self.store = reading.store
        self.group_id = group_id
        self._reading = reading
        self._asked: set[tuple[str, ...]] = set()
        self._whole: dict[tuple[str, ...], pa.Table] = {}

    @cached_property
    def shard(self) -> int | None:
        """Of which shard it is the log; None in a store of one, and of the root."""
        return shard_number(self.store)

    @property
    def at_ms(self) -> int:
        """When the last row was written, milliseconds since 1970."""
        return self._reading.at_ms

    def past(self, kinds: Collection[str], columns: Sequence[str], after: int = 0) -> pa.Table:
        """Return columns of all rows of these kinds that are after a position.

        Raises
        ------
        CorruptLog
            A file cannot be read.
        """
        wanted = self._filter_kinds(kinds) & self._until()
        if after:
            wanted &= pc.field("position") > after
        return self._read(self._reading.files(after), columns, wanted)

    def past_by_file(self, kinds: Collection[str], columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the same rows of one file after the other, so that they need not fit into memory.

        Raises
        ------
        CorruptLog
            A file cannot be read.
        """
        wanted = self._filter_kinds(kinds) & self._until()
        for path in self._reading.files():
            yield self._read([path], columns, wanted, once=True)

    def present(self, kinds: Collection[str], columns: Sequence[str]) -> pa.Table:
        """Return fewer rows with the same state: a snapshot, and the rows of the log after it.

        Their number depends on the size of the state, not on the length of the log.
        """
        source = self._reading.scan()
        if not source.after:
            return self.past(kinds, columns)
        wanted = self._filter_kinds(kinds)
        try:
            before = self._read(source.snapshot, columns, wanted)
        except CorruptLog as error:  # the log alone has everything
            logger.warning("ignored snapshot %d and read the whole log: %s", source.after, error)
            return self.past(kinds, columns)
        later = self._until() & (pc.field("position") > source.after)
        after = self._read(source.log, columns, wanted & later)
        return pa.concat_tables([before, after]).unify_dictionaries().combine_chunks()

    def has_group(self) -> bool:
        """Whether the log has any row of the group."""
        ours = self._until() & (pc.field("group_id") == self.group_id)
        return len(self._read(self._reading.files(), ["kind"], ours)) > 0

    def _until(self) -> Filter:
        return pc.field("position") <= self._reading.position

    def _filter_kinds(self, kinds: Collection[str]) -> Filter:
        wanted = pc.field("kind").isin(sorted(kinds))
        if self.group_id is None:
            return wanted
        ours = pc.field("group_id") == self.group_id
        return wanted & ((pc.field("kind") == TopicChanged.kind) | ours)

    def _read(
        self, paths: Sequence[str], columns: Sequence[str], wanted: Filter, *, once: bool = False
    ) -> pa.Table:
        small = frozenset() if once else self._small
        try:
            rows = self._scan(paths, list(columns), wanted, small)
        except (OSError, pa.ArrowException) as error:
            refuse_silence(self.store, error)
            raise CorruptLog(f"the log of {self.store} cannot be read: {error}") from None
        return rows.unify_dictionaries().combine_chunks()

    def _scan(
        self, paths: Sequence[str], names: list[str], wanted: Filter, small: frozenset[str]
    ) -> pa.Table:
        pieces = [_FIELDS.empty_table().select(names)]
        for is_small, found in groupby(paths, small.__contains__):
            some = tuple(found)
            if is_small and some in self._asked:
                rows = self._read_whole(some)
                rows = rows.select(list(dict.fromkeys([*names, *FILTERED])))
                pieces.append(rows.filter(wanted).select(names))
            else:
                self._asked.add(some)
                pieces += self._open(some, columns=names, filter=wanted)
        return pa.concat_tables(pieces)

    def _read_whole(self, paths: tuple[str, ...]) -> pa.Table:
        rows = self._whole.get(paths)
        if rows is None:
            read = pa.concat_tables(self._open(paths))
            rows = self._whole[paths] = read.unify_dictionaries().combine_chunks()
        return rows

    def _open(self, paths: Sequence[str], **wanted: object) -> Iterator[pa.Table]:
        if not is_remote(self.store):
            fragments = [self._fragment(path) for path in paths]
            yield ds.FileSystemDataset(fragments, _FIELDS, FORMAT, LOCAL).to_table(**wanted)
            return
        for path in paths:  # one after the other: each is read whole
            fragment = FORMAT.make_fragment(source_of(path))
            yield ds.FileSystemDataset([fragment], _FIELDS, FORMAT).to_table(**wanted)

    def _fragment(self, path: str) -> ds.Fragment:
        """Return a file of a disk: what its end says of its columns is read once, for all views."""
        known = self._reading.fragments
        found = known.get(path)
        if found is None:
            found = FORMAT.make_fragment(source_of(path), LOCAL)
            if len(known) < FRAGMENTS_MAX:
                known[path] = found
        return found

    @cached_property
    def _small(self) -> frozenset[str]:
        """The files that are read whole, and kept, when their rows are asked for once more.

        Most of such a file is what tells its columns, and to open one takes a millisecond; the
        views of rebalances ask for rows eight times.
        """
        found, left = set(), KEPT_ROWS_MAX
        for path, rows in self._reading.sizes():
            left -= rows
            if rows <= SMALL_ROWS and left >= 0:
                found.add(path)
        return frozenset(found)


def repeat_shard(log: LogRows, count: int) -> pa.Array:
    """Return the column `shard` of so many rows of a log."""
    return pa.repeat(pa.scalar(log.shard, pa.int32()), count)


def is_text(value: object) -> bool:
    """Whether a value is valid Unicode; bytes of a command line may not be."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _field(name: str) -> pa.Field:
    field = SCHEMA.field(name)
    if name == AS_TEXT_ONCE:
        return field.with_type(pa.dictionary(pa.int32(), field.type))
    return field


_FIELDS = pa.schema([_field(name) for name in SCHEMA.names])
