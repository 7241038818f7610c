"""Brokers in threads, as a gateway sees them: they name each other, and echo what they do not read."""

import contextlib
import socket
import struct
import threading

from coordinator.gateway.offer import FORWARDED
from coordinator.wire.call import to_uuid
from coordinator.wire.codec import VERSIONS, Api, Request, decode, encode
from coordinator.wire.sasl import LoginError, parse_plain
from tests.support.wire_client import take_frame

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
HEAD = struct.Struct(">hhi")


class FakeBroker:
    """A broker, which answers one request of a connection after the other.

    Attributes
    ----------
    heard
        The API, version and body of each request but ApiVersions and Metadata.
    answers
        While it is not set, no answer is given.
    served
        The versions of APIs that it has.
    """

    def __init__(self, cluster, node_id, port=0):
        self.cluster, self.node_id = cluster, node_id
        self.heard, self.logins = [], []
        self.served = dict.fromkeys(FORWARDED, (0, 20))
        self.answers = threading.Event()
        self.answers.set()
        self.socket = socket.create_server(("127.0.0.1", port))
        self.port = self.socket.getsockname()[1]
        self.connections = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def end(self):
        self.answers.set()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self._thread.join()
        for one in self.connections:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.socket.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError):
            logged_in = not self.cluster.with_login
            while frame := take_frame(connection):
                if not logged_in and frame[5] not in {17, 18, 36}:
                    break
                before = len(self.logins)
                answer = self._answer(frame[4:])
                logged_in = logged_in or len(self.logins) > before
                self.answers.wait()
                if answer is not None:
                    connection.sendall(answer)
            connection.close()

    def _answer(self, frame):
        key, version, number = HEAD.unpack_from(frame)
        if key in {Api.API_VERSIONS, Api.METADATA}:
            request = decode(frame, versions=VERSIONS)
            return encode(
                request, self._versions() if key == Api.API_VERSIONS else self._metadata()
            )
        self.heard.append((key, version, frame[HEAD.size :]))
        if key in {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE}:
            return self._log_in(decode(frame, versions=VERSIONS))
        if key == Api.DESCRIBE_CLUSTER:
            brokers = [
                {**one, "broker_id": one["node_id"], "is_fenced": False}
                for one in self.cluster.nodes()
            ]
            values = {
                "error_code": 0,
                "endpoint_type": 1,
                "cluster_id": "fake",
                "controller_id": 1,
                "brokers": brokers,
            }
            return encode(Request(key, version, number), values)
        if key == Api.FIND_COORDINATOR:
            request = decode(frame, versions=VERSIONS)
            found = {"error_code": 0, "error_message": None, **self.cluster.nodes()[-1]}
            keys = getattr(request.body, "coordinator_keys", ())
            return encode(
                request, {**found, "coordinators": [{**found, "key": one} for one in keys]}
            )
        if key == Api.PRODUCE and frame.endswith(b"acks=0"):
            return None
        body = frame[4:]  # the correlation id, and what was sent
        return struct.pack(">i", len(body)) + body

    def _versions(self):
        keys = [
            {"api_key": key, "min_version": low, "max_version": high}
            for key, (low, high) in self.served.items()
        ]
        return {"error_code": 0, "api_keys": keys}

    def _metadata(self):
        of_one = {"error_code": 0, "leader_id": 1, "replica_nodes": (1,), "isr_nodes": (1,)}
        topic = {
            "error_code": 0,
            "name": "clicks",
            "topic_id": to_uuid(TOPIC_ID),
            "partitions": [of_one | {"partition_index": number} for number in range(4)],
        }
        return {
            "brokers": self.cluster.nodes(),
            "cluster_id": "fake",
            "controller_id": 1,
            "topics": [topic],
            "error_code": 0,
        }

    def _log_in(self, request):
        if request.api is Api.SASL_HANDSHAKE:
            return encode(request, {"error_code": 0, "mechanisms": ("PLAIN",)})
        with contextlib.suppress(LoginError):
            name, password = parse_plain(request.body.auth_bytes)
            if password == "secret":
                self.logins.append(name)
                life = {"session_lifetime": self.cluster.session_ms}
                return encode(
                    request, {"error_code": 0, "error_message": None, "auth_bytes": b""} | life
                )
        refused = {"error_code": 58, "error_message": "no", "auth_bytes": b""}
        return encode(request, refused)


class FakeKafka:
    """A cluster of such brokers, while it is entered."""

    def __init__(self, count=1, with_login=False, session_ms=0):
        self.brokers = {}
        self.with_login, self.session_ms = with_login, session_ms
        for node_id in range(1, count + 1):
            self.add(node_id)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        for one in list(self.brokers):
            self.remove(one)

    def add(self, node_id, port=0):
        self.brokers[node_id] = FakeBroker(self, node_id, port)
        return self.brokers[node_id]

    def remove(self, node_id):
        self.brokers.pop(node_id).end()

    def nodes(self):
        return [
            {"node_id": node_id, "host": "127.0.0.1", "port": one.port, "rack": None}
            for node_id, one in sorted(self.brokers.items())
        ]

    @property
    def address(self):
        return f"127.0.0.1:{next(iter(self.brokers.values())).port}"
