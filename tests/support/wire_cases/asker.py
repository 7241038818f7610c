"""Asks a server the cases, over sockets, and shows its answers as plain values."""

from __future__ import annotations

import io
import socket
import struct
import time
from dataclasses import fields
from itertools import count

from kio.index import load_request_schema
from kio.serial import entity_writer
from kio.serial.errors import SerialError

from coordinator.wire.codec import Api
from tests.support.wire_cases import Case, Peer, with_defaults
from tests.support.wire_client import filled, read_response, take_frame

PATIENCE_S = 5.0
CLOSED, SILENCE, HELD, UNREADABLE = "$closed", "$silence", "$held", "$unreadable"
"""The connection is closed; the next request is answered, this one is not; none is, for long."""
VOLATILE = {
    "log_end_offset", "high_watermark", "last_fetch_timestamp", "last_caught_up_timestamp",
    "total_bytes", "usable_bytes", "leader_epoch@DESCRIBE_QUORUM", "finalized_features_epoch",
}  # fmt: skip
PROBE = -99


class Asker:
    """The connections of the users with one server.

    Parameters
    ----------
    settle_s
        How long a setting that was altered may take until it is answered: a broker learns it from its
        controller after it has answered.
    """

    def __init__(
        self, address: str, peer: Peer, patience_s: float = PATIENCE_S, settle_s: float = 0.0
    ) -> None:
        self._settle_s = settle_s
        host, port = address.rsplit(":", 1)
        self._address, self.peer, self._patience_s = (host, int(port)), peer, patience_s
        self._numbers = count(1)
        self._logged_in: dict[str, socket.socket] = {}

    def close(self) -> None:
        """Close the connections."""
        for one in self._logged_in.values():
            one.close()

    def answer(self, case: Case, version: int) -> object:
        """Ask a case in a version; return the answer, CLOSED, SILENCE or HELD."""
        group = case.group(version)
        if not case.login:
            with self._connect() as sock:
                for api, of, asked in case.before:
                    self._ask(sock, api, of, asked, group)
                return self._ask(sock, case.api, version, case.asked, group)
        for api, of, asked in case.before:
            self.ask("admin", api, of, asked, group)
            if api is Api.INCREMENTAL_ALTER_CONFIGS:
                time.sleep(self._settle_s)
        return self.ask(case.user, case.api, version, case.asked, group)

    def ask(self, user: str, api: Api, version: int, asked: dict, group: str = "") -> object:
        """Ask something as a user who has logged in; return the answer, CLOSED, SILENCE or HELD."""
        sock = self._logged_in.get(user)
        if sock is None:
            sock = self._logged_in[user] = self._log_in(user)
        found = self._ask(sock, api, version, asked, group)
        if found in (CLOSED, HELD):
            self._logged_in.pop(user).close()
        return found

    def _connect(self) -> socket.socket:
        return socket.create_connection(self._address, self._patience_s)

    def _log_in(self, user: str) -> socket.socket:
        sock = self._connect()
        self._ask(sock, Api.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, "")
        login = "$hex:" + f"\0{user}\0{user}".encode().hex()
        found = self._ask(sock, Api.SASL_AUTHENTICATE, 1, {"auth_bytes": login}, "")
        assert isinstance(found, dict)
        assert found["error_code"] == 0, found
        return sock

    def _ask(self, sock: socket.socket, api: Api, version: int, asked: dict, group: str) -> object:
        number = next(self._numbers)
        silent = api is Api.PRODUCE and asked.get("acks") == 0
        plain = self.peer.plain(asked, group)
        try:
            sock.sendall(frame(api, version, number, plain))
            if silent:  # what comes first is the answer to another request, or none
                sock.sendall(frame(Api.API_VERSIONS, 0, PROBE, {}))
            found = take_frame(sock)
        except ConnectionError:
            found = b""
        except TimeoutError:
            return HELD
        if not found:
            return CLOSED
        if silent:
            if struct.unpack_from(">i", found, 4)[0] == PROBE:
                return SILENCE
            take_frame(sock)
        try:
            correlation_id, body = read_response(found, api, version)
        except (SerialError, AssertionError):
            return UNREADABLE
        assert correlation_id == number
        return self._shown(body, api, group)

    def _shown(self, body: object, api: Api, group: str) -> object:
        return _settled(self.peer.shown(body, group), api)


def _settled(value: object, api: Api) -> object:
    """Return an answer without what is another each time."""
    if isinstance(value, dict):
        return {
            key: "$any" if {key, f"{key}@{api.name}"} & VOLATILE else _settled(one, api)
            for key, one in value.items()
            if key != "throttle_time"
        }
    if isinstance(value, list):
        return [_settled(one, api) for one in value]
    return value


def frame(api: Api, version: int, number: int, asked: dict) -> bytes:
    """Return a request with its length in front."""
    message = load_request_schema(api, version)
    header = message.__header_schema__
    out = io.BytesIO()
    words = {"request_api_key": api, "request_api_version": version}
    words |= {"correlation_id": number, "client_id": "test"}
    entity_writer(header)(out, filled(header, words))
    own = {one.name: asked[one.name] for one in fields(message) if one.name in asked}
    entity_writer(message)(out, filled(message, with_defaults(message, own)))
    return struct.pack(">i", out.tell()) + out.getvalue()
