"""The same faults of processes on a store in S3, whose network fails now and then."""

from __future__ import annotations

import atexit
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.s3.client import S3Server

from . import crash, zombie
from .report import Outcome

TROUBLES = ("lost", "late", "never", "503")
"""An answer is lost, the request comes half a second late, is lost too, or is refused."""
PAUSE_S = 3.0


def killed(_store: Path, seed: int, times: int) -> Outcome:
    """Kill a coordinator so many times, while a request fails now and then."""
    server = serve_s3()
    with _trouble(server, seed) as made:
        outcome = crash.killed(server.new_store(), seed, times)
    return Outcome(times, f"{outcome.seen}; {len(made)} faults of the network")


def woken(_store: Path, seed: int, times: int) -> Outcome:
    """Stop a coordinator, let another one take over, and wake the first."""
    return zombie.woken(serve_s3().new_store(), seed, times)


@cache
def serve_s3() -> Any:
    """Run a server for this process and those that it starts, which find it by the environment."""
    server = S3Server.start()
    os.environ.update(server.environment())
    atexit.register(server.stop)
    return server


@contextmanager
def _trouble(server: Any, seed: int) -> Iterator[list[str]]:
    """Have the next request fail, again and again."""
    chance, end, made = random.Random(seed), threading.Event(), []

    def make() -> None:
        while not end.wait(chance.uniform(0, PAUSE_S)):
            made.append(chance.choice(TROUBLES))
            server.fault(made[-1])

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        end.set()
        thread.join()
        server.heal()
