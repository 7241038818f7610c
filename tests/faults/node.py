"""What runs in a coordinator's process: requests from a pipe in, answers out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from coordinator import Coordinator
from coordinator.config import Config
from coordinator.errors import ErrorCode, GroupError

from .said import Said

SMALL, LARGE = {"clicks": 12, "orders": 6}, {"reports": 1_000}


class Teller:
    """Sends whole messages from any thread."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def __call__(self, kind: str, *what: object) -> None:
        with self._lock, suppress(OSError):  # the parent no longer reads
            self._pipe.send((kind, *what))


def listen(tell: Teller) -> None:
    """Tell what is logged from now on."""
    logging.getLogger("muster").addHandler(Said(lambda text: tell("said", text)))


def serve(pipe: Connection, store: str, config: Config, takeover: str) -> None:
    """Open a coordinator on a store, and answer until the pipe ends."""
    tell = Teller(pipe)
    listen(tell)
    tell("began", time.monotonic())
    try:
        coordinator = Coordinator.open(
            store, config=config, topics=SMALL | LARGE, takeover=takeover
        )
    except Exception as error:  # noqa: BLE001 - reported to the parent
        tell("failed", f"{type(error).__name__}: {error}")
        return
    with coordinator:
        tell("serves", time.monotonic())
        answer_all(coordinator, pipe, tell)


def serve_with_clock(
    offset_s: float, pipe: Connection, store: str, config: Config, takeover: str
) -> None:
    """Do the same where the wall clock is wrong."""
    right = time.time_ns
    time.time_ns = lambda: right() + int(offset_s * 1e9)
    serve(pipe, store, config, takeover)


def answer_all(coordinator: Coordinator, pipe: Connection, tell: Teller) -> None:
    """Ask the coordinator what the pipe asks; many questions may be under way at once."""
    with ThreadPoolExecutor(4) as pool:
        while True:
            try:
                number, method, fields = pipe.recv()
            except (EOFError, OSError):
                return
            if method == "consumer_group_heartbeat":
                found = coordinator.submit_heartbeat(**fields)
            else:
                found = pool.submit(getattr(coordinator, method), **fields)
            found.add_done_callback(_reports(tell, number))


def _reports(tell: Teller, number: int) -> Callable[[Any], None]:
    return lambda found: tell("answer", number, found.exception() or found.result())


def code_of(answer: object) -> ErrorCode:
    """The error of what a node was asked; NONE when it served."""
    if isinstance(answer, GroupError):
        return answer.code
    return ErrorCode(getattr(answer, "error_code", ErrorCode.NONE))
