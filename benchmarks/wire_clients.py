"""The other side of the wire benchmark, in a process of its own: prints what it saw as JSON.

    python -m benchmarks.wire_clients steady ADDRESS GROUP MEMBERS SECONDS
    python -m benchmarks.wire_clients paced ADDRESS GROUP MEMBERS SECONDS INTERVAL_S
    python -m benchmarks.wire_clients describe ADDRESS GROUP MEMBERS SECONDS INTERVAL_S GROUPS
    python -m benchmarks.wire_clients join ADDRESS GROUP MEMBERS TOPIC PARTITIONS

`steady` and `paced` are members of a settled group, one a connection, whose heartbeats are bytes
made beforehand: so that the server is what is measured. `describe` is `paced` while one more client
describes many other groups in one request, again and again. `join` is real consumers of librdkafka.
"""

from __future__ import annotations

import io
import json
import resource
import select
import socket
import struct
import sys
import threading
import time
from collections import deque

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.request_header.v2.header import RequestHeader
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from benchmarks.shape import EPOCH, member_id, small_group_id

ERROR_AT = 13
"""Of a response: behind length, correlation id, tags and throttle time."""
PATIENCE_S = 60.0


def heartbeat(group: str, member: str) -> bytes:
    """Return the frame of a heartbeat that says nothing new."""
    out = io.BytesIO()
    header = RequestHeader(
        request_api_key=i16(68), request_api_version=i16(1), correlation_id=i32(1), client_id=""
    )
    entity_writer(RequestHeader)(out, header)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,  # type: ignore[arg-type]
        member_id=member,
        member_epoch=i32(EPOCH),
        subscribed_topic_names=None,
        subscribed_topic_regex=None,
        server_assignor=None,
        topic_partitions=None,
    )
    entity_writer(ConsumerGroupHeartbeatRequest)(out, request)
    return struct.pack(">i", out.tell()) + out.getvalue()


class Beaters:
    """Members of a settled group, each on a connection of its own."""

    def __init__(self, address: str, group: str, count: int) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        host, port = address.rsplit(":", 1)
        self.sockets = [socket.create_connection((host, int(port)), 30) for _ in range(count)]
        self.frames = [heartbeat(group, member_id(number)) for number in range(count)]
        self.number_of = {sock.fileno(): number for number, sock in enumerate(self.sockets)}
        self.poll = select.epoll()
        for sock in self.sockets:
            self.poll.register(sock, select.EPOLLIN)
        for _ in range(2):  # the first tells who is there, and brings the assignment
            for number in range(count):
                self.send(number)
            for sock in self.sockets:
                checked(sock.recv(1 << 16))

    def send(self, number: int) -> None:
        self.sockets[number].send(self.frames[number])

    def answered(self, timeout_s: float) -> list[int]:
        """Wait for answers, and return whose came."""
        found = []
        for descriptor, _ in self.poll.poll(timeout_s):
            number = self.number_of[descriptor]
            checked(self.sockets[number].recv(1 << 16))
            found.append(number)
        return found


def checked(answer: bytes) -> None:
    assert answer, "the server has closed a connection"
    assert answer[ERROR_AT : ERROR_AT + 2] == b"\0\0", answer


def steady(address: str, group: str, count: int, seconds: float) -> dict[str, float]:
    """Each member beats again as soon as it is answered."""
    beaters = Beaters(address, group, count)
    print("ready", flush=True)
    beats, began = 0, time.perf_counter()
    for number in range(count):
        beaters.send(number)
    while time.perf_counter() - began < seconds:
        for number in beaters.answered(1.0):
            beaters.send(number)
            beats += 1
    return {"beats": beats, "seconds": time.perf_counter() - began}


def paced(
    address: str, group: str, count: int, seconds: float, interval_s: float
) -> dict[str, float]:
    """Each member beats once an interval, evenly spread; how long do answers take?"""
    beaters = Beaters(address, group, count)
    print("ready", flush=True)
    sent, waits = [0.0] * count, []
    began = time.perf_counter()
    due = deque((number * interval_s / count, number) for number in range(count))
    while (now := time.perf_counter() - began) < seconds:
        while due[0][0] <= now:
            at, number = due.popleft()
            sent[number] = time.perf_counter()
            beaters.send(number)
            due.append((at + interval_s, number))
        numbers = beaters.answered(max(due[0][0] - now, 0.0))
        waits += [(time.perf_counter() - sent[number]) * 1000 for number in numbers]
    waits.sort()
    return {
        "beats": len(waits),
        "seconds": seconds,
        "p50_ms": waits[len(waits) // 2],
        "p99_ms": waits[int(len(waits) * 0.99)],
    }


def describe(
    address: str, group: str, count: int, seconds: float, interval_s: float, groups: int
) -> dict[str, float]:
    """Members beat while another client describes very many groups."""
    host, port = address.rsplit(":", 1)
    frame, took = describe_frame(groups), []
    over = threading.Event()

    def ask() -> None:
        with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
            while not over.is_set():
                began = time.perf_counter()
                sock.sendall(frame)
                (left,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
                while left:
                    left -= len(sock.recv(min(left, 1 << 20)))
                took.append((time.perf_counter() - began) * 1000)

    curious = threading.Thread(target=ask)
    curious.start()
    try:
        found = paced(address, group, count, seconds, interval_s)
    finally:
        over.set()
        curious.join()
    return found | {"described": len(took), "described_ms": sorted(took)[len(took) // 2]}


def describe_frame(groups: int) -> bytes:
    """Return the frame of a ConsumerGroupDescribe of many groups."""
    out = io.BytesIO()
    header = RequestHeader(
        request_api_key=i16(69), request_api_version=i16(1), correlation_id=i32(1), client_id=""
    )
    entity_writer(RequestHeader)(out, header)
    request = ConsumerGroupDescribeRequest(
        group_ids=tuple(map(small_group_id, range(groups))),  # type: ignore[arg-type]
        include_authorized_operations=False,
    )
    entity_writer(ConsumerGroupDescribeRequest)(out, request)
    return struct.pack(">i", out.tell()) + out.getvalue()


def join(address: str, group: str, count: int, topic: str, partitions: int) -> dict[str, float]:
    """Consumers of librdkafka join at once; when does each have its equal share?"""
    from confluent_kafka import Consumer  # noqa: PLC0415 - in no other measurement

    config = {"bootstrap.servers": address, "group.id": group, "group.protocol": "consumer"}
    config["log_level"] = "2"  # connections that come late are no news
    consumers = [Consumer(config) for _ in range(count)]
    share = partitions // count
    print("ready", flush=True)
    began = time.perf_counter()
    for consumer in consumers:
        consumer.subscribe([topic])
    while time.perf_counter() - began < PATIENCE_S:
        for consumer in consumers:
            consumer.poll(0)
        if all(len(consumer.assignment()) == share for consumer in consumers):
            took = time.perf_counter() - began
            for consumer in consumers:
                consumer.close()
            return {"seconds": took}
        time.sleep(0.01)
    raise TimeoutError(f"{count} consumers are not settled after {PATIENCE_S} s")


def main(words: list[str]) -> None:
    what, address, group, count, *rest = words
    if what == "join":
        found = join(address, group, int(count), rest[0], int(rest[1]))
    elif what == "describe":
        found = describe(address, group, int(count), float(rest[0]), float(rest[1]), int(rest[2]))
    elif what == "paced":
        found = paced(address, group, int(count), float(rest[0]), float(rest[1]))
    else:
        found = steady(address, group, int(count), float(rest[0]))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
