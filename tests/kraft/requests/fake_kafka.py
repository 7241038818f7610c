"""A broker that is the active controller, too: a socket that answers as its table says."""

from __future__ import annotations

import contextlib
import socket
import threading

from coordinator.kraft.links import SENT
from coordinator.kraft.requests.broker_apis import TO_BROKERS, TO_CONTROLLERS
from coordinator.member.client_settings import ClientSettings
from coordinator.wire.codec import LENGTH, Api, decode, decode_body, encode

SERVED = {
    **TO_BROKERS,
    **TO_CONTROLLERS,
    **SENT,
    Api.DESCRIBE_QUORUM: (0, 2),
    Api.DESCRIBE_CONFIGS: (1, 4),
}
ID = 1


class FakeKafka:
    """It runs while it is entered.

    Attributes
    ----------
    answers
        By API, from a request's body to the fields of the answer.
    asked
        The requests that came, in their order.
    """

    def __init__(self, answers=None):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.place = "127.0.0.1", self._socket.getsockname()[1]
        self.asked, self._open = [], []
        self.answers = {
            Api.API_VERSIONS: lambda _: {
                "error_code": 0,
                "api_keys": [
                    {"api_key": api, "min_version": least, "max_version": most}
                    for api, (least, most) in SERVED.items()
                ],
            },
            Api.DESCRIBE_QUORUM: self._quorum,
            Api.DESCRIBE_CLUSTER: lambda _: {
                "error_code": 0, "error_message": None, "cluster_id": "c", "controller_id": ID,
                "brokers": [{"broker_id": ID, "host": self.place[0], "port": self.place[1], "rack": None, "is_fenced": False}],
            },
            **(answers or {}),
        }  # fmt: skip

    @property
    def settings(self):
        """How it is reached."""
        return ClientSettings([self.place], None, None, "node")

    def _quorum(self, _body):
        partition = {
            "partition_index": 0, "error_code": 0, "error_message": None, "leader_id": ID,
            "leader_epoch": 1, "high_watermark": 1, "current_voters": (), "observers": (),
        }  # fmt: skip
        at = {"name": "C", "host": self.place[0], "port": self.place[1]}
        return {
            "error_code": 0, "error_message": None,
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}],
            "nodes": [{"node_id": ID, "listeners": [at]}],
        }  # fmt: skip

    def of(self, api):
        """The bodies of the requests of an API."""
        return [one.body for one in self.asked if one.api is api]

    def __enter__(self):
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error):
        for one in (self._socket, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                one, _ = self._socket.accept()
                self._open.append(one)
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one):
        with contextlib.suppress(OSError), one.makefile("rb") as reader:
            while head := reader.read(LENGTH.size):
                request = read(reader.read(LENGTH.unpack(head)[0]))
                self.asked.append(request)
                found = self.answers[request.api](request.body)
                if found is None:  # it breaks off
                    one.shutdown(socket.SHUT_RDWR)
                    return
                one.sendall(encode(request, found))


def opened(envelope):
    """The request in an Envelope: its API, version, number and body."""
    return read(envelope.request_data)


def read(frame):
    """A request, also a long one."""
    request = decode(frame, versions=SERVED)
    if request.unread:
        decode_body(request)
    return request


def enveloped(request, **fields):
    """The fields of an Envelope's answer that holds an answer."""
    return {"error_code": 0, "response_data": encode(request, fields)[LENGTH.size :]}
