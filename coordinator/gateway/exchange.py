"""One client's connection, without any I/O: which requests Kafka answers, and which Muster.

Bytes of the client go in, and come out divided; answers of both go in, and come out in the order of
the requests. Requests and answers of the cluster pass through as they come, whole or in pieces: of
most only the head is read. What it holds is bounded: a head, one request that is read whole, and
answers that wait for those before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container
from enum import Enum, auto
from struct import Struct
from typing import Any, NamedTuple

from kio.index import load_response_schema

from coordinator.gateway.addresses import NAMES_BROKERS, PlaceOf, rewrite
from coordinator.gateway.broker_login import BrokerLogin
from coordinator.gateway.offer import LOGINS, SHARED, Versions
from coordinator.gateway.request_heads import is_about_groups, wants_answer
from coordinator.wire.call import REQUEST_BYTES_MOST
from coordinator.wire.codec import LENGTH, VERSIONS, Api, Request, Values, decode, encode
from coordinator.wire.decoder import WireError, entity_reader, read_whole

HEAD = Struct(">ihhi")
"""Of a request: length, API, version, correlation id."""
ANSWER_HEAD = Struct(">ii")
REQUEST_LEAST = HEAD.size - LENGTH.size
REWRITTEN = frozenset(map(int, NAMES_BROKERS))
LOGIN = frozenset(map(int, LOGINS))
BEFORE_LOGIN = LOGIN | {Api.API_VERSIONS}
LOGIN_BYTES_MAX = 1 << 14
NOT_FORWARDED = (0, -1)
KEPT_ANSWERS = 1 << 16
"""Bytes of Muster's answers that may wait for the client to read, or for answers before them."""
SLOTS_MAX, SLOTS_AGAIN = 64, 32
"""How many requests may wait for their answers, and how few before more are taken. A broker takes
one of a connection at a time."""
DECIDED_MAX = 256
"""Requests that are decided on in one call: other connections have their turn before the next."""


class Slot(NamedTuple):
    """The place of a request's answer.

    Attributes
    ----------
    api, version
        Of an answer of Kafka that is read; -1 of one that goes on as it comes.
    frame
        An answer that is known.
    """

    number: int
    ours: bool = False
    api: int = -1
    version: int = -1
    frame: bytes = b""


class To(Enum):
    """Who answers a request."""

    KAFKA = auto()
    MUSTER = auto()
    GATEWAY = auto()
    """Here: its answer is known."""


class Piece(NamedTuple):
    """Bytes of requests, and who answers them."""

    to: To
    data: bytes | memoryview


class Exchange:
    """The order of requests and answers on a connection.

    Parameters
    ----------
    forwarded
        Which APIs and versions go to the cluster now.
    place_of
        Where the gateway serves a broker.
    may_ask
        Whether the client has logged in here; until then all that it sends is Muster's.
    login
        Of a client that logs in at the broker; None: it does so here, or not at all.
    lists_groups
        Whether groups are listed here; they are at one broker, for tools ask each.
    shared
        APIs that are Muster's where they are about groups; else they are the cluster's.
    """

    def __init__(
        self,
        forwarded: Callable[[], Versions],
        place_of: PlaceOf,
        may_ask: Callable[[], bool] = lambda: True,
        login: BrokerLogin | None = None,
        lists_groups: Callable[[], bool] = lambda: True,
        shared: Container[int] = SHARED,
    ) -> None:
        self._forwarded, self._place_of = forwarded, place_of
        self._may_ask, self.login, self._lists_groups = may_ask, login, lists_groups
        self._shared = shared
        self._slots: deque[Slot] = deque()
        self._begun = bytearray()
        self._need = 0
        """Of a request whose head is not whole, or that waits for a login before it; and how many
        bytes there must be before it is looked at again."""
        self._left = 0
        self._to = To.GATEWAY
        """How many bytes are left of the request that is under way, and who answers it."""
        self._from_kafka = b""
        self._answer_left = 0
        self._from_muster: deque[bytes] = deque()
        self._kept = 0
        self._logs_in = self._full = self._held = False
        """Whether the answer to a login is awaited, as many requests wait as may, and more of them
        are there."""

    # Requests ------------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether so many requests wait that no more are taken, or a login does."""
        waiting = len(self._slots)
        self._full = waiting >= SLOTS_MAX or (self._full and waiting > SLOTS_AGAIN)
        return self._full or self._logs_in

    @property
    def has_unread(self) -> bool:
        """Whether requests that are there can be taken now."""
        return self._held and not self.is_full

    def take_requests(self, data: bytes) -> list[Piece]:
        """Take bytes of the client, and return them divided.

        Raises
        ------
        WireError
            It is not a request, or one that may not be made now.
        """
        if not self._begun and 0 < len(data) <= self._left:
            self._left -= len(data)
            return [] if self._to is To.GATEWAY else [Piece(self._to, data)]
        if self._begun:
            self._begun += data
            if len(self._begun) < self._need and not self.has_unread:
                return []
            data, self._begun = bytes(self._begun), bytearray()
            self._held = False
        pieces: list[Piece] = []
        view, at, begin, decided = memoryview(data), 0, 0, 0
        while at < len(data):
            if not self._left:
                self._held = decided >= DECIDED_MAX or self.is_full
                decided += 1
                to = None if self._held else self._decide(data, at)
                if to is not self._to:
                    _add(pieces, self._to, view[begin:at])
                    begin = at
                if to is None:
                    self._keep(view[at:])
                    return pieces
                self._to = to
            taken = min(self._left, len(data) - at)
            self._left -= taken
            at += taken
        _add(pieces, self._to, view[begin:at])
        return pieces

    def _keep(self, rest: memoryview) -> None:
        """Keep what cannot be decided yet. It is looked at seldom: bytes may come one by one."""
        self._begun = bytearray(rest)
        self._need = max(2 * len(rest), HEAD.size)
        if len(rest) >= LENGTH.size:
            self._need = min(self._need, LENGTH.size + LENGTH.unpack_from(rest)[0])

    def _decide(self, data: bytes, at: int) -> To | None:
        """Return who answers the next request; None while too little of it is there."""
        if len(data) - at >= LENGTH.size:
            _check_length(*LENGTH.unpack_from(data, at))
        if len(data) - at < HEAD.size:
            return None
        length, api, version, number = HEAD.unpack_from(data, at)
        if self.login is not None and not self.login.done and api not in BEFORE_LOGIN:
            raise WireError(f"API {api} before the client has logged in")
        low, high = self._forwarded().get(api, NOT_FORWARDED)
        found: tuple[To, Slot | None] | None
        if not low <= version <= high or not self._may_ask():
            found = self._leave_to_muster(api, version, number)
        elif api in LOGIN:
            found = self._log_in(data, at)
        elif api in self._shared and (ours := is_about_groups(data, at, api, version)) is not False:
            found = None if ours is None else self._leave_to_muster(api, version, number)
        elif api == Api.PRODUCE:
            answered = wants_answer(data, at, version)
            found = None if answered is None else (To.KAFKA, Slot(number) if answered else None)
        else:
            read = api if api in REWRITTEN else -1
            found = To.KAFKA, Slot(number, api=read, version=version)
        if found is None:
            return None
        to, slot = found
        if slot is not None:
            self._slots.append(slot)
        self._left = LENGTH.size + length
        return to

    def _leave_to_muster(self, api: int, version: int, number: int) -> tuple[To, Slot]:
        """Have Muster answer, or refuse: a request for groups, or one that is not offered."""
        low, high = VERSIONS[Api.LIST_GROUPS]
        listed = api == Api.LIST_GROUPS and low <= version <= high and self._may_ask()
        if listed and not self._lists_groups():
            none: Values = {"error_code": 0, "groups": ()}
            frame = encode(Request(Api.LIST_GROUPS, version, number), none)
            return To.GATEWAY, Slot(number, frame=frame)
        return To.MUSTER, Slot(number, ours=True)

    def _log_in(self, data: bytes, at: int) -> tuple[To, Slot] | None:
        """Send a login on; nothing that comes behind it is looked at before its answer."""
        assert self.login is not None
        frame = _take_whole(data, at, LOGIN_BYTES_MAX)
        if frame is None:
            return None
        request = decode(frame, versions=VERSIONS)
        number = request.correlation_id
        refused = self.login.refuse(request)
        if refused is not None:
            return To.GATEWAY, Slot(number, frame=encode(request, refused))
        self._logs_in = True
        return To.KAFKA, Slot(number, api=request.api, version=request.version)

    # Answers -------------------------------------------------------------------------------------

    @property
    def kept_bytes(self) -> int:
        """Of Muster's answers that cannot go yet."""
        return self._kept

    @property
    def held_bytes(self) -> int:
        """Of requests that are not decided yet, and of Kafka's answers that cannot go yet."""
        return len(self._begun) + len(self._from_kafka)

    @property
    def keeps_kafka_waiting(self) -> bool:
        """Whether an answer of Kafka's waits for one of Muster's."""
        return bool(self._from_kafka and self._slots) and self._slots[0].ours

    @property
    def ends(self) -> bool:
        """Whether the connection should be closed: the login was refused, and the client knows."""
        return self.login is not None and self.login.failed and not self._slots

    def hear_muster(self, frames: bytes) -> None:
        """Take answers of Muster's, in the order of its requests."""
        at = 0
        while at < len(frames):
            end = at + LENGTH.size + LENGTH.unpack_from(frames, at)[0]
            self._from_muster.append(frames[at:end])
            at = end
        self._kept += len(frames)

    def hear_kafka(self, data: bytes) -> list[bytes | memoryview]:
        """Take bytes of the broker, and return what goes to the client now.

        Raises
        ------
        WireError
            It is not the answer to what was asked.
        """
        if not self._from_kafka and len(data) <= self._answer_left:
            self._answer_left -= len(data)
            return [data] if self._answer_left else [data, *self.take_answers()]
        self._from_kafka += data
        return self.take_answers()

    def take_answers(self) -> list[bytes | memoryview]:
        """Return what goes to the client now: the answers that wait for none before them.

        Raises
        ------
        WireError
            The broker's answer does not fit the request.
        """
        data = self._from_kafka
        out: list[bytes | memoryview] = []
        view, at, begin = memoryview(data), 0, 0
        while True:
            if self._answer_left:
                taken = min(self._answer_left, len(data) - at)
                self._answer_left -= taken
                at += taken
                if self._answer_left:
                    break
            if not self._slots:
                if at < len(data):
                    raise WireError("the broker answers what was not asked")
                break
            slot = self._slots[0]
            frame = slot.frame or (self._next_of_muster() if slot.ours else None)
            if frame is None and not slot.ours:
                found = self._start_answer(slot, data, at)
                if found is None:
                    break
                frame, replaced = found
            elif frame is None:
                break
            else:
                replaced = 0
            self._slots.popleft()
            if frame:
                _add_bytes(out, view[begin:at])
                out.append(frame)
                at += replaced
                begin = at
        _add_bytes(out, view[begin:at])
        self._from_kafka = data[at:]
        return out

    def _next_of_muster(self) -> bytes | None:
        if not self._from_muster:
            return None
        frame = self._from_muster.popleft()
        self._kept -= len(frame)
        return frame

    def _start_answer(self, slot: Slot, data: bytes, at: int) -> tuple[bytes, int] | None:
        """Begin an answer of Kafka's; None while too little of it is there.

        Returns
        -------
        tuple
            What its beginning is replaced with, and how long that is; the rest goes as it comes.
        """
        if len(data) - at < ANSWER_HEAD.size:
            return None
        length, number = ANSWER_HEAD.unpack_from(data, at)
        if number != slot.number or length < LENGTH.size:
            raise WireError(f"the broker answers request {number}, not {slot.number}")
        whole = LENGTH.size + length
        if slot.api in REWRITTEN:
            found = rewrite(slot.api, slot.version, data[at:], self._place_of)
            if found is None:
                return None
            self._answer_left = whole - found.taken
            return found
        if slot.api in LOGIN:
            frame = _take_whole(data, at, LOGIN_BYTES_MAX)
            if frame is None:
                return None
            assert self.login is not None
            self.login.take_answer(Api(slot.api), _read_answer(slot, frame))
            self._logs_in = False
        self._answer_left = whole
        return b"", 0


def _add(pieces: list[Piece], to: To, data: memoryview) -> None:
    if data and to is not To.GATEWAY:
        pieces.append(Piece(to, data))


def _add_bytes(out: list[bytes | memoryview], data: memoryview) -> None:
    if data:
        out.append(data)


def _check_length(length: int) -> None:
    if not REQUEST_LEAST <= length <= REQUEST_BYTES_MOST:
        raise WireError(f"a request of {length} bytes: at most {REQUEST_BYTES_MOST} are allowed")


def _take_whole(data: bytes, at: int, most: int) -> bytes | None:
    """Return a message without its length; None while it is not whole."""
    (length,) = LENGTH.unpack_from(data, at)
    if length > most:
        raise WireError(f"a message of {length} bytes, at most {most} are read")
    start = at + LENGTH.size
    return data[start : start + length] if len(data) - start >= length else None


def _read_answer(slot: Slot, frame: bytes) -> Any:  # noqa: ANN401 - kio's message
    message: Any = load_response_schema(slot.api, slot.version)
    _, at = read_whole(entity_reader(message.__header_schema__), frame)
    return read_whole(entity_reader(message), frame, at)[0]
