"""Show progress on a terminal's standard error, for work that takes more than 3 seconds.

A command opens the display with `show`. Code that runs inside it, in any thread, adds a line with
`task`. Without a display (output is piped, or Muster is embedded in another program) a task does
nothing. Standard output is reserved for the result.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias

from coordinator.display.printable import visible

if TYPE_CHECKING:
    from rich.table import Table

DELAY_S = 3.0
"""Work that takes less than this shows nothing."""
POLL_S = 0.25
BAR_WIDTH = 24

Count: TypeAlias = tuple[int, int | None]
"""Returns the steps done and their total; None while they are unknown."""


@dataclass(slots=True, eq=False)
class ProgressLine:
    """A line of the display: a task and how far it is.

    Attributes
    ----------
    label
        What is being done now.
    done, total
        Steps done, and their number; None if it is unknown.
    poll
        Returns both, if given.
    """

    label: str
    total: int | None = None
    poll: Callable[[], Count] | None = None
    done: int = 0
    began: float = field(default_factory=time.monotonic)

    def advance(self, steps: int = 1) -> None:
        """Add to the steps that are done."""
        self.done += steps

    def say(self, label: str) -> None:
        """Change the label."""
        self.label = label

    def count(self) -> str:
        """Return the steps done, as text."""
        if self.total is None:
            return f"{self.done:,}" if self.done else ""
        return f"{self.done:,} of {self.total:,}"


class _Display:
    """Tasks on the terminal: recorded from the start, drawn after the delay."""

    def __init__(self, delay_s: float, poll_s: float) -> None:
        self._delay_s, self._poll_s = delay_s, poll_s
        self.tasks: list[ProgressLine] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="muster-progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Clear the display."""
        self._over.set()
        self._thread.join()

    def _draw(self) -> None:
        if self._over.wait(self._delay_s):
            return
        from rich.console import Console  # noqa: PLC0415 - few commands take so long
        from rich.live import Live  # noqa: PLC0415 - the same

        console = Console(stderr=True)
        with Live(
            get_renderable=self._table, console=console, transient=True, redirect_stdout=False
        ):
            console.show_cursor()  # or it would stay hidden if this process were killed
            while True:
                self._poll()
                if self._over.wait(self._poll_s):
                    return

    def _poll(self) -> None:
        for one in list(self.tasks):
            if one.poll is not None:
                with suppress(Exception):  # the work may just have ended
                    one.done, one.total = one.poll()

    def _table(self) -> Table:
        from rich.progress_bar import ProgressBar  # noqa: PLC0415 - as above
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table, now = Table.grid(padding=(0, 1)), time.monotonic()
        for one in list(self.tasks):
            bar = ProgressBar(one.total, one.done, width=BAR_WIDTH, pulse=not one.total)
            took = timedelta(seconds=int(now - one.began))
            table.add_row(Text(visible(one.label)), bar, Text(one.count()), Text(str(took)))
        return table


_display: _Display | None = None


@contextmanager
def show(label: str, delay_s: float = DELAY_S, poll_s: float = POLL_S) -> Iterator[ProgressLine]:
    """Show the progress of the block, if standard error is a terminal. For commands only.

    Do not print results inside the block: both may be the same terminal.

    Parameters
    ----------
    label
        What the command does.
    delay_s
        A block that takes less time shows nothing.
    poll_s
        Seconds between two updates.
    """
    global _display  # noqa: PLW0603 - a process has one terminal
    if _display is not None or sys.stderr is None or not sys.stderr.isatty():
        with task(label) as one:
            yield one
        return
    _display = _Display(delay_s, poll_s)
    try:
        with task(label) as one:
            yield one
    finally:
        _display.close()
        _display = None


@contextmanager
def task(
    label: str, total: int | None = None, poll: Callable[[], Count] | None = None
) -> Iterator[ProgressLine]:
    """Add a line to the display, if one is open, for as long as the block runs.

    Parameters
    ----------
    label
        What is being done.
    total
        The number of steps, if known.
    poll
        Returns the steps done and their total. The display's thread calls it a few times a second
        and ignores its errors. Without it, the block calls `ProgressLine.advance`.
    """
    display, one = _display, ProgressLine(label, total, poll)
    if display is None:
        yield one
        return
    display.tasks.append(one)
    try:
        yield one
    finally:
        display.tasks.remove(one)
