"""What a member is given: checked, and made into its driver."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any, TypeAlias

from coordinator.core.bounded import INT32_MAX
from coordinator.member.application import Application, Callback
from coordinator.member.driver import Driver
from coordinator.member.events import UNSAID_MS, MemberSettings, Subscribe
from coordinator.member.in_process import InProcess
from coordinator.member.transport import TopicPartition, Transport

if TYPE_CHECKING:
    from coordinator.member.client_tokens import Login
    from coordinator.runtime.async_coordinator import AsyncCoordinator
    from coordinator.runtime.coordinator import Coordinator

AsyncCallback: TypeAlias = Callable[[Sequence[TopicPartition]], Awaitable[object] | object]
Place: TypeAlias = tuple[str, int]
"""A topic and a partition's number: a TopicPartition is one."""
PATIENCE_S = 30.0
TEXT_MAX = 32_767
"""How many bytes Kafka's strings have at most."""
INT64_MAX = 2**63 - 1


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
        still the member's own, or lost: then another member may have it already.
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
    heartbeat_interval_ms
        How often it asks for its partitions, where the coordinator would have it ask less often
        (`group.consumer.heartbeat.interval.ms`, 5 s by default). What others give up, it gets with
        its next heartbeat. None: as the coordinator says, or as `hasten` does.
    keeps_ms
        For how long it keeps its partitions while the coordinator is silent. None: for most of the
        session. Give more only where the next owner of a partition fences the one before.
    max_poll_interval_ms
        How long work may go without asking its `stop`; then the member gives up its partitions and
        joins again when the work has ended. None: as long as it likes.
    tls
        For connections to brokers; None: plain.
    login
        (mechanism, user, password), of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; or a function that
        returns a token, for OAUTHBEARER: it is called in a thread, whenever one is needed. None:
        none.

    Raises
    ------
    ValueError
        What is given cannot be a member; the message names the value.
    """

    _driver: Driver | None = None

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
        heartbeat_interval_ms: int | None = None,
        keeps_ms: int | None = None,
        max_poll_interval_ms: int | None = None,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        check_times(
            rebalance_timeout_ms=rebalance_timeout_ms,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            keeps_ms=keeps_ms,
            max_poll_interval_ms=max_poll_interval_ms,
        )
        check_texts(group_id=group_id)
        for name, text in (
            ("member_id", member_id),
            ("instance_id", instance_id),
            ("rack_id", rack_id),
            ("server_assignor", server_assignor),
        ):
            if text is not None:
                check_texts(**{name: text})
        if client_id != "":
            check_texts(client_id=client_id)
        self._callbacks: tuple[Callback | None, ...] = (on_assigned, on_revoked, on_lost)
        for callback in self._callbacks:
            if callback is not None and not callable(callback):
                raise ValueError(f"{callback!r} must be callable with a list of TopicPartition")
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
            heartbeat_interval_ms or UNSAID_MS,
            keeps_ms,
        )
        self._coordinator, self._tls, self._login = coordinator, tls, login
        self._transport()  # refuses what leads nowhere

    @property
    def group_id(self) -> str:
        """The group."""
        return self._settings.group_id

    @property
    def member_id(self) -> str:
        """The member's id, which descriptions of the group show."""
        return self._settings.member_id

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """Its partitions on which work is paused."""
        return frozenset() if self._driver is None else self._driver.paused()

    @property
    def failure(self) -> BaseException | None:
        """What ended it: a refusal for good, or what its work or a callback raised."""
        return None if self._driver is None else self._driver.failure

    @property
    def has_left(self) -> bool:
        """Whether it has left the group, or was not opened."""
        return self._driver is None or self._driver.has_left()

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
        found = getattr(found, "coordinator", found)
        if not hasattr(found, "submit"):
            raise ValueError(f"{found!r} is not a coordinator: give a Coordinator, or host:port")
        return InProcess(found)


def subscription(
    topics: Sequence[str] | str, pattern: str, server_assignor: str | None
) -> Subscribe:
    """Return what is subscribed to; ValueError when that is nothing."""
    given: Any = (topics,) if isinstance(topics, str) and topics else topics
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise ValueError(f"topics is {topics!r}: give names")  # noqa: TRY004
    names = tuple(given)
    if not names and not pattern:
        raise ValueError("topics and pattern are empty: subscribe to something")
    for name in names:
        check_texts(topics=name)
    if pattern:
        check_texts(pattern=pattern)
    return Subscribe(names, pattern, server_assignor)


def check_times(**times: int | None) -> None:
    """Refuse what is not a timeout in milliseconds; None means no timeout."""
    for name, value in times.items():
        if value is not None and not (_are((value,), int) and 0 < value <= INT32_MAX):
            raise ValueError(f"{name} is {value!r}: give milliseconds, from 1 to {INT32_MAX}")


def _are(values: tuple[Any, ...], *kinds: type) -> bool:
    """Whether values are of these types, in order; True and False are not numbers."""
    return len(values) == len(kinds) and all(
        isinstance(value, kind) and not isinstance(value, bool)
        for value, kind in zip(values, kinds, strict=True)
    )


def check_texts(**texts: object) -> None:
    """Refuse what no coordinator could read: no text, an empty or a very long one."""
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            raise ValueError(f"{name} is {text!r}: give a text that is not empty")
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            raise ValueError(f"{name} is {text!r}: {error}") from None
        if size > TEXT_MAX:
            raise ValueError(f"{name} has {size} bytes: give at most {TEXT_MAX}")


def check_timeout(seconds: float | None) -> float | None:
    """Return how long to wait; ValueError for what is not a number of seconds."""
    if seconds is None or (isinstance(seconds, int | float) and not isnan(seconds)):
        return seconds
    raise ValueError(f"timeout is {seconds!r}: give seconds, or None")


def read_offsets(
    offsets: Mapping[Place, int | tuple[int, str]],
) -> dict[TopicPartition, tuple[int, str]]:
    """Return offsets with their metadata; ValueError for an invalid one."""
    if not isinstance(offsets, Mapping):
        raise ValueError(f"offsets is {offsets!r}: give {{partition: offset}}")  # noqa: TRY004
    found = {}
    for place, value in offsets.items():
        pair = value if isinstance(value, tuple) else (value, "")
        if not _are(pair, int, str) or not 0 <= pair[0] <= INT64_MAX:
            raise ValueError(
                f"the offset of {place} is {value!r}: give a number from 0 to {INT64_MAX}, or "
                "(number, metadata)"
            )
        if pair[1]:
            check_texts(metadata=pair[1])
        found[place_of(place)] = pair
    return found


def place_of(place: Place) -> TopicPartition:
    """Return a partition; ValueError for an invalid one."""
    if not isinstance(place, tuple) or not _are(place, str, int):
        raise ValueError(f"{place!r} is not a partition: give (topic, number)")
    return TopicPartition(*place)
