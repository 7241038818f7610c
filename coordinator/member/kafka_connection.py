"""One connection of a client to a broker: requests out, answers in, by kio's schemas."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import math
import secrets
import ssl
import struct
from collections.abc import Mapping
from functools import cache
from typing import Any

from coordinator.errors import ErrorCode, GroupError
from coordinator.member.client_tokens import Login, first_message
from coordinator.wire.codec import Api
from coordinator.wire.decoder import Reader, WireError, entity_reader, read_whole
from coordinator.wire.encoder import entity_writer
from coordinator.wire.messages import load_request_schema, load_response_schema
from coordinator.wire.oauth.tokens import OAUTHBEARER, SEPARATOR
from coordinator.wire.sasl import HASHES, check_iterations, scram_keys

VERSIONS: dict[Api, tuple[int, int]] = {
    Api.FETCH: (11, 12),
    Api.LIST_OFFSETS: (5, 7),
    Api.METADATA: (10, 12),
    Api.OFFSET_COMMIT: (8, 9),
    Api.OFFSET_FETCH: (6, 9),
    Api.FIND_COORDINATOR: (3, 4),
    Api.DESCRIBE_GROUPS: (5, 5),
    Api.LIST_GROUPS: (4, 5),
    Api.SASL_HANDSHAKE: (1, 1),
    Api.API_VERSIONS: (0, 0),
    Api.DESCRIBE_CONFIGS: (4, 4),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: (0, 1),
}
"""The lowest and highest version of each API that a member or a watcher sends."""
HEAD = struct.Struct(">hhih")
LENGTH = struct.Struct(">i")
FRAME_MAX = 1 << 27
FLEXIBLE_HEADER = 2
NO_ERROR = 0
RENEW = 0.8
"""Of a session's life, after which the client logs in again."""


class KafkaConnection:
    """A connection that is logged in and knows which versions the broker has.

    Attributes
    ----------
    served
        The lowest and highest version of each API that the broker has, by its key.

    Its methods raise OSError when the connection breaks; GroupError when the broker is too old or
    refuses the login.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client_id: str,
        versions: Mapping[Api, tuple[int, int]] = VERSIONS,
    ) -> None:
        self._reader, self._writer, self._sent = reader, writer, versions
        self._client_id = client_id.encode()
        self._versions = {Api.API_VERSIONS: (0, 0)}
        self.served: dict[int, tuple[int, int]] = {}
        self._login: Login | None = None
        self._renew_at = math.inf
        """When the session needs another login, on the clock of the event loop (KIP-368)."""
        self._renewing = asyncio.Lock()
        self._given = False
        self._asked = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def open(
        cls,
        address: tuple[str, int],
        client_id: str,
        tls: ssl.SSLContext | None,
        login: Login | None,
        versions: Mapping[Api, tuple[int, int]] = VERSIONS,
    ) -> KafkaConnection:
        """Connect, learn the versions, and log in.

        Parameters
        ----------
        versions
            The lowest and highest version of each API that is sent on it.
        """
        host, port = address
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        connection = cls(reader, writer, client_id, versions)
        try:
            answer = await connection.ask(Api.API_VERSIONS)
            connection.served = {
                int(found.api_key): (int(found.min_version), int(found.max_version))
                for found in answer.api_keys
            }
            connection._versions |= {
                api: connection.served[int(api)]
                for api in versions
                if int(api) in connection.served
            }
            if login is not None:
                connection._login = login
                await connection._log_in(login)
        except BaseException:
            await connection.close()
            raise
        return connection

    async def ask(self, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's message
        """Send a request and return kio's response; before that, log in again where it is time."""
        if self._renew_at < asyncio.get_running_loop().time():
            async with self._renewing:
                if self._login and self._renew_at < asyncio.get_running_loop().time():
                    await self._log_in(self._login)
        return await self._ask(api, **fields)

    async def _ask(self, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's message
        if self._listening.done():
            raise ConnectionResetError("the connection is closed")
        version = self._choose(api)
        self._asked += 1
        number = self._asked
        found: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = found
        try:
            self._writer.write(make_frame(api, version, number, self._client_id, fields))
            await self._writer.drain()
            body = await found
        finally:
            self._waiting.pop(number, None)
        return read_response(api, version, body)

    def _choose(self, api: Api) -> int:
        """Return the newest version that both sides have."""
        least, most = self._versions.get(api, (0, -1))
        low, high = self._sent[api]
        if least > high or most < low:
            raise GroupError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the broker does not serve {api.name} {low} to {high}: a member needs muster "
                "serve or Kafka 4, offsets alone Kafka 2.8",
            )
        return min(high, most)

    async def _listen(self) -> None:
        """Hand each answer to its caller; fail them all when the connection ends."""
        failure: OSError = ConnectionResetError("the broker closed the connection")
        try:
            while True:
                (length,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
                if not LENGTH.size <= length <= FRAME_MAX:
                    failure = ConnectionError(f"an answer of {length} bytes is not one of Kafka's")
                    return
                frame = await self._reader.readexactly(length)
                waiting = self._waiting.get(LENGTH.unpack_from(frame)[0])
                if waiting is not None and not waiting.done():
                    waiting.set_result(frame)
        except asyncio.IncompleteReadError:
            pass
        except OSError as error:
            failure = error
        finally:
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(failure)
            if not self._given:
                self._writer.close()

    async def give_to(self, protocol: asyncio.Protocol) -> None:
        """Let a protocol have the connection from now on; nothing more is asked on it.

        This object must be kept for as long: the connection ends with it.
        """
        self._given = True
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        transport = self._writer.transport
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if transport.is_closing():
            protocol.connection_lost(None)

    async def close(self) -> None:
        """Close the connection; pending requests get no answer."""
        self._listening.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._listening
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    # Login ---------------------------------------------------------------------------------------

    async def _log_in(self, login: Login) -> None:
        if isinstance(login, tuple):
            mechanism, user, password = login
        else:
            mechanism, token = OAUTHBEARER, first_message(await asyncio.to_thread(login))
        answer = await self._ask(Api.SASL_HANDSHAKE, mechanism=mechanism)
        if int(answer.error_code) != NO_ERROR:
            served = ", ".join(answer.mechanisms)
            raise _login_error(f"{mechanism} is not served; {served or 'nothing'} is")
        if not isinstance(login, tuple):
            await self._send_token(token)
        elif mechanism == "PLAIN":
            await self._authenticate(f"\0{user}\0{password}".encode())
        else:
            await self._scram(mechanism, user, password)

    async def _authenticate(self, message: bytes) -> bytes:
        answer = await self._ask(Api.SASL_AUTHENTICATE, auth_bytes=message)
        if int(answer.error_code) != NO_ERROR:
            raise _login_error(answer.error_message or answer.error_code.name)
        session = getattr(answer, "session_lifetime", None)  # of old brokers, none
        lasts_s = session.total_seconds() if session else math.inf
        self._renew_at = asyncio.get_running_loop().time() + RENEW * lasts_s
        return bytes(answer.auth_bytes)

    async def _send_token(self, message: bytes) -> None:
        """Log in with a token; after a refusal one more message gets the reason (RFC 7628)."""
        reply = await self._authenticate(message)
        if reply:
            await self._authenticate(SEPARATOR.encode())
            raise _login_error(reply.decode(errors="replace"))

    async def _scram(self, mechanism: str, user: str, password: str) -> None:
        """Log in by SCRAM (RFC 5802), and have the server prove that it knows the password."""
        name, nonce = HASHES[mechanism], secrets.token_urlsafe(24)
        escaped = user.replace("=", "=3D").replace(",", "=2C")
        first = f"n={escaped},r={nonce}"
        server_first = (await self._authenticate(f"n,,{first}".encode())).decode()
        fields = {part[0]: part[2:] for part in server_first.split(",")}
        if not fields.get("r", "").startswith(nonce):
            raise _login_error("the server's nonce does not begin with ours")
        try:
            salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
            check_iterations(iterations, "the number of the server's iterations")
        except (KeyError, ValueError) as error:
            raise _login_error(f"the server's salt or iterations are invalid: {error}") from error
        key, server_key = await asyncio.to_thread(scram_keys, mechanism, password, salt, iterations)
        bare = f"c=biws,r={fields['r']}"
        signed = f"{first},{server_first},{bare}".encode()
        signature = hmac.digest(hashlib.new(name, key).digest(), signed, name)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))
        answer = await self._authenticate(f"{bare},p={proof.decode()}".encode())
        proved = b"v=" + base64.b64encode(hmac.digest(server_key, signed, name))
        if not hmac.compare_digest(answer, proved):
            raise _login_error("the server does not know the password itself")


def _login_error(why: str) -> GroupError:
    return GroupError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, f"the login is refused: {why}")


@cache
def _request_of(api: Api, version: int) -> Any:  # noqa: ANN401 - kio's class, and what writes it
    message: Any = load_request_schema(api, version)
    return message.__header_schema__.__version__, entity_writer(message)


def make_frame(api: Api, version: int, number: int, client_id: bytes, fields: Any) -> bytes:  # noqa: ANN401
    """Return a request with its length in front."""
    header_version, write = _request_of(api, version)
    out = bytearray(LENGTH.size)
    out += HEAD.pack(api, version, number, len(client_id)) + client_id
    if header_version == FLEXIBLE_HEADER:
        out.append(0)
    write(out, fields)
    LENGTH.pack_into(out, 0, len(out) - LENGTH.size)
    return bytes(out)


@cache
def _readers(api: Api, version: int) -> tuple[Reader, Reader]:
    message: Any = load_response_schema(api, version)
    return entity_reader(message.__header_schema__), entity_reader(message)


def read_response(api: Api, version: int, frame: bytes) -> Any:  # noqa: ANN401 - kio's message
    """Read a response without its length; raises ConnectionError where it is none."""
    read_header, read_body = _readers(api, version)
    try:
        _, size = read_whole(read_header, frame)
        return read_whole(read_body, frame, size)[0]
    except (WireError, ValueError, TypeError) as error:
        raise ConnectionError(f"an answer to {api.name} cannot be read: {error}") from error
