"""A real server with hostile clients: an honest client is still answered, memory stays bounded.

`make test` fuzzes for a few seconds; `make test-clients` (MUSTER_LONG=1) for a minute, and with ten
thousand connections.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import threading
import time

import pytest

from coordinator.wire.codec import VERSIONS, Api
from tests.support.longer import EVERY, longer
from tests.support.wire_client import Client, request_frame
from tests.wire.test_commands import served

SECONDS = 60 if EVERY else 4
ANSWERS = SECONDS * 5
"""So many answers the honest client must get during an attack, which lasts until it has them."""
OPEN_MAX = 300
PATIENCE_S = 30.0
SAID_MAX = 100
"""Lines about clients that are refused: each name once a minute."""
SETTINGS = """
[server]
request_ms = 2000
buffer_bytes_max = 67108864
"""
JOIN = {
    "group_id": "h", "member_id": "evil", "member_epoch": 0, "rebalance_timeout": 60_000,
    "subscribed_topic_names": ["clicks"], "topic_partitions": [],
}  # fmt: skip
VALID = [
    request_frame(Api.METADATA, 13, topics=None, include_topic_authorized_operations=False),
    request_frame(Api.CONSUMER_GROUP_HEARTBEAT, 1, **JOIN),
    request_frame(Api.FIND_COORDINATOR, 4, coordinator_keys=["g"]),
    request_frame(Api.LIST_GROUPS, 4),
]


def garbage(rng):
    return rng.randbytes(rng.randrange(1, 2000))


def truncated(rng):
    frame = rng.choice(VALID)
    return frame[: rng.randrange(1, len(frame))]


def oversized(rng):
    return struct.pack(">i", rng.choice([-1, 1 << 20, (1 << 20) + 1, 2**31 - 1])) + rng.randbytes(
        64
    )


def of_another_version(rng):
    api = rng.choice([*VERSIONS, 0, 4, 11, 24, 999])
    head = struct.pack(">hhihb", api, rng.choice([-1, 19, 99, 32_767]), 7, -1, 0)
    return struct.pack(">i", len(head)) + head


def damaged(rng):
    data = bytearray(b"".join(rng.choices(VALID, k=3)))
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def greedy(rng):
    """Many requests, whose answers are not read."""
    return rng.choice(VALID) * rng.randrange(100, 1000)


ATTACKS = (garbage, truncated, oversized, of_another_version, damaged, greedy)


class Honest(threading.Thread):
    """A member that beats all the while, and notes how long its answers took."""

    def __init__(self, address):
        super().__init__()
        self.address = address
        self.over = threading.Event()
        self.waits = []
        self.fault = None

    def run(self):
        try:
            with Client(self.address) as client:
                epoch = client.join("honest", "m", "clicks").member_epoch
                while not self.over.wait(0.02):
                    began = time.monotonic()
                    answer = client.beat("honest", "m", epoch)
                    self.waits.append(time.monotonic() - began)
                    assert (int(answer.error_code), answer.member_epoch) == (0, epoch)
        except Exception as fault:  # noqa: BLE001 - raised at the end
            self.fault = fault

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_error):
        self.over.set()
        self.join()
        if self.fault is not None:
            raise self.fault


def connected(address):
    host, port = address.split(":")
    sock = socket.create_connection((host, int(port)), PATIENCE_S)
    sock.setblocking(False)
    return sock


def attack(address, rng, open_now):
    """Do one hostile thing on a new connection; some are left open, some are broken off."""
    with contextlib.suppress(OSError):
        sock = connected(address)
        open_now.append(sock)
        data = rng.choice(ATTACKS)(rng)
        with contextlib.suppress(BlockingIOError):
            sock.send(data[:1] if rng.random() < 0.1 else data)  # a slow one sends on below
    for sock in rng.sample(open_now, min(len(open_now), 5)):
        with contextlib.suppress(OSError):
            sock.send(rng.randbytes(1))
    while len(open_now) > OPEN_MAX:
        gone = open_now.pop(rng.randrange(len(open_now)))
        if rng.random() < 0.5:  # without a farewell
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.close()


def resident_mib(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


@pytest.fixture
def server(tmp_path):
    (tmp_path / "muster.toml").write_text(SETTINGS)
    words = ("--topic", "clicks=100", "--config", str(tmp_path / "muster.toml"))
    with served(tmp_path, *words) as (process, address):
        yield process, address
        assert process.poll() is None
        said = (tmp_path / "errors").read_text().splitlines()
        ours = [line for line in said if " WARNING refused the client " not in line]
        assert ours == [], "no request, however odd, is a fault of ours"
        assert len(said) <= SAID_MAX, "strangers fill the log"


@pytest.mark.parametrize("seed", [7])
def test_hostile_clients_do_not_disturb_members(server, seed):
    process, address = server
    rng, open_now = random.Random(seed), []
    with Honest(address) as honest:
        before, began = resident_mib(process), time.monotonic()
        while (lasted := time.monotonic() - began) < SECONDS or (
            len(honest.waits) <= ANSWERS and lasted < SECONDS + PATIENCE_S
        ):
            attack(address, rng, open_now)
        assert resident_mib(process) - before < 150
        for sock in open_now:
            sock.close()
    assert len(honest.waits) > ANSWERS
    assert max(honest.waits) < PATIENCE_S


@longer("make test-clients")
def test_ten_thousand_connections(server):
    """As many as are allowed; then each holds a part of a request that never comes."""
    process, address = server
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = resident_mib(process)
    with Honest(address) as honest, contextlib.ExitStack() as closing:
        while not honest.waits:
            time.sleep(0.01)
        many = [closing.enter_context(connected(address)) for _ in range(9_999)]
        answered = request_frame(Api.LIST_GROUPS, 4)
        for sock in many:
            sock.send(answered)
        for sock in many:
            sock.setblocking(True)
            assert sock.recv(100)
        assert resident_mib(process) - before < 150
        one_more = connected(address)
        one_more.settimeout(PATIENCE_S)
        assert one_more.recv(1) == b""
        one_more.close()
        part = struct.pack(">i", 1 << 20) + bytes(16_384)
        for sock in many:
            with contextlib.suppress(ConnectionError):
                sock.send(part)
        assert resident_mib(process) - before < 350  # 164 MB were sent, 67 MB may be held
        time.sleep(4)
        closed = 0
        for sock in many:
            sock.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionError):
                closed += sock.recv(1) == b""
                continue
            closed += 1
        assert closed == len(many)
    assert max(honest.waits) < PATIENCE_S
