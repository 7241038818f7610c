"""Tell operators what their clients do not: that they are refused, or wait in vain.

Most clients that connect by mistake retry endlessly and say nothing useful. Refused software is
counted by name, as given with ApiVersions, up to a number of names, and logged once a minute.
Groups whose consumers fetch records here, which are in a Kafka cluster, are logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from coordinator.core.events import JOIN
from coordinator.core.state.groups import TopicView
from coordinator.wire.call import from_uuid
from coordinator.wire.codec import Api, Request
from coordinator.wire.session import Session

CLIENTS_MAX = 50
NAME_MAX = 40
UNNAMED, OTHER = "unknown", "other"
SAY_AGAIN_S = 60.0
JOINED_MAX, GROUPS_MAX, WARNED_MAX = 10_000, 20, 10_000
"""Clients whose groups are remembered, groups of each, and groups that were warned of."""
logger = logging.getLogger("muster.wire")


class RefusedClients:
    """Counts refused clients, and logs each once a minute.

    Parameters
    ----------
    count
        Called with the name each time.
    now
        The time in seconds, from any beginning.
    """

    def __init__(self, count: Callable[[str], None], now: Callable[[], float]) -> None:
        self._count = count
        self._now = now
        self._warned: dict[str, float] = {}

    def note(self, session: Session, why: str) -> None:
        """Count a refusal; a name's first in a minute is written to the log."""
        name = session.software or UNNAMED
        if name not in self._warned and (len(self._warned) >= CLIENTS_MAX or len(name) > NAME_MAX):
            name = OTHER
        self._count(name)
        now = self._now()
        if now - self._warned.get(name, -SAY_AGAIN_S) < SAY_AGAIN_S:
            return
        self._warned[name] = now
        logger.warning(
            "refused the client %s %s (%r) at %s: %s; further refusals are only counted for a "
            "minute",
            *(name, session.software_version, session.client_id[:NAME_MAX], session.host, why),
        )


class VainFetches:
    """Warns once of each group whose consumers fetch records that are in a Kafka cluster.

    Such a consumer joins, owns partitions, and never reads anything: neither it nor its group shows
    a fault. A Fetch names no group, so the group is found by the client's id and address, which
    are those of the connection that joined.

    Parameters
    ----------
    topics
        Those of the cluster.
    """

    def __init__(self, topics: Callable[[], TopicView]) -> None:
        self._topics = topics
        self._joined: dict[tuple[str, str], dict[str, None]] = {}
        self._warned: dict[str | None, None] = {}

    def note(self, request: Request) -> None:
        """Look at a request: a member that joins, or a Fetch."""
        if request.api is Api.FETCH:
            self._note_fetch(request)
        elif request.api is Api.JOIN_GROUP or (
            request.api is Api.CONSUMER_GROUP_HEARTBEAT and request.body.member_epoch == JOIN
        ):
            groups = self._joined.setdefault(_client_of(request), {})
            groups[request.body.group_id] = None
            _drop_first(groups, GROUPS_MAX)
            _drop_first(self._joined, JOINED_MAX)

    def _note_fetch(self, request: Request) -> None:
        groups: Iterable[str | None] = self._joined.get(_client_of(request)) or (None,)
        unwarned = [group for group in groups if group not in self._warned]
        topic = self._find_topic(request) if unwarned else None
        if topic is None:
            return
        session = request.session
        for group in unwarned:
            self._warned[group] = None
            _drop_first(self._warned, WARNED_MAX)
            logger.warning(
                "%s fetches records of topic %s here (client %r at %s), where there are none: they "
                "are in the Kafka cluster that the topic comes from. It will own partitions and "
                "read nothing; the guide's page 'With a real Kafka' says what to do",
                "a consumer without a group" if group is None else f"group {group!r}",
                *(topic, session.client_id[:NAME_MAX], session.host),
            )

    def _find_topic(self, request: Request) -> str | None:
        """Return the first topic of a Fetch that the cluster has."""
        view = self._topics()
        for one in request.body.topics:
            name = getattr(one, "topic", "")
            known = view.by_name.get(name) or view.by_id.get(
                from_uuid(getattr(one, "topic_id", None))
            )
            if known is not None:
                return known.key.name
        return None


def _client_of(request: Request) -> tuple[str, str]:
    return request.session.host, request.session.client_id


def _drop_first(kept: dict[Any, Any], most: int) -> None:
    """Forget what is kept longest, beyond so many."""
    while len(kept) > most:
        del kept[next(iter(kept))]
