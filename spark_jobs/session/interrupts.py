"""Ctrl-C while a command computes on Spark: jobs, JVM and its folders end before the command does.

KeyboardInterrupt in the middle of a call to the JVM leaves that connection with an answer that the
next call takes for its own, and pyspark's own handler calls the JVM inside of such a call. Here
another thread stops Spark, by a connection of its own, so that the call ends, with an error.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import TimeoutExpired
from types import FrameType
from typing import Any

EXIT_CODE = 130
"""What a shell expects after SIGINT."""
LOOK_S = 0.2
UNWIND_S = 2.0
"""How long a call that was ended has to get out of what called it, before it is interrupted."""
PATIENCE_S = 30.0
"""Then the process ends as it is; the JVM ends when it sees that."""


@contextmanager
def interruptible() -> Iterator[None]:
    """End Spark on Ctrl-C in the block, and then raise KeyboardInterrupt. For commands only.

    The process cannot use Spark afterwards, and further signals are ignored: it must end.
    """
    before = signal.getsignal(signal.SIGINT)
    here = threading.current_thread()  # only the main thread gets signals
    if here is not threading.main_thread() or before in {signal.SIG_IGN, None}:
        yield
        return
    interrupt = _Interrupt()
    signal.signal(signal.SIGINT, interrupt.handle)
    try:
        yield
    finally:
        if interrupt.end():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _end_jvm()
            raise KeyboardInterrupt from None
        signal.signal(signal.SIGINT, before)


class _Interrupt:
    """What a signal began."""

    def __init__(self) -> None:
        self._came, self._over = threading.Event(), threading.Event()
        self._may_raise, self._ended = True, False
        self._thread = threading.Thread(target=self._watch, name="muster-interrupt", daemon=True)
        self._thread.start()

    def handle(self, _number: int, frame: FrameType | None) -> None:
        """Have Spark stopped; raise unless that itself ends what this thread does."""
        if self._ended:
            return
        may_raise, self._may_raise = self._may_raise, False
        if not self._came.is_set():  # its lock would not be given twice
            self._came.set()
        if may_raise and not _calls_jvm(frame):
            raise KeyboardInterrupt

    def end(self) -> bool:
        """Return whether a signal came."""
        self._ended = True
        self._over.set()
        came = self._came.is_set()
        self._came.set()  # or the thread would wait for it
        self._thread.join()
        return came

    def _watch(self) -> None:
        self._came.wait()
        if self._over.is_set():
            return
        timer = threading.Timer(PATIENCE_S, os._exit, [EXIT_CODE])
        timer.daemon = True
        timer.start()
        stopped_at = None
        while not self._over.wait(LOOK_S):
            if stopped_at is None and _stop_spark():
                stopped_at = time.monotonic()
            if stopped_at is None or time.monotonic() > stopped_at + UNWIND_S:
                self._may_raise = True
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        timer.cancel()


def _calls_jvm(frame: FrameType | None) -> bool:
    """Whether a thread starts the JVM, or waits for its answer; Spark Connect has none."""
    names = []
    while frame is not None:
        names.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    if any(name.startswith("pyspark.sql.connect") for name in names):
        return False
    return any(name.partition(".")[0] in {"py4j", "pyspark"} for name in names)


def _stop_spark() -> bool:
    """Stop the context of this process, or the JVM that begins one; False without one."""
    context: Any = getattr(_context_class(), "_active_spark_context", None)
    java, jvm = getattr(context, "_jsc", None), _jvm()
    if java is None and jvm is None:
        return False
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(_is_not_of_py4j)  # it logs lost connections by this one
    if java is None:  # it takes seconds to begin, and longer on a busy machine
        jvm.terminate()
        return True
    with suppress(Exception):  # it may be stopped, or gone
        context.setLogLevel("OFF")  # the command has asked for what tasks would complain of
        java.stop()
    return True


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def _context_class() -> Any:  # noqa: ANN401 - of pyspark
    """Return SparkContext if it was imported; a command may have computed without it."""
    return getattr(sys.modules.get("pyspark.core.context"), "SparkContext", None)


def _jvm() -> Any:  # noqa: ANN401 - a Popen, of pyspark
    """Return the process of the JVM, once pyspark is connected with it."""
    return getattr(getattr(_context_class(), "_gateway", None), "proc", None)


def _end_jvm() -> None:
    """Wait until the JVM has removed its folders and is gone."""
    process = _jvm()
    if process is None:
        return
    process.stdin.close()  # by which it sees the end of its Python process
    try:
        process.wait(PATIENCE_S)
    except TimeoutExpired:
        process.kill()
