"""One client's connection, without any I/O.

Bytes go in, requests come out; answers go in, whenever they are ready, and bytes come out in the
order of the requests. It knows no socket, no clock and no coordinator. What it holds is bounded:
one incomplete request of a bounded size, and so many requests that wait for their answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from coordinator.wire.codec import (
    DECODED_AT_ONCE_BYTES,
    HEAD,
    LARGE,
    LENGTH,
    VERSIONS,
    Api,
    Request,
    decode,
    encode,
    name_request,
)
from coordinator.wire.conversation import Conversation
from coordinator.wire.decoder import WireError
from coordinator.wire.sasl import Login
from coordinator.wire.session import Session, principal_of

BEFORE_LOGIN = {Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}
BRIEF = {Api.CONSUMER_GROUP_HEARTBEAT, Api.HEARTBEAT, Api.OFFSET_COMMIT}
"""What members send all the time, by the number that a request begins with: the order of requests
is chosen before they are decoded. `futures.BRIEF` has the same requests as events, since
callers in this process send no number, and the loop needs no codec; a test keeps both equal."""
CORRELATION_ID_END = HEAD.size
REQUESTS_BEFORE_LOGIN_MAX, BYTES_BEFORE_LOGIN_MAX = 20, DECODED_AT_ONCE_BYTES
"""How many requests a client may send before its login, and how large each; clients send four or
five short ones."""
REPEATED = {Api.CONSUMER_GROUP_HEARTBEAT, Api.HEARTBEAT}
REPEATABLE_BYTES_MAX = 512
"""Heartbeats that are longer are not remembered: they carry partitions, and are rare."""
NAMED_IN_BYTES = 2_048
"""So many bytes of a request say what it is, and of which group."""
KEPT_BYTES = 1 << 16
"""Bytes of answered requests that may stay in the buffer before it is moved together."""


@dataclass(slots=True, eq=False)
class PendingRequest:
    """A request that waits for its answer.

    Attributes
    ----------
    size
        How many bytes it came in.
    long
        Whether it takes so long that it is read, or its answer is written, beside everything else.
    check
        Of a login: what takes long before `Connection.log_in` can answer it.
    """

    request: Request
    frame: bytes | None = None
    size: int = 0
    long: bool = False
    check: Callable[[], object] | None = None


class Connection:
    """The protocol state of one client's connection.

    Parameters
    ----------
    client_host
        Where the client is, as the coordinator records it.
    request_bytes_max, in_flight_max
        How large a request may be, and how many may wait for their answers.
    room
        How many bytes, and elements, a request may have beyond these limits; asked when one does.
    login
        What clients must do before anything else; None lets everyone in.
    subject
        Of the certificate that the client showed; None without one. A login wins over it.
    elements_max
        How many elements the lists of a request may have.
    versions
        What is served: the lowest and highest version of each API.

    Attributes
    ----------
    session
        Who the client is; anonymous until it has logged in.
    login_requests, login_bytes
        What came until it had; the client owes them to its quota.
    """

    def __init__(
        self,
        client_host: str,
        request_bytes_max: int,
        in_flight_max: int,
        login: Login | None = None,
        subject: str | None = None,
        elements_max: int | None = None,
        versions: Mapping[Api, tuple[int, int]] = VERSIONS,
        room: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self.session = Session(host=client_host.removeprefix("/"))
        if subject is not None:
            self.session.principal = principal_of(subject)
        self._client_host = client_host
        self._request_bytes_max = request_bytes_max
        self._in_flight_max = in_flight_max
        self._elements_max = elements_max
        self._room = room or (lambda: (0, 0))
        self._versions = versions
        self._login = login
        self.login_requests = self.login_bytes = 0
        self._buffer = bytearray()
        self._at = 0
        self._pending: deque[PendingRequest] = deque()
        self._last: Request | None = None
        self._last_body = b""
        self._conversation = Conversation()

    @property
    def buffered_bytes(self) -> int:
        """How many received bytes are not yet decoded as requests."""
        return len(self._buffer) - self._at

    @property
    def full(self) -> bool:
        """Whether the limit of requests in flight is reached."""
        return len(self._pending) >= self._in_flight_max

    @property
    def authenticated(self) -> bool:
        """Whether the client has authenticated, or need not."""
        return self._login is None or self._login.done

    @property
    def may_ask(self) -> bool:
        """Whether the client has authenticated, or need not, and its session goes on."""
        return self._login is None or (self._login.done and not self._login.has_ended)

    @property
    def user(self) -> str | None:
        """The user who has logged in; None before a login, and with a token."""
        return None if self._login is None else self._login.user

    @property
    def claimed_principal(self) -> str:
        """The principal that the client claims to be, authenticated or not."""
        return principal_of(self._login.name) if self._login is not None else ""

    @property
    def login_failed(self) -> bool:
        """Whether the login failed: send the pending answers, then close."""
        return self._login is not None and self._login.failed

    def receive(self, data: bytes) -> None:
        """Add received bytes to the buffer, in pieces of any size."""
        self._buffer += data

    @property
    def is_next_brief(self) -> bool:
        """Whether the next request is what members send all the time, or not there yet."""
        at = self._at
        if self.full or len(self._buffer) < at + LENGTH.size + HEAD.size:
            return True
        (length,) = LENGTH.unpack_from(self._buffer, at)
        if len(self._buffer) < at + LENGTH.size + length:
            return True
        return HEAD.unpack_from(self._buffer, at + LENGTH.size)[0] in BRIEF

    def next_request(self) -> PendingRequest | None:
        """Return the next request to answer; None until more bytes or answers arrive.

        Raises
        ------
        WireError
            What came is not a request that we serve; nothing after it can be understood.
        """
        while not self.full and not self.login_failed:
            frame = self._frame()
            if frame is None:
                return None
            request = self._request(frame)
            pending = PendingRequest(
                request, size=len(frame), long=bool(request.unread) or request.api in LARGE
            )
            self._pending.append(pending)
            login = self._login
            if login is not None and login.done:
                login = self._prolong(login, request)
            if login is not None and not login.done:
                self._count_before_login(request, len(frame))
                if request.api is not Api.API_VERSIONS:
                    pending.check = login.find_check(request)
                    if pending.check is None:
                        self.log_in(pending)
                        continue
            return pending
        return None

    def _prolong(self, login: Login, request: Request) -> Login:
        """Begin the next login of a session that ends (KIP-368); refuse others once it has."""
        again = login.again() if request.api is Api.SASL_HANDSHAKE else None
        if again is None and login.has_ended:
            raise WireError(f"{request.api.name} after the session ended: the client must log in")
        self._login = again or login
        return self._login

    def _count_before_login(self, request: Request, size: int) -> None:
        """Count a request of a client that has not logged in, and refuse what it may not send."""
        self.login_requests += 1
        self.login_bytes += size
        if request.api not in BEFORE_LOGIN:
            raise WireError(f"{request.api.name} before the client has logged in")
        if self.login_requests > REQUESTS_BEFORE_LOGIN_MAX:
            raise WireError(f"more than {REQUESTS_BEFORE_LOGIN_MAX} requests before a login")

    def take_login(self) -> tuple[int, int]:
        """Return once how many requests and bytes a login took; 0 before it is done."""
        if not self.login_requests or not self.authenticated:
            return 0, 0
        taken = self.login_requests, self.login_bytes
        self.login_requests = self.login_bytes = 0
        return taken

    def log_in(self, pending: PendingRequest, found: object = None) -> None:
        """Answer a login request with what its check found."""
        assert self._login is not None
        pending.frame = encode(pending.request, self._login.answer(pending.request, found))
        if self.authenticated:
            self.session.principal = principal_of(self._login.name)

    def take_answers(self) -> bytes:
        """Return the bytes to send now: all answers before the first that is not ready."""
        pending = self._pending
        if not pending or pending[0].frame is None:
            return b""
        first = pending.popleft().frame
        if not pending or pending[0].frame is None:
            return first  # type: ignore[return-value] # looked at above
        frames = [first]
        while pending and pending[0].frame is not None:
            frames.append(pending.popleft().frame)
        return b"".join(frames)  # type: ignore[arg-type] # none of them is None

    def _request(self, frame: bytes) -> Request:
        """Decode a frame; a heartbeat equal to the last one is not decoded again."""
        if self._last is not None and frame[CORRELATION_ID_END:] == self._last_body:
            api, version, correlation_id = HEAD.unpack_from(frame)
            if (api, version) == (self._last.api, self._last.version):
                self._last = self._last.with_correlation_id(correlation_id)
                return self._last
        elements_max = self._elements_max
        if elements_max is not None and len(frame) > elements_max:  # each takes a byte at least
            elements_max = max(elements_max, self._room()[1])
        request = decode(frame, elements_max, self._versions)
        request.client_host = self._client_host
        request.conversation = self._conversation
        request.session = self.session
        self.session.client_id = request.client_id
        if request.api is Api.API_VERSIONS:
            names = ("client_software_name", "client_software_version")
            self.session.introduce(*(getattr(request.body, name, "") for name in names))
        if request.api in REPEATED and len(frame) <= REPEATABLE_BYTES_MAX:
            self._last, self._last_body = request, frame[CORRELATION_ID_END:]
            self._conversation.expect_again(request.body)
        return request

    def _frame(self) -> bytes | None:
        """Take the next whole request out of the buffer."""
        start = self._at + LENGTH.size
        if len(self._buffer) < start:
            return None
        (length,) = LENGTH.unpack_from(self._buffer, self._at)
        if length < 0:
            raise WireError(f"a request of {length} bytes")
        if length > BYTES_BEFORE_LOGIN_MAX and not self.authenticated:
            raise WireError(f"a request of {length} bytes before the client has logged in")
        if length > self._request_bytes_max:
            most = max(self._request_bytes_max, self._room()[0])
            if length > most:
                asked = name_request(bytes(self._buffer[start : start + NAMED_IN_BYTES]))
                raise WireError(
                    f"{asked} has {length} bytes, at most {most} are allowed "
                    "(server.request_bytes_max)"
                )
        end = start + length
        if len(self._buffer) < end:
            return None
        frame = bytes(memoryview(self._buffer)[start:end])
        self._at = end
        if end == len(self._buffer) or end > KEPT_BYTES:
            del self._buffer[:end]
            self._at = 0
        return frame
