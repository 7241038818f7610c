"""Clients of classic groups, in a process of their own: prints what it saw as JSON.

    python -m benchmarks.classic_clients join ADDRESS GROUP MEMBERS
    python -m benchmarks.classic_clients rounds ADDRESS GROUP MEMBERS ROUNDS
    python -m benchmarks.classic_clients steady ADDRESS GROUP MEMBERS SECONDS
    python -m benchmarks.classic_clients paced ADDRESS GROUP MEMBERS SECONDS INTERVAL_S
    python -m benchmarks.classic_clients flood ADDRESS GROUP COUNT KIND SECONDS

Each member has a connection, and speaks what librdkafka speaks: JoinGroup 5, SyncGroup 3 and
Heartbeat 3, written and read here, so that the server is what is measured. `join` lets all join at
once, until the last has its assignment; in `rounds` they do so again and again, and it is measured
how long the leader's sync takes, and then a commit of one offset by it. In `steady` each beats
again as soon as it is answered, in `paced` once an interval. `flood` asks what KIND says COUNT
times, and leaves the answers waiting.
"""

from __future__ import annotations

import json
import resource
import select
import socket
import statistics
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

FIND_COORDINATOR, JOIN, HEARTBEAT, SYNC = (10, 1), (11, 5), (12, 3), (14, 3)
OFFSET_COMMIT = (8, 3)
SESSION_MS, REBALANCE_MS = 30_000, 60_000
MEMBER_ID_REQUIRED = 79
AGAIN = {14, 15, 16, 27}
"""Loads, no coordinator yet, not the coordinator, rebalances: a client asks again."""
SUBSCRIPTION = struct.pack(">hih6sii", 1, 1, 6, b"clicks", -1, 0)
ASSIGNMENT = struct.pack(">hih6siii", 1, 1, 6, b"clicks", 1, 0, -1)
PATIENCE_S = 120.0
BEAT_S = 3.0
"""How often members beat that have synced while others join; as librdkafka's do."""


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">h", len(raw)) + raw


def data(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


NO_INSTANCE = struct.pack(">h", -1)


def framed(api: tuple[int, int], body: bytes) -> bytes:
    return data(struct.pack(">hhi", *api, 1) + text("bench") + body)


def join_frame(group: str, member: bytes, subscription: bytes) -> bytes:
    protocols = struct.pack(">i", 1) + text("range") + data(subscription)
    times = struct.pack(">ii", SESSION_MS, REBALANCE_MS)
    head = text(group) + times + text(member) + NO_INSTANCE + text("consumer")
    return framed(JOIN, head + protocols)


def sync_frame(group: str, generation: int, member: bytes, assigned: list[bytes]) -> bytes:
    given = [text(one) + data(ASSIGNMENT) for one in assigned]
    head = text(group) + struct.pack(">i", generation) + text(member) + NO_INSTANCE
    return framed(SYNC, head + struct.pack(">i", len(given)) + b"".join(given))


def heartbeat_frame(group: str, generation: int, member: bytes) -> bytes:
    return framed(
        HEARTBEAT, text(group) + struct.pack(">i", generation) + text(member) + NO_INSTANCE
    )


def commit_frame(group: str, generation: int, member: bytes, offset: int) -> bytes:
    head = text(group) + struct.pack(">i", generation) + text(member) + struct.pack(">q", -1)
    topic = text("clicks") + struct.pack(">iiqh", 1, 0, offset, -1)
    return framed(OFFSET_COMMIT, head + struct.pack(">i", 1) + topic)


class Fields:
    """Reads an answer, behind its correlation id and throttle time."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._at = 8

    def number(self, form: str) -> int:
        (value,) = struct.unpack_from(f">{form}", self._frame, self._at)
        self._at += struct.calcsize(f">{form}")
        return int(value)

    def text(self) -> bytes:
        return self._take(self.number("h"))

    def data(self) -> bytes:
        return self._take(self.number("i"))

    def _take(self, size: int) -> bytes:
        self._at += max(size, 0)
        return self._frame[self._at - max(size, 0) : self._at]


@dataclass(slots=True, eq=False)
class Member:
    """A member, or who wants to be one, and its connection."""

    sock: socket.socket
    group: str
    member_id: bytes = b""
    generation: int = -1
    subscription: bytes = SUBSCRIPTION
    synced: bool = False
    led_at: float | None = None
    led_ms: float | None = None
    committed_ms: float | None = None
    received: bytearray = field(default_factory=bytearray)
    heard: Callable[[bytes], None] = lambda _: None

    def send(self, frame: bytes) -> None:
        """Send; what the socket does not take at once waits for it."""
        self.sock.setblocking(True)
        self.sock.sendall(frame)

    def join(self) -> None:
        """Join; and then sync, until an assignment is there."""
        self.heard, self.synced = self._joined, False
        self.send(join_frame(self.group, self.member_id, self.subscription))

    def _joined(self, frame: bytes) -> None:
        fields = Fields(frame)
        error = fields.number("h")
        generation = fields.number("i")
        fields.text()
        leader, self.member_id = fields.text(), fields.text()
        if error == MEMBER_ID_REQUIRED or error in AGAIN:
            self.join()
            return
        assert not error, f"a join is answered {error}"
        self.generation = generation
        others = []
        for _ in range(fields.number("i")):
            others.append(fields.text())
            fields.text()
            fields.data()
        self.heard = self._synced
        given = others if leader == self.member_id else []
        self.led_at = time.perf_counter() if given else None
        self.send(sync_frame(self.group, generation, self.member_id, given))

    def _synced(self, frame: bytes) -> None:
        error = Fields(frame).number("h")
        if error in AGAIN:
            self.join()
            return
        assert not error, f"a sync is answered {error}"
        self.synced = True
        if self.led_at is not None:
            self.led_ms = (time.perf_counter() - self.led_at) * 1000

    def look(self) -> None:
        """Beat once, and join again if others have joined since the sync."""
        self.beat()
        self.heard, self.synced = self._looked, False

    def _looked(self, frame: bytes) -> None:
        error = Fields(frame).number("h")
        if error in AGAIN:
            self.join()
            return
        assert not error, f"a heartbeat is answered {error}"
        self.synced = True

    def commit(self, offset: int) -> None:
        """Commit an offset of the partition that every member is assigned."""
        self.heard = self._committed
        self.committed_ms = None
        self.led_at = time.perf_counter()
        self.send(commit_frame(self.group, self.generation, self.member_id, offset))

    def _committed(self, frame: bytes) -> None:
        fields = Fields(frame)
        fields.number("i")
        fields.text()
        fields.number("q")
        error = fields.number("h")
        assert not error, f"a commit is answered {error}"
        assert self.led_at is not None
        self.committed_ms = (time.perf_counter() - self.led_at) * 1000

    def beat(self) -> None:
        self.heard = self._beaten
        self.send(heartbeat_frame(self.group, self.generation, self.member_id))

    def _beaten(self, frame: bytes) -> None:
        error = Fields(frame).number("h")
        assert not error, f"a heartbeat is answered {error}"


class Clients:
    """Members, each on a connection of its own."""

    def __init__(self, address: str, groups: list[str]) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        host, port = address.rsplit(":", 1)
        self.poll = select.epoll()
        self.members = []
        self.by_file = {}
        for group in groups:
            member = Member(socket.create_connection((host, int(port)), PATIENCE_S), group)
            member.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.members.append(member)
            self.by_file[member.sock.fileno()] = member
            self.poll.register(member.sock, select.EPOLLIN)

    def take(self, timeout_s: float) -> list[Member]:
        """Wait for answers, do what each member does next, and return whose came."""
        found = []
        for file, _ in self.poll.poll(timeout_s):
            member = self.by_file[file]
            more = member.sock.recv(1 << 20)
            assert more, "the server has closed a connection"
            received = member.received
            received += more
            while len(received) >= 4 and len(received) >= 4 + int.from_bytes(received[:4], "big"):
                end = 4 + int.from_bytes(received[:4], "big")
                frame = bytes(received[4:end])
                del received[:end]
                member.heard(frame)
                found.append(member)
        return found

    def join(self) -> float:
        """Let all join, until all have synced; return the seconds."""
        began = beaten = time.perf_counter()
        for member in self.members:
            member.join()
        while not all(member.synced for member in self.members):
            self.take(1.0)
            now = time.perf_counter()
            assert now - began < PATIENCE_S, "not all have synced"
            if now - beaten > BEAT_S:
                beaten = now
                for member in self.members:
                    if member.synced:
                        member.look()
        return time.perf_counter() - began


def find_coordinator(address: str, group: str) -> None:
    """Wait until a broker coordinates the group: Kafka makes a topic first."""
    began = time.perf_counter()
    seeker = Clients(address, [group]).members[0]
    while True:
        seeker.send(framed(FIND_COORDINATOR, text(group) + b"\0"))
        frame = seeker.sock.recv(1 << 16)[4:]
        if not Fields(frame).number("h"):
            return
        assert time.perf_counter() - began < PATIENCE_S, "there is no coordinator"
        time.sleep(0.2)


def join(address: str, group: str, count: int) -> dict[str, float]:
    find_coordinator(address, group)
    clients = Clients(address, [group] * count)
    print("ready", flush=True)
    return {"seconds": clients.join()}


def rounds(address: str, group: str, count: int, times: int) -> dict[str, float]:
    """All members join again and again, each time with other bytes: so that they rebalance."""
    clients = Clients(address, [group] * count)
    clients.join()
    print("ready", flush=True)
    led, committed = [], []
    for number in range(times):
        for member in clients.members:
            member.subscription = SUBSCRIPTION + struct.pack(">i", number)
        clients.join()
        (leader,) = (one for one in clients.members if one.led_at is not None)
        led.append(leader.led_ms or 0.0)
        leader.commit(number)
        while leader.committed_ms is None:
            clients.take(1.0)
        committed.append(leader.committed_ms)
    return {"led_ms": statistics.median(led), "committed_ms": statistics.median(committed)}


def steady(address: str, group: str, count: int, seconds: float) -> dict[str, float]:
    """Each member beats again as soon as it is answered."""
    clients = Clients(address, [group] * count)
    clients.join()
    frames = {
        member.sock.fileno(): heartbeat_frame(group, member.generation, member.member_id)
        for member in clients.members
    }
    print("ready", flush=True)
    beats, began = 0, time.perf_counter()
    for member in clients.members:
        member.sock.send(frames[member.sock.fileno()])
    while time.perf_counter() - began < seconds:
        for file, _ in clients.poll.poll(1.0):
            sock = clients.by_file[file].sock
            answer = sock.recv(1 << 16)
            assert answer[12:14] == b"\0\0", answer
            sock.send(frames[file])
            beats += 1
    return {"beats": beats, "seconds": time.perf_counter() - began}


def paced(
    address: str, group: str, count: int, seconds: float, interval_s: float
) -> dict[str, float]:
    """Each member beats once an interval, evenly spread; how long do answers take?"""
    clients = Clients(address, [group] * count)
    clients.join()
    print("ready", flush=True)
    sent: dict[Member, float] = {}
    waits = []
    began = time.perf_counter()
    due = deque((number * interval_s / count, one) for number, one in enumerate(clients.members))
    while (now := time.perf_counter() - began) < seconds:
        while due[0][0] <= now:
            at, member = due.popleft()
            if member not in sent:  # one that waits yet is late enough
                sent[member] = time.perf_counter()
                member.beat()
            due.append((at + interval_s, member))
        beaten = clients.take(max(due[0][0] - now, 0.0))
        waits += [(time.perf_counter() - sent.pop(member)) * 1000 for member in beaten]
    late = [(time.perf_counter() - at) * 1000 for at in sent.values()]
    waits = sorted(waits + late)
    return {
        "beats": len(waits),
        "seconds": seconds,
        "p50_ms": waits[len(waits) // 2],
        "p99_ms": waits[int(len(waits) * 0.99)],
        "most_ms": waits[-1],
    }


# Hostile clients ---------------------------------------------------------------------------------

PIPELINED = 64
"""Requests that one connection may have in flight (server.in_flight_max)."""
OLD_JOIN = (11, 3)
"""Of a client that comes without an id and is taken in at once."""


def old_join_frame(group: str, protocols: list[tuple[str, bytes]]) -> bytes:
    listed = [text(name) + data(metadata) for name, metadata in protocols]
    times = struct.pack(">ii", SESSION_MS, REBALANCE_MS)
    head = text(group) + times + text("") + text("consumer")
    return framed(OLD_JOIN, head + struct.pack(">i", len(listed)) + b"".join(listed))


def frames_of(kind: str, group: str, count: int) -> list[bytes]:
    """Return the requests of a flood."""
    usual = [("range", SUBSCRIPTION)]
    if kind == "pending":
        return [join_frame(group, b"", SUBSCRIPTION)] * count
    if kind == "groups":
        return [old_join_frame(f"{group}-{number}", usual) for number in range(count)]
    if kind == "protocols":
        many = [(f"protocol-{number}", SUBSCRIPTION) for number in range(3_000)]
        return [old_join_frame(group, many)] * count
    if kind == "metadata":
        return [old_join_frame(group, [("range", bytes(1_000_000))])] * count
    return [old_join_frame(group, usual)] * count  # unsynced, parked, reconnect


def flood(address: str, group: str, count: int, kind: str, seconds: float) -> dict[str, float]:
    """Ask so many times, and stay connected so long; what is not answered is left to wait."""
    frames = frames_of(kind, group, count)
    ends = range(0, count, PIPELINED)
    began = time.perf_counter()
    if kind == "reconnect":
        host, port = address.rsplit(":", 1)
        for frame in frames:
            with socket.create_connection((host, int(port)), PATIENCE_S) as sock:
                sock.sendall(frame)
        sent = time.perf_counter() - began
    else:
        clients = Clients(address, [group] * len(ends))
        began = time.perf_counter()
        for start, member in zip(ends, clients.members, strict=True):
            member.send(b"".join(frames[start : start + PIPELINED]))
        sent = time.perf_counter() - began
        while (left := began + seconds - time.perf_counter()) > 0:
            clients.take(left)
    return {"seconds": sent}


def main(words: list[str]) -> None:
    what, address, group, count, *rest = words
    if what == "join":
        found = join(address, group, int(count))
    elif what == "rounds":
        found = rounds(address, group, int(count), int(rest[0]))
    elif what == "steady":
        found = steady(address, group, int(count), float(rest[0]))
    elif what == "paced":
        found = paced(address, group, int(count), float(rest[0]), float(rest[1]))
    else:
        found = flood(address, group, int(count), rest[0], float(rest[1]))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
