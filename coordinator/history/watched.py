"""What a store says of the Kafka cluster whose groups it shows."""

from __future__ import annotations

import pyarrow as pa

from assignors import SpecError
from coordinator.core.state.groups import BY_NODE
from coordinator.core.state.records import GroupUnread, KafkaWatched
from coordinator.display.printable import visible
from coordinator.display.times import format_time
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows

COLUMNS = ("cluster_id", "observed", "timestamp")
UNREAD_COLUMNS = ("tombstone", "group_id", "partition", "offset", "reason")
DUMP = "records"
WAYS = {
    "topic": "by reading its topic of groups",
    BY_NODE: "by a node of the cluster",
    DUMP: "from a dump of its topic of groups",
    "describe": "by asking it again and again",
}
"""How a cluster is watched, in words, by what `KafkaWatched` calls it."""


def find_watched(rows: pa.Table) -> KafkaWatched | None:
    """Return the newest of rows of `KafkaWatched`; None without one."""
    found = rows.slice(max(0, len(rows) - 1)).to_pylist()
    return KafkaWatched(**found[0]) if found else None


def read_watched(reading: LogReader) -> KafkaWatched | None:
    """Return which Kafka cluster coordinates the groups of a store; None where Muster does."""
    return find_watched(LogRows(reading).present([KafkaWatched.kind], COLUMNS))


def list_unread(reading: LogReader) -> list[str]:
    """Return the groups of the cluster that cannot be read, by name, each with what is wrong."""
    rows = LogRows(reading).present([GroupUnread.kind], UNREAD_COLUMNS)
    last = {row["group_id"]: row for row in rows.to_pylist()}
    return [
        f"{visible(group_id)} (partition {row['partition']}, offset {row['offset']}: "
        f"{visible(row['reason'])})"
        for group_id, row in sorted(last.items())
        if not row["tombstone"]
    ]


def tell_watched(watched: KafkaWatched) -> str:
    """Return a line that says who coordinates the groups, since when they are watched, and how."""
    cluster, since = visible(watched.cluster_id), format_time(watched.timestamp)
    if watched.observed == BY_NODE:
        return (
            f"these are the groups of the Kafka cluster {cluster}, of which a node coordinates "
            f"those that it leads; it keeps their history since {since}"
        )
    return (
        f"the Kafka cluster {cluster} coordinates these groups; they are watched since {since}, "
        f"{WAYS.get(watched.observed, '')}"
    )


def refuse_watched(reading: LogReader) -> bool:
    """Refuse to change a group that Kafka coordinates.

    Returns
    -------
    bool
        Whether a node of the cluster has the store: it alone may decide, as it may lead the group.

    Raises
    ------
    SpecError
        The store shows the groups of a Kafka cluster; the message names it.
    """
    watched = read_watched(reading)
    if watched is not None and watched.observed != BY_NODE:
        raise SpecError(
            f"the Kafka cluster {visible(watched.cluster_id)} coordinates the groups of "
            f"{reading.store}: a plan can be shown here, and no group can be changed"
        )
    return watched is not None
