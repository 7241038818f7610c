"""A client of a Kafka cluster, and what it says of the cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from coordinator.extras import require

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

logger = logging.getLogger("muster.coordinator")


class KafkaCluster:
    """A Kafka cluster, from which something is wanted.

    Raises
    ------
    MissingExtraError
        The extra `kafka` is not installed.
    """

    def __init__(self, settings: Mapping[str, str], what: str) -> None:
        require(f"reading {what} from a Kafka cluster", "kafka")
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - the extra `kafka`

        self._said = _ClientLog()
        self._admin = AdminClient(dict(settings), logger=self._said)

    @contextmanager
    def asked(self) -> Iterator[AdminClient]:
        """Give an administrator; an error says what its client last said of the cluster.

        Raises
        ------
        OSError
            The cluster does not answer.
        """
        try:
            yield self._admin
        except Exception as error:  # confluent-kafka has one exception class for everything
            self._admin.poll(0)
            said = f" ({self._said.last})" if self._said.last else ""
            raise OSError(f"the Kafka cluster does not answer: {error}{said}") from error
        self._admin.poll(0)
        self._said.last = ""


class _ClientLog:
    """What a client logs itself: twenty lines a second, on stderr, while no broker answers."""

    def __init__(self) -> None:
        self.last = ""

    def log(self, _level: int, text: str, *values: object) -> None:
        """Take a line."""
        self.last = text % values
        logger.debug("%s", self.last)
