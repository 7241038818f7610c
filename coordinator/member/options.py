"""What a member is given: checked, and made into its driver."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from coordinator.member.application import Application, Callback
from coordinator.member.driver import Driver
from coordinator.member.events import MemberSettings, Subscribe
from coordinator.member.in_process import InProcess
from coordinator.member.transport import TopicPartition, Transport

if TYPE_CHECKING:
    from coordinator.runtime.async_coordinator import AsyncCoordinator
    from coordinator.runtime.coordinator import Coordinator

AsyncCallback: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[object] | object]
Place: TypeAlias = tuple[str, int]
"""A topic and a partition's number: a TopicPartition is one."""
PATIENCE_S = 30.0


class MemberOptions:
    """What `Member` and `AsyncMember` have in common.

    Parameters
    ----------
    coordinator
        A `Coordinator` or `AsyncCoordinator` of this process; or "host:port" of `muster serve` or
        of a Kafka 4 broker, several as a list or with commas.
    group_id
        The group to join.
    topics
        Topics by name, or one topic.
    pattern
        Topics by a regular expression of RE2, beside those by name.
    on_assigned, on_revoked, on_lost
        Called with a list of TopicPartition. A partition that was assigned is revoked while it is
        still the member's own, or lost: then somebody else may have it already.
    member_id
        One incarnation of a member; left out, a new one.
    instance_id
        Makes it a static member, which keeps its partitions while it restarts.
    rack_id, server_assignor, client_id
        Where it runs, the assignor it wishes, what descriptions of the group say of it.
    rebalance_timeout_ms
        How long it may take to stop its work and give up partitions.
    session_timeout_ms
        The group's setting, where the coordinator does not tell: without a heartbeat for that long
        it is removed. The member stops its work before.
    max_poll_interval_ms
        How long work may go without asking its `stop`; then the member gives up its partitions and
        joins again when the work has ended. None: as long as it likes.
    tls
        For connections to brokers; None: plain.
    login
        (mechanism, user, password), of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; None: none.

    Raises
    ------
    ValueError
        What is given cannot be a member; the message names the value.
    """

    def __init__(
        self,
        coordinator: Coordinator | AsyncCoordinator | str | Sequence[str],
        *,
        group_id: str,
        topics: Sequence[str] | str = (),
        pattern: str = "",
        on_assigned: AsyncCallback | None = None,
        on_revoked: AsyncCallback | None = None,
        on_lost: AsyncCallback | None = None,
        member_id: str | None = None,
        instance_id: str | None = None,
        rack_id: str | None = None,
        server_assignor: str | None = None,
        client_id: str = "muster",
        rebalance_timeout_ms: int = 60_000,
        session_timeout_ms: int = 45_000,
        max_poll_interval_ms: int | None = None,
        tls: ssl.SSLContext | None = None,
        login: tuple[str, str, str] | None = None,
    ) -> None:
        for name, value in (
            ("rebalance_timeout_ms", rebalance_timeout_ms),
            ("session_timeout_ms", session_timeout_ms),
            ("max_poll_interval_ms", max_poll_interval_ms),
        ):
            if value is not None and (not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} is {value!r}: give milliseconds, at least 1")
        if not isinstance(group_id, str) or not group_id:
            raise ValueError(f"group_id is {group_id!r}: give the group's name")
        self._callbacks: tuple[Callback | None, ...] = (on_assigned, on_revoked, on_lost)
        self._max_poll_interval_ms = max_poll_interval_ms
        self._subscription = subscription(topics, pattern, server_assignor)
        self._settings = MemberSettings(
            group_id,
            member_id or str(uuid.uuid4()),
            instance_id,
            rack_id,
            client_id,
            rebalance_timeout_ms,
            session_timeout_ms,
        )
        self._coordinator, self._tls, self._login = coordinator, tls, login
        if isinstance(coordinator, str | list | tuple):
            self._transport()  # refuses what is no address

    @property
    def group_id(self) -> str:
        """The group."""
        return self._settings.group_id

    @property
    def member_id(self) -> str:
        """The member's id, which descriptions of the group show."""
        return self._settings.member_id

    def _make_driver(self, make_application: Callable[..., Application]) -> Driver:
        """Return a driver in the running loop, which joins."""
        driver = Driver(
            self._settings,
            self._transport(),
            lambda is_over, fail: make_application(*self._callbacks, is_over, fail),
            self._max_poll_interval_ms,
        )
        driver.subscribe(self._subscription)
        return driver

    def _transport(self) -> Transport:
        found: Any = self._coordinator
        if isinstance(found, str | list | tuple):
            from coordinator.member.kafka import Kafka  # noqa: PLC0415 - the codec takes its time

            return Kafka(found, self._settings, self._tls, self._login)
        return InProcess(getattr(found, "coordinator", found))


def subscription(
    topics: Sequence[str] | str, pattern: str, server_assignor: str | None
) -> Subscribe:
    """Return what is subscribed to; ValueError when that is nothing."""
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names and not pattern:
        raise ValueError("topics and pattern are empty: subscribe to something")
    if not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"topics is {topics!r}: give names")
    return Subscribe(names, pattern, server_assignor)


def read_offsets(
    offsets: Mapping[Place, int | tuple[int, str]],
) -> dict[TopicPartition, tuple[int, str]]:
    """Return offsets with their metadata; ValueError for what is none."""
    found = {}
    for place, value in offsets.items():
        offset, metadata = value if isinstance(value, tuple) else (value, "")
        if not isinstance(offset, int) or offset < 0:
            raise ValueError(f"the offset of {place} is {offset!r}: give a number from 0 on")
        found[place_of(place)] = (offset, metadata)
    return found


def place_of(place: Place) -> TopicPartition:
    """Return a partition; ValueError for what is none."""
    topic, number = place
    if not isinstance(topic, str) or not isinstance(number, int):
        raise ValueError(f"{place!r} is no partition: give (topic, number)")  # noqa: TRY004
    return TopicPartition(topic, number)
