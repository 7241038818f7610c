"""The command line in this process, where a process of its own would test nothing more."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys

import pytest

from coordinator.cli import main


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
