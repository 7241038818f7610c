"""The same faults of processes on a store in S3, whose network fails now and then.

The server is versitygw where that is installed, which keeps real files, else moto.
"""

from __future__ import annotations

import atexit
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.support.s3.client import S3Server, Versitygw

from . import crash, registers, weather, zombie
from .node import serve_with_clock
from .process import QUICK, Node
from .report import Outcome
from .shards import nodes

SHARE = 0.02
"""Of the requests that fail while coordinators are killed."""
REGIONS_S = (-420.0, 420.0)
"""How much the clocks of two regions are wrong; S3 itself refuses more than 15 minutes."""


def killed(_store: Path, seed: int, times: int) -> Outcome:
    """Kill a coordinator so many times, while a request fails now and then."""
    return _in_weather(crash.killed, seed, times)


def woken(_store: Path, seed: int, times: int) -> Outcome:
    """Stop a coordinator, let another one take over, and wake the first."""
    server = serve_s3()
    outcome = zombie.woken(server.new_store(), seed, times)
    return Outcome(times, f"{outcome.seen}; {server.name}")


def skewed(_store: Path, seed: int, times: int) -> Outcome:
    """Kill coordinators of two regions in turns, whose clocks differ by a quarter of an hour."""
    server, chance = serve_s3(), random.Random(seed)

    def start(store: str) -> Node:
        offset_s = chance.choice(REGIONS_S) + chance.uniform(-10, 10)
        return Node(store, QUICK, main=partial(serve_with_clock, offset_s))

    outcome = crash.killed(server.new_store(), seed, times, start)
    return Outcome(times, f"{outcome.seen}; {server.name}")


def braved(_store: Path, seed: int, times: int) -> Outcome:
    """Commit so many times in bad weather."""
    server = serve_s3()
    outcome = weather.braved(server, seed, times)
    return Outcome(times, f"{outcome.seen}; {server.name}")


def checked(_store: Path, seed: int, times: int) -> Outcome:
    """Have coordinators lose their store while a request fails now and then; check histories."""
    return _in_weather(registers.checked, seed, times)


def broken_up(_store: Path, seed: int, times: int) -> Outcome:
    """Have nodes of a store of shards fail, and be cut off the server."""
    server = serve_s3()
    port = int(server.endpoint.rpartition(":")[2])
    outcome = nodes.broken_up(server.new_store(), seed, times, port)
    return Outcome(times, f"{outcome.seen}; {server.name}")


@cache
def serve_s3() -> Any:
    """Run a server for this process and those that it starts, which find it by the environment."""
    real = Versitygw.start()
    if real is None:
        server = S3Server.start()
    else:
        atexit.register(real.stop)
        server = S3Server.start(real.endpoint, "versitygw")
    os.environ.update(server.environment())
    atexit.register(server.stop)
    return server


def _in_weather(make: Callable[[Any, int, int], Outcome], seed: int, times: int) -> Outcome:
    """Make a fault so many times on a new store, while a request fails now and then."""
    server = serve_s3()
    with _weather(server, seed) as made:
        outcome = make(server.new_store(), seed, times)
    return Outcome(times, f"{outcome.seen}; {sum(made.values())} requests failed; {server.name}")


@contextmanager
def _weather(server: Any, seed: int) -> Iterator[dict[str, int]]:
    """Have any request fail now and then; what is yielded has, in the end, how many did."""
    made: dict[str, int] = {}
    server.weather(seed, SHARE)
    try:
        yield made
    finally:
        made |= server.made()
        server.heal()
