"""What a store says of the Kafka cluster whose groups it shows."""

from __future__ import annotations

from assignors import SpecError
from coordinator.history.log_reader import LogReader


def refuse_watched(reading: LogReader) -> None:
    """Refuse to change a group that Kafka coordinates.

    Raises
    ------
    SpecError
        The store shows the groups of a Kafka cluster; the message names it.
    """
    watched = reading.state().watched
    if watched is not None:
        raise SpecError(
            f"the Kafka cluster {watched.cluster.cluster_id} coordinates the groups of "
            f"{reading.store}: a plan can be shown here, and no group can be changed"
        )
