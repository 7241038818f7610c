"""Processes that tests start: none outlives its test, however the test ends.

One that is left writes into the tests that follow: its pipes are closed by the garbage collector, a
ResourceWarning, which fails whichever test runs then.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.cli import main

_STARTED: list[subprocess.Popen] = []


def start(command, **options):
    """Start a process. It ends with the test, unless the test ends it before."""
    _STARTED.append(subprocess.Popen([*map(str, command)], **options))
    return _STARTED[-1]


@contextlib.contextmanager
def running(command, **options):
    """Start a process that ends with the block: for fixtures of a module or of the run, too."""
    process = subprocess.Popen([*map(str, command)], **options)
    try:
        yield process
    finally:
        end(process)


def end(process):
    """Kill a process, with its children where it leads a session; and close its pipes."""
    if process.poll() is None:
        leads = os.getpgid(process.pid) == process.pid
        (os.killpg if leads else os.kill)(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    process.wait()


@contextlib.contextmanager
def ended():
    """End all processes that are started within the block."""
    before = len(_STARTED)
    try:
        yield
    finally:
        while len(_STARTED) > before:
            end(_STARTED.pop())


class Worker:
    """A worker in a process of its own, and what it says that it worked on.

    Its program prints a line of a time, a partition and an offset for each piece of work.
    """

    def __init__(self, command, file: Path, **options):
        self.command, self.file, self.options = command, file, options
        self.start()

    def start(self):
        """Start it, or start it once more."""
        with self.file.open("a") as out:
            self.process = start(self.command, stdout=out, **self.options)

    def end(self):
        """Kill it, whatever it does."""
        end(self.process)

    def said(self):
        """(time, partition, offset) of each piece of work."""
        whole = self.file.read_text().rpartition("\n")[0]
        lines = [line.split() for line in whole.splitlines()]
        return [(float(at), partition, int(offset)) for at, partition, offset in lines]

    def works_on(self, count):
        """Whether its newest pieces of work are of so many partitions."""
        return len({partition for _, partition, _ in self.said()[-4:]}) == count


# Commands in this process, where one of their own would test nothing more --------------------------


def run_here(*words, stdin: str | bytes = "", cwd=None):
    """Run a command that ends by itself; what it said, as bytes, and its exit code."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    streams = [io.TextIOWrapper(io.BytesIO(text), "utf-8") for text in (given, b"", b"")]
    main.app.registered_commands.clear()  # `main` adds them, once in a process
    with pytest.MonkeyPatch.context() as patch, contextlib.chdir(cwd or "."):
        patch.setattr(sys, "argv", ["muster", *map(str, words)])
        for name, stream in zip(("stdin", "stdout", "stderr"), streams, strict=True):
            patch.setattr(sys, name, stream)
        with pytest.raises(SystemExit) as end:
            main.main()
    for stream in streams[1:]:
        stream.flush()
    said = [stream.buffer.getvalue() for stream in streams[1:]]
    return subprocess.CompletedProcess(words, end.value.code or 0, *said)


def run_as_text(*words, cwd=None):
    """Do the same; what it said is text."""
    done = run_here(*words, cwd=cwd)
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done
