"""Commit the offsets of a query's Kafka sources to a group, so that its lag is seen."""

from __future__ import annotations

import ast
import json
import logging
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from coordinator.member.options import check_texts
from coordinator.member.transport import TopicPartition
from spark_jobs.streams.background_commits import BackgroundCommits

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
        StreamingQueryProgress,
    )

KAFKA_SOURCE = "Kafka"
"""How Spark's descriptions of its Kafka sources begin."""
logger = logging.getLogger("muster.spark")


class GroupOffsets(StreamingQueryListener):
    """A listener that commits each batch's end offsets of Kafka sources to a consumer group.

    >>> spark.streams.addListener(GroupOffsets("kafka:9092", group_id="billing"))  # doctest: +SKIP

    A separate thread commits the offsets after the batch is done: a query never waits for it, and a
    failed commit never fails a query. Kafka's tools then show the lag; the query itself continues
    from its checkpoint, as before.

    Parameters
    ----------
    kafka
        host:port of brokers of Kafka 2.8 or later, or of `muster serve`; several as a list or with
        commas.
    group_id
        The group of all queries; or {name of a query: its group}, and no other query is committed.
        No consumer may be a member of the group.
    tls, login
        As for `Member`.
    client_id
        What the brokers see.

    Raises
    ------
    ValueError
        The address, the group or the login is invalid.
    """

    def __init__(
        self,
        kafka: str | Sequence[str],
        group_id: str | Mapping[str, str],
        *,
        tls: ssl.SSLContext | None = None,
        login: tuple[str, str, str] | None = None,
        client_id: str = "muster",
    ) -> None:
        if isinstance(group_id, Mapping) and not group_id:
            raise ValueError("group_id is empty: give {name of a query: group}, or one group")
        if not isinstance(group_id, Mapping):
            check_texts(group_id=group_id)
        self._groups = group_id
        names = set(group_id.values()) if isinstance(group_id, Mapping) else {group_id}
        self._commits = {
            name: BackgroundCommits(kafka, name, tls=tls, login=login, client_id=client_id)
            for name in names
        }
        self._ends: dict[str, dict[TopicPartition, dict[tuple[str, int], int]]] = {
            name: {} for name in names
        }
        """Where sources are, by group, partition, run of a query and number of its source."""
        self._shared: set[TopicPartition] = set()

    @property
    def committed(self) -> int:
        """How many offsets were committed."""
        return sum(one.committed for one in self._commits.values())

    @property
    def failures(self) -> int:
        """How many commits were refused, or kept failing for 10 s."""
        return sum(one.failures for one in self._commits.values())

    @property
    def error(self) -> Exception | None:
        """Why the last commit of a group failed; None while all succeed."""
        return next((one.error for one in self._commits.values() if one.error is not None), None)

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all known offsets are committed or refused.

        Parameters
        ----------
        timeout
            At most this many seconds for the offsets of each group; None: as long as it takes.

        Returns
        -------
        bool
            Whether they were in time.
        """
        done = [one.flush(timeout) for one in self._commits.values()]
        return all(done)

    def close(self, timeout: float = 10.0) -> bool:
        """Commit pending offsets, and end; the interpreter does this at its exit."""
        done = [one.close(timeout) for one in self._commits.values()]
        return all(done)

    # What Spark calls ----------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: nothing is done yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Commit the offsets at which a batch ended."""
        try:
            self._take(event.progress)
        except Exception:  # no query may suffer
            logger.exception("the offsets of a batch are passed over: a fault")

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: nothing has changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget where the query was; what it has done stays committed."""
        run = str(event.runId)
        for name, ends in self._ends.items():
            gone = []
            for place, of_sources in list(ends.items()):
                for source in [one for one in of_sources if one[0] == run]:
                    del of_sources[source]
                if not of_sources:
                    gone.append(place)
                    del ends[place]
            self._commits[name].forget(gone)

    def _take(self, progress: StreamingQueryProgress) -> None:
        group_id = self._group_of(progress.name)
        if group_id is None:
            return
        ends, run = self._ends[group_id], str(progress.runId)
        found: dict[TopicPartition, int] = {}
        for number, source in enumerate(progress.sources):
            if not str(source.description).startswith(KAFKA_SOURCE):
                continue
            for place, offset in read_offsets(source.endOffset).items():
                of_sources = ends.setdefault(place, {})
                of_sources[run, number] = offset
                found[place] = min(of_sources.values())
                if len(of_sources) > 1 and place not in self._shared:
                    self._note_shared(group_id, place)
        self._commits[group_id].put(found)

    def _group_of(self, name: str | None) -> str | None:
        if isinstance(self._groups, str):
            return self._groups
        return self._groups.get(name or "")

    def _note_shared(self, group_id: str, place: TopicPartition) -> None:
        self._shared |= {one for one in self._ends[group_id] if one.topic == place.topic}
        logger.warning(
            "topic %s has several readers in group %s, whose smallest offset is committed: give "
            "each query a group of its own, as group_id={name of the query: group}",
            *(place.topic, group_id),
        )


def read_offsets(text: str | None) -> dict[TopicPartition, int]:
    """Return the offsets in a Kafka source's text; Spark Connect has it as Python writes a dict."""
    if not text or text in {"None", "null"}:
        return {}
    try:
        topics: Any = json.loads(text)
    except ValueError:
        topics = ast.literal_eval(text)
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, partitions in topics.items()
        for number, offset in partitions.items()
        if int(offset) >= 0
    }
