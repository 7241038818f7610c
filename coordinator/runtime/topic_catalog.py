"""Sources of topic metadata: a dict, a file, a Delta table, a Kafka cluster."""

from __future__ import annotations

import base64
import json
import logging
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from coordinator.clock import Clock
from coordinator.config import KAFKA, Config, ConfigError
from coordinator.core.events import CatalogTopic, TopicsReported
from coordinator.core.state.groups import Topic
from coordinator.core.state.partition_spans import make_id
from coordinator.runtime.kafka.cluster import KafkaCluster
from coordinator.runtime.kafka.offsets import OffsetRequests
from coordinator.storage.tables.table_io import UnreadableTableError, read_delta

PARTITIONS_MAX = 2**31 - 1
SLICE_MAX = 4_000
"""Changes of topics that a step takes: others wait while they are looked at and written."""
logger = logging.getLogger("muster.coordinator")


class TopicCatalog(Protocol):
    """A source of topic metadata, which the coordinator polls."""

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Return all topics as they are now.

        Raises
        ------
        ConfigError
            The source says something that cannot be.
        OSError
            The source cannot be reached; the coordinator keeps the topics it knows.
        """


def catalog_for(
    topics: TopicCatalog | Mapping[str, int] | str | None, config: Config
) -> TopicCatalog | None:
    """Return where topics come from; of none, the store's stay as they are."""
    if isinstance(topics, Mapping):
        return DictCatalog(topics)
    source = config.topics.source if topics is None else topics
    if isinstance(source, str):
        return catalog_of(source, config.topics.kafka) if source else None
    if not callable(getattr(source, "topics", None)):
        raise ConfigError(
            f"topics is {source!r}: give {{topic: partitions}}, a source or a catalog"
        )
    return source


class TopicWatch:
    """Asks a catalog again and again; while it cannot be read, topics stay as they are.

    Parameters
    ----------
    clock
        Ms since 1970.
    failed
        Called at each look that fails.

    Attributes
    ----------
    unread_since_ms
        Since when it cannot be read; None while it can.
    find_offsets
        Asks the cluster that has the topics for offsets; None where none has.
    """

    def __init__(
        self, catalog: TopicCatalog, clock: Clock, failed: Callable[[], object] = lambda: None
    ) -> None:
        self._catalog, self._clock, self._failed = catalog, clock, failed
        self._logged = ""
        self.unread_since_ms: int | None = None
        self.find_offsets = getattr(catalog, "find_offsets", None)

    def look(self, known: Mapping[str, Topic]) -> TopicsReported | None:
        """Return the topics when they are not those known; any thread may ask.

        If they cannot be read, that is logged once, and again for another mistake in them.
        """
        try:
            found = find_changes(self._catalog.topics(), known)
        except (OSError, ValueError) as error:
            self._failed()
            reason = str(error) if isinstance(error, ValueError) else "unreachable"
            if self.unread_since_ms is None or reason != self._logged:
                logger.warning("topics stay as they were, retrying their source: %s", error)
            self._logged = reason
            if self.unread_since_ms is None:
                self.unread_since_ms = self._clock()
            return None
        if self.unread_since_ms is not None:
            logger.info("topics can be read again")
        self._logged, self.unread_since_ms = "", None
        return found


def find_changes(
    seen: Mapping[str, CatalogTopic], known: Mapping[str, Topic]
) -> TopicsReported | None:
    """Return a report of topics; None where they are just those that are known."""
    same = len(seen) == len(known) and all(
        _is_known(known, name, topic) for name, topic in seen.items()
    )
    return None if same else TopicsReported(seen)


def _is_known(known: Mapping[str, Topic], name: str, seen: CatalogTopic) -> bool:
    """Whether a topic is known just as it is seen."""
    topic = known.get(name)
    return (
        topic is not None
        and topic.key.topic_id == seen.topic_id
        and topic.partitions == seen.partitions
        and topic.racks == seen.racks
    )


def slice_report(
    event: TopicsReported, known: Mapping[str, Topic], most: int = SLICE_MAX
) -> Iterator[TopicsReported]:
    """Yield a report in slices of so many changes, in the order of the whole's; any thread may.

    Between them the loop answers others. Where there are few changes, it is the only slice.
    """
    before = dict(known)
    gone = sorted(before.keys() - event.topics.keys())
    changed = sorted(n for n, seen in event.topics.items() if not _is_known(before, n, seen))
    if event.gone is not None or len(gone) + len(changed) <= most:
        yield event
        return
    for at in range(0, len(gone) + len(changed), most):
        end = at + most
        names = changed[max(0, at - len(gone)) : max(0, end - len(gone))]
        topics = {name: event.topics[name] for name in names}
        yield TopicsReported(topics, gone[at:end], more=end < len(gone) + len(changed))


def catalog_of(source: str, settings: Mapping[str, str] | None = None) -> TopicCatalog:
    """Return the catalog of a source: a .toml or .json file, a Delta table, kafka://servers.

    Parameters
    ----------
    settings
        Of the client that asks a Kafka cluster.

    Raises
    ------
    ConfigError
        A file or a table cannot be read: later it may be away for a while, at the start it is a
        mistake.
    """
    if source.startswith(KAFKA):
        servers = source.removeprefix(KAFKA)
        return KafkaCatalog({"bootstrap.servers": servers, **(settings or {})})
    is_file = source.endswith((".toml", ".json"))
    catalog: TopicCatalog = FileCatalog(source) if is_file else DeltaCatalog(source)
    try:
        catalog.topics()
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"the topics in {source} cannot be read: {reason}") from None
    return catalog


def topic_id_of(name: str) -> str:
    """Return the id of a topic whose source gives none: a UUID made from its name.

    Unpadded URL-safe base64, as Kafka prints ids. A source without ids cannot show that a topic
    was re-created.
    """
    return make_id(name)


def check_topic(
    name: str, partitions: object, topic_id: object = None, racks: object = None
) -> CatalogTopic:
    """Check one topic.

    Raises
    ------
    ConfigError
        Its name, number of partitions, id or racks cannot be.
    """
    if not name:
        raise ConfigError("a topic's name is empty: give it one")
    whole = isinstance(partitions, int) and not isinstance(partitions, bool)
    if not whole or not 0 <= partitions <= PARTITIONS_MAX:  # type: ignore[operator]
        raise ConfigError(
            f"topic {name!r} has {partitions!r} partitions: give a whole number from 0 to "
            f"{PARTITIONS_MAX}"
        )
    if topic_id is not None and (not isinstance(topic_id, str) or not topic_id):
        raise ConfigError(f"topic {name!r} has the id {topic_id!r}: give text, or leave it out")
    found = _racks(name, racks)
    return CatalogTopic(topic_id or topic_id_of(name), partitions, found)  # type: ignore[arg-type]


def _racks(name: str, racks: object) -> tuple[tuple[str, ...], ...]:
    if racks is None:
        return ()
    fine = isinstance(racks, list | tuple) and all(
        isinstance(of_one, list | tuple) and all(isinstance(rack, str) for rack in of_one)
        for of_one in racks
    )
    if not fine:
        raise ConfigError(f"topic {name!r} has racks {racks!r}: give a list of racks a partition")
    return tuple(tuple(sorted(set(of_one))) for of_one in racks)  # type: ignore[attr-defined]


class DictCatalog:
    """Topics kept in memory: for pipelines that know their partitions, and for tests."""

    def __init__(self, topics: Mapping[str, int | CatalogTopic] | None = None) -> None:
        self._topics: dict[str, CatalogTopic] = {}
        for name, found in (topics or {}).items():
            self.set(name, found)

    def set(self, name: str, found: int | CatalogTopic, topic_id: str | None = None) -> None:
        """Create a topic or change it.

        Parameters
        ----------
        name
            The topic's name.
        found
            Its number of partitions, or all that is known of it.
        topic_id
            Its id; None: it keeps the one that it has, and a new topic gets one.
        """
        if isinstance(found, CatalogTopic):
            self._topics[name] = found
            return
        old = self._topics.get(name)
        self._topics[name] = check_topic(name, found, topic_id or (old.topic_id if old else None))

    def delete(self, name: str) -> None:
        """Delete a topic; no error if it does not exist."""
        self._topics.pop(name, None)

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Return all topics."""
        return dict(self._topics)


class FileCatalog:
    """A TOML or JSON file: {topic: partitions} or {topic: {partitions, topic_id, racks}}."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._text = ""
        self._topics: dict[str, CatalogTopic] = {}

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Read the file if its text has changed: parsing 100,000 topics delays other work.

        Raises
        ------
        ConfigError
            It is not such a file.
        """
        text = self._path.read_text(encoding="utf-8-sig")
        if self._text and text == self._text:
            return self._topics
        self._topics = self._parse(text)
        self._text = text
        return self._topics

    def _parse(self, text: str) -> dict[str, CatalogTopic]:
        if not text.strip():
            # A program that rewrites it empties it first. No topics at all are written as {}.
            raise ConfigError(f"{self._path} is empty: give topics, or replace it as a whole")
        try:
            tree: Any = json.loads(text) if self._path.suffix == ".json" else tomllib.loads(text)
        except ValueError as error:
            raise ConfigError(f"{self._path}: {error}") from None
        if not isinstance(tree, dict):
            raise ConfigError(f"{self._path}: give an object of topics")
        found = tree.get("topics", tree)
        try:
            return {name: self._one(name, value) for name, value in found.items()}
        except (ConfigError, AttributeError, TypeError) as error:
            raise ConfigError(f"{self._path}: {error}") from None

    @staticmethod
    def _one(name: str, value: object) -> CatalogTopic:
        if not isinstance(value, dict):
            return check_topic(name, value)
        unknown = value.keys() - {"partitions", "topic_id", "racks"}
        if unknown:
            raise ConfigError(
                f"topic {name!r} has {min(unknown)!r}: the fields are partitions, topic_id, racks"
            )
        return check_topic(name, value.get("partitions"), value.get("topic_id"), value.get("racks"))


class DeltaCatalog:
    """A Delta table of topics (docs/reference/formats.md#topics-of-a-coordinator)."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._version = -1
        self._topics: dict[str, CatalogTopic] = {}

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Read the table, if it has a new version.

        Raises
        ------
        ConfigError
            It is not a Delta table, a column is missing, a topic is there twice.
        """
        try:
            table = DeltaTable(self._table)
        except TableNotFoundError:
            raise ConfigError(
                f"{self._table} is not a Delta table: name a table of topics"
            ) from None
        if table.version() != self._version:
            try:
                rows = read_delta(table)
            except UnreadableTableError as error:
                raise ConfigError(f"{self._table} {error}: give a table without it") from None
            self._topics = self._read(rows)
            self._version = table.version()
        return self._topics

    def _read(self, rows: pa.Table) -> dict[str, CatalogTopic]:
        for column in ("topic", "partitions"):
            if column not in rows.column_names:
                raise ConfigError(
                    f"{self._table}: column {column} is missing: give topic and partitions"
                )
        found: dict[str, CatalogTopic] = {}
        for row in rows.to_pylist():
            name = row["topic"] or ""
            if name in found:
                raise ConfigError(f"{self._table}: topic {name!r} appears twice")
            found[name] = check_topic(
                name, row["partitions"], row.get("topic_id"), row.get("racks")
            )
        return found


class KafkaCatalog:
    """The topics of a Kafka cluster, through confluent-kafka (the extra `kafka`)."""

    def __init__(self, settings: Mapping[str, str], timeout_s: float = 10.0) -> None:
        self._cluster = KafkaCluster(settings, "topics")
        self._timeout_s = timeout_s
        self.find_offsets = OffsetRequests(self._cluster).find

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Ask the cluster; internal topics are left out."""
        with self._cluster.asked() as admin:
            names = [n for n in admin.list_topics(timeout=self._timeout_s).topics if n[:2] != "__"]
            if not names:
                return {}
            from confluent_kafka import TopicCollection  # noqa: PLC0415 - the extra `kafka`

            asked = admin.describe_topics(TopicCollection(names), request_timeout=self._timeout_s)
            found = {name: future.result() for name, future in asked.items()}
        return {
            name: CatalogTopic(
                _kafka_id(topic.topic_id),
                len(topic.partitions),
                tuple(
                    tuple(sorted({node.rack for node in p.replicas if node.rack}))
                    for p in sorted(topic.partitions, key=lambda p: p.id)
                ),
            )
            for name, topic in found.items()
        }


def _kafka_id(topic_id: Any) -> str:  # noqa: ANN401 - confluent-kafka has no types
    raw = topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits()
    whole = b"".join((part & (2**64 - 1)).to_bytes(8) for part in raw)
    return base64.urlsafe_b64encode(whole).decode().rstrip("=")
