"""The console that all commands print to, and the log of those that serve."""

from __future__ import annotations

import logging
from typing import Any

from rich.console import Console
from rich.text import Text

from coordinator.config import LogFormat, LogLevel
from coordinator.display.printable import JsonFormatter, VisibleFormatter, visible_lines


class Terminal(Console):
    """A console that prints names literally, with invisible characters escaped."""

    def __init__(self) -> None:
        super().__init__(markup=False, highlight=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401 - rich's own
        """Return text to print, with invisible characters escaped."""
        return super().render_str(visible_lines(text), **how)


def log_to_stderr(level: LogLevel, as_format: LogFormat = "text") -> None:
    """Write Muster's log to stderr from a level on; of libraries, warnings."""
    to_stderr = logging.StreamHandler()
    text = VisibleFormatter("%(asctime)s %(levelname)s %(message)s")
    to_stderr.setFormatter(JsonFormatter() if as_format == "json" else text)
    logging.basicConfig(level=logging.WARNING, handlers=[to_stderr])
    logging.getLogger("muster").setLevel(level.upper())
