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

        self._log = _ClientLog()
        self._admin = AdminClient(dict(settings), logger=self._log)

    @contextmanager
    def asked(self) -> Iterator[AdminClient]:
        """Give an administrator; an error repeats its client's last log line about the cluster.

        Raises
        ------
        OSError
            The cluster does not answer.
        """
        try:
            yield self._admin
        except Exception as error:  # confluent-kafka has one exception class for everything
            self._admin.poll(0)
            hint = f" ({self._log.last})" if self._log.last else ""
            raise OSError(f"the Kafka cluster does not answer: {error}{hint}") from error
        self._admin.poll(0)
        self._log.last = ""


class _ClientLog:
    """What a client logs itself: twenty lines a second, on stderr, while no broker answers."""

    def __init__(self) -> None:
        self.last = ""

    def log(self, _level: int, text: str, *values: object) -> None:
        """Take a line."""
        self.last = text % values
        logger.debug("%s", self.last)
