"""What a command is doing is shown on a terminal, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import threading
from contextlib import contextmanager

import pytest

from coordinator.display import progress


def shown(label):
    """Show at once, and draw often."""
    return progress.show(label, delay_s=0.0, poll_s=0.01)


def plain(said):
    """What is read, without what moves the cursor and colours it."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", "".join(said))


@pytest.fixture
def terminal(monkeypatch):
    """A terminal in place of standard error; what it gives waits for what matches a pattern."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")

    @contextmanager
    def opened():  # by the test, because pytest replaces standard error before each
        reader, writer = pty.openpty()
        said = []

        def wait_for(pattern):
            while not any(re.search(pattern, text) for text in ("".join(said), plain(said))):
                assert select.select([reader], [], [], 20)[0], f"{pattern} is not in {said}"
                said.append(os.read(reader, 1 << 16).decode())

        with os.fdopen(writer, "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            yield wait_for
        os.close(reader)

    return opened


def test_tasks_are_shown_with_their_counts(terminal, capfd):
    with terminal() as seen, shown("packing"):
        seen(r"packing")
        with progress.task("reading the log", total=2_000_000) as reading:
            reading.advance(1_500_000)
            seen(r"reading the log .*1,500,000 of 2,000,000 +0:00:0")
            reading.say("writing")
            seen(r"writing")
    assert progress._display is None
    assert capfd.readouterr().out == ""


def test_what_is_polled_may_fail(terminal):
    asked = []

    def poll():
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("gone")
        return len(asked), 1_000

    with terminal() as seen, shown("assigning"), progress.task("tasks", poll=poll):
        seen(r"tasks .* of 1,000")


def test_a_task_of_another_thread_is_shown(terminal):
    with terminal() as seen, shown("opening"):
        over = threading.Event()

        def work():
            with progress.task("replaying"):
                over.wait()

        thread = threading.Thread(target=work)
        thread.start()
        seen("replaying")
        over.set()
        thread.join()


def test_the_cursor_stays_even_if_the_process_is_killed(terminal):
    with terminal() as seen, shown("packing"):
        seen(r"(?s)\x1b\[\?25l.*\x1b\[\?25h")
        seen("packing")


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"])
def test_nothing_is_shown_when_piped(name, monkeypatch, capfd):
    monkeypatch.setenv(name, "1")  # rich would take it for a terminal
    with shown("packing"), progress.task("reading") as reading:
        reading.advance()
        assert progress._display is None
    assert capfd.readouterr() == ("", "")


def test_a_task_outside_of_a_command_shows_nothing(terminal, capfd):
    with terminal(), progress.task("replaying", total=3) as replaying:
        replaying.advance(3)
        assert progress._display is None
    assert capfd.readouterr() == ("", "")


def test_the_display_is_gone_after_an_error(terminal):
    with terminal(), pytest.raises(ValueError, match="broken"), shown("packing"):
        raise ValueError("broken")
    assert progress._display is None
