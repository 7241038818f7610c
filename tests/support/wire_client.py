"""A client's side of the wire, for tests: requests as kio writes them, answers as kio reads them."""

from __future__ import annotations

import io
import socket
import struct
from dataclasses import fields, is_dataclass
from datetime import timedelta

from kio.serial import entity_reader, entity_writer

from coordinator.wire.codec import Api
from coordinator.wire.decoder import field_shape
from coordinator.wire.messages import load_request_schema, load_response_schema

PATIENCE_S = 60.0


def filled(entity, values):
    """Return a kio message from its fields by name; those of other versions are left out."""
    found = {}
    for field in fields(entity):
        shape = field_shape(field)
        if field.name not in values:
            continue
        value = values[field.name]
        if is_dataclass(shape.kind) and value is not None:
            made = [filled(shape.kind, one) for one in (value if shape.array else [value])]
            value = tuple(made) if shape.array else made[0]
        elif shape.array and value is not None:
            value = tuple(value)
        elif field.metadata.get("kafka_type", "").startswith("timedelta"):
            value = timedelta(milliseconds=value)
        found[field.name] = value
    return entity(**found)


def request_frame(api, version, correlation_id=1, client_id="test", **words_of):
    """Return a request with its length in front; its fields as plain values."""
    message = load_request_schema(api, version)
    header = message.__header_schema__
    out = io.BytesIO()
    words = {"request_api_key": api, "request_api_version": version}
    words |= {"correlation_id": correlation_id, "client_id": client_id}
    entity_writer(header)(out, filled(header, words))
    entity_writer(message)(out, filled(message, words_of))
    return struct.pack(">i", out.tell()) + out.getvalue()


def read_response(frame, api, version):
    """Return a response's correlation id and kio's message, nothing left over."""
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    message = load_response_schema(api, version)
    header, size = entity_reader(message.__header_schema__)(frame, 4)
    body, more = entity_reader(message)(frame, 4 + size)
    assert 4 + size + more == len(frame)
    return header.correlation_id, body


def take_frame(sock):
    """Read one frame from a socket; b"" when the other side has closed it."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack_from(">i", data)[0]:
        wanted = (
            4 - len(data) if len(data) < 4 else 4 + struct.unpack_from(">i", data)[0] - len(data)
        )
        try:
            more = sock.recv(wanted)
        except ConnectionError:
            return b""
        if not more:
            return b""
        data += more
    return data


class Client:
    """A blocking client on one connection."""

    def __init__(self, address, tls=None):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host.strip("[]"), int(port)), PATIENCE_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self.asked = 0

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.socket.close()

    def ask(self, api, version, **fields):
        """Send a request and return its answer."""
        self.asked += 1
        self.socket.sendall(request_frame(api, version, self.asked, **fields))
        correlation_id, body = read_response(take_frame(self.socket), api, version)
        assert correlation_id == self.asked
        return body

    def beat(self, group_id, member_id, epoch, **fields):
        """Send a heartbeat."""
        return self.ask(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, group_id=group_id, member_id=member_id,
            member_epoch=epoch, **{"topic_partitions": None} | fields,
        )  # fmt: skip

    def join(self, group_id, member_id, *topics):
        """Join a group."""
        return self.beat(
            group_id, member_id, 0, rebalance_timeout=60_000, subscribed_topic_names=topics,
            topic_partitions=(),
        )  # fmt: skip

    def is_closed(self):
        """Wait for the other side to close the connection; False when it says something."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
