"""Read a dump of `__consumer_offsets`, away from the cluster: JSON, a line for each record.

A line is `[offset, timestamp ms, batch, key in base64, value in base64 or null]`; lines with one
batch number are one change. `{"records": [...]}` has many of them in one line. `{"topics": {name:
{"id", "partitions"} or null}, "at": ms}` says which topics there are from then on. Lines with
another field, as recordings for tests have, are passed over. A name that ends in .gz is inflated.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import IO, Annotated, NamedTuple, TypeAlias

import msgspec

from coordinator.config import ConfigError
from coordinator.core.events import CatalogTopic
from coordinator.core.state.records import KafkaWatched
from coordinator.history.watched import DUMP
from coordinator.runtime.topic_catalog import TopicCatalog
from coordinator.watcher.record_batches import KafkaRecord, RecordBatch, keep_last
from coordinator.watcher.watched_store import WatchedStore

LINE_MAX = 1 << 28
"""Bytes of a line."""
TOGETHER = 500
"""Batches that are written together."""
MARKER = 1
"""Offsets that the end of a transaction takes, which a dump does not show."""
OFFSET_MAX = (1 << 63) - 2
"""The next one is a number of 64 bits, too."""
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: no later time can be shown."""
PARTITIONS_MAX = (1 << 31) - 1
PARTITION, PARTITIONS = 0, 1
"""A dump has one partition, and does not say which."""


class TopicsLine(NamedTuple):
    """Which topics changed, and when."""

    topics: dict[str, CatalogTopic | None]
    at_ms: int


class RecordLine(NamedTuple):
    """One record, with the batch that it was written in."""

    batch: int
    record: KafkaRecord


_Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_At: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=LATEST_MS)]


class _Topic(msgspec.Struct):
    id: _Text
    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITIONS_MAX)]


class _Topics(msgspec.Struct):
    topics: dict[_Text, _Topic | None]
    at: _At


_Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=OFFSET_MAX)]
_Row: TypeAlias = tuple[_Offset, _At, int, str | None, str | None]
_ROW = msgspec.json.Decoder(_Row)
_ROWS = msgspec.json.Decoder(dict[str, list[_Row]])
_TOPICS = msgspec.json.Decoder(_Topics)
Line: TypeAlias = TopicsLine | RecordLine


class RecordsFile:
    """A dump, as a source of a watched store.

    Parameters
    ----------
    path
        Of the file.
    is_compacted
        Whether all of it is what a cleaned topic keeps. Without this only what comes before the
        last gap of its offsets is: a topic that was never cleaned has none.
    line_max, together
        Bytes of a line; and batches that are written together.

    Raises
    ------
    ConfigError
        The file is missing, or a line is invalid; the message names it.
    """

    topics: TopicCatalog | None = None
    is_live = False

    def __init__(
        self,
        path: str | Path,
        *,
        is_compacted: bool = False,
        line_max: int = LINE_MAX,
        together: int = TOGETHER,
    ) -> None:
        self._path = Path(path)
        self._line_max, self._together = line_max, together
        self._reduced = -1
        """The last offset before the history; -1 if all of it is history."""
        self._history = self._end = 0
        """The first offset that is history, and what is behind the last one."""
        self._cluster = self._look(is_compacted=is_compacted)

    def find_cluster(self) -> KafkaWatched:
        """Return what to call the cluster that the dump is of, and when its history begins."""
        return self._cluster

    def _look(self, *, is_compacted: bool) -> KafkaWatched:
        """Read the dump once: nothing of it is written before all of it is seen to be sound."""
        first: KafkaRecord | None = None
        last: KafkaRecord | None = None
        began_ms = 0
        for line in self._lines():
            if isinstance(line, TopicsLine):
                continue
            one = line.record
            if last is None:
                first, began_ms = one, one.timestamp_ms
            elif one.offset - last.offset > 1 + MARKER:
                self._reduced, self._history, began_ms = last.offset, one.offset, one.timestamp_ms
            last = one
        if first is None or last is None:
            raise ConfigError(f"{self._path} has no records: give a dump of __consumer_offsets")
        self._end = last.offset + 1
        if is_compacted:
            self._reduced, self._history, began_ms = last.offset, self._end, last.timestamp_ms
        name = hashlib.blake2b(repr(first).encode(), digest_size=6).hexdigest()
        return KafkaWatched(f"of-{name}", DUMP, began_ms)

    def follow(self, store: WatchedStore, stop: threading.Event) -> None:
        """Write the dump to the store, from where the store is; see `Source`."""
        writing = _Writing(store, self._together)
        next_offset = store.next_offsets().get(PARTITION, 0)
        # Behind a gap that is new, it is not known what is missing: what the dump keeps replaces
        # what the store has.
        is_whole = next_offset < self._history
        for item in self._batches():
            if stop.is_set():
                return
            if isinstance(item, TopicsLine):
                writing.topics_waiting.append(item)
            elif item.last_offset <= self._reduced:
                writing.reduce(item.records if is_whole else ())
            elif item.last_offset >= next_offset:
                writing.take(item)
        writing.finish()
        if self._end >= store.next_offsets().get(PARTITION, 0) and store.find_unread(missed=False):
            self._reread(store)
        store.has_caught_up = True

    def _reread(self, store: WatchedStore) -> None:
        """Let groups come back that could not be read, if all that the dump has of them can be."""
        last: dict[bytes, KafkaRecord] = {}
        for item in self._batches():
            if isinstance(item, RecordBatch):
                keep_last(last, item.records)
        store.load(PARTITION, last.values(), self._end, partitions=PARTITIONS)

    def _batches(self) -> Iterator[TopicsLine | RecordBatch]:
        for is_record, some in groupby(self._lines(), lambda one: isinstance(one, RecordLine)):
            if not is_record:
                yield from some  # type: ignore[misc]
                continue
            for _, lines in groupby(some, attrgetter("batch")):
                records = [line.record for line in lines]  # type: ignore[union-attr]
                first, last = records[0].offset, records[-1].offset
                yield RecordBatch(first, last, -1, -1, -1, False, None, records)

    def _lines(self) -> Iterator[Line]:
        last = -1
        try:
            with self._open() as file:
                number = 0
                while raw := file.readline(self._line_max):
                    number += 1
                    _check_length(raw, self._line_max)
                    for line in _read_line(raw):
                        if isinstance(line, RecordLine):
                            last = _check_order(line.record.offset, last)
                        yield line
        except (ValueError, binascii.Error) as error:
            raise ConfigError(f"{self._path}, line {number}: {error}") from None
        except RecursionError:
            raise ConfigError(f"{self._path}, line {number}: it is nested too deeply") from None
        except (OSError, EOFError, zlib.error) as error:
            raise ConfigError(f"{self._path} cannot be read: {error}") from None

    def _open(self) -> IO[bytes] | gzip.GzipFile:
        if self._path.exists() and not self._path.is_file():
            raise OSError("it is not a file, which is read twice")
        if self._path.suffix == ".gz":
            return gzip.open(self._path, "rb")
        return self._path.open("rb")


class _Writing:
    """What of a dump is on its way to the store."""

    def __init__(self, store: WatchedStore, together: int) -> None:
        self._store, self._together = store, together
        self.topics_waiting: deque[TopicsLine] = deque()
        """Topics that come, change or go once Kafka has written up to their time."""
        self._reduced: dict[bytes, KafkaRecord] = {}
        """The last record of each key before the history."""
        self._topics: dict[str, CatalogTopic] = {}
        self._batches: list[RecordBatch] = []

    def reduce(self, records: Iterable[KafkaRecord]) -> None:
        """Take records from before the history."""
        keep_last(self._reduced, records)

    def take(self, batch: RecordBatch) -> None:
        """Take a batch that is history."""
        self._load()
        self._report(batch.records[0].timestamp_ms)
        self._batches.append(batch)
        if len(self._batches) >= self._together:
            self._write()

    def finish(self) -> None:
        """Write what is left."""
        self._load()
        self._write()
        self._report(None)
        self._store.flush()

    def _load(self) -> None:
        if self._reduced:
            kept = [*self._reduced.values()]
            self._report(kept[-1].timestamp_ms)
            self._store.load(PARTITION, kept, kept[-1].offset + 1, partitions=PARTITIONS)
            self._reduced = {}

    def _report(self, until_ms: int | None) -> None:
        """Report the topics as they were at a time; None: as the dump ends."""
        at_ms = None
        while self.topics_waiting and (
            until_ms is None or self.topics_waiting[0].at_ms <= until_ms
        ):
            line = self.topics_waiting.popleft()
            at_ms = line.at_ms
            for name, topic in line.topics.items():
                if topic is None:
                    self._topics.pop(name, None)
                else:
                    self._topics[name] = topic
        if at_ms is not None:
            self._write()
            self._store.report_topics(dict(self._topics), at_ms)

    def _write(self) -> None:
        if self._batches:
            self._store.take(PARTITION, self._batches)
            self._batches = []


def _read_line(raw: bytes) -> Iterable[Line]:
    """Return what a line has.

    Raises
    ------
    ValueError
        The line is invalid; errors of msgspec and base64 are of this class.
    """
    text = raw.strip()
    if not text:
        return ()
    if text.startswith(b"["):
        return (_record(_ROW.decode(text)),)
    if text.startswith(b'{"records"'):
        return [_record(row) for rows in _ROWS.decode(text).values() for row in rows]
    if text.startswith(b'{"topics"'):
        found = _TOPICS.decode(text)
        return (
            TopicsLine(
                {
                    name: None if one is None else CatalogTopic(one.id, one.partitions)
                    for name, one in found.topics.items()
                },
                found.at,
            ),
        )
    msgspec.json.decode(text, type=dict)
    return ()


def _check_length(raw: bytes, most: int) -> None:
    if len(raw) == most:
        raise ValueError(f"it has more than {most} bytes")


def _check_order(offset: int, last: int) -> int:
    if offset <= last:
        raise ValueError(f"offset {offset} comes after {last}: offsets rise")
    return offset


def _record(row: _Row) -> RecordLine:
    offset, at_ms, batch, key, value = row
    return RecordLine(batch, KafkaRecord(offset, at_ms, _bytes(key), _bytes(value)))


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)
