"""Threads that are no longer waited for, until the process ends.

A thread may be in a library's native code, such as a request that an object store does not answer.
Once the interpreter has ended, native code that returns to it crashes the process.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time

EXIT_S = 20.0
"""How long the end of the interpreter waits for all of them; a request's time-out is less."""
_left: list[threading.Thread] = []


def leave(thread: threading.Thread) -> None:
    """Wait for a thread no longer before the interpreter ends."""
    if not _left:
        atexit.register(_wait)
    _left.append(thread)


def end_process(code: int) -> None:
    """End the process at once if a thread that was left still runs; else do nothing.

    For a process that has nothing else to do at its end.
    """
    if any(thread.is_alive() for thread in _left):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait() -> None:
    until = time.monotonic() + EXIT_S
    for thread in _left:
        thread.join(max(0.0, until - time.monotonic()))
