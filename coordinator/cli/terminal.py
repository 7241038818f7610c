"""The console that all commands print to."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from coordinator.printable import visible_lines


class Terminal(Console):
    """A console that prints names literally, with invisible characters escaped."""

    def __init__(self) -> None:
        super().__init__(markup=False, highlight=False, emoji=False)

    def render_str(self, text: str, **how: Any) -> Text:  # noqa: ANN401 - rich's own
        """Return text to print, with invisible characters escaped."""
        return super().render_str(visible_lines(text), **how)
