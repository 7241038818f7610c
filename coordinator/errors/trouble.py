"""Log a failure once that comes again with every try."""

from __future__ import annotations

from collections.abc import Callable


class Trouble:
    """Why something fails that is tried again and again: logged if it differs from the last time.

    Parameters
    ----------
    log
        A logger's method, such as `logger.warning`.
    message
        How it is logged; its last `%s` is the reason.
    values
        What comes before the reason in the message.
    """

    def __init__(self, log: Callable[..., None], message: str, *values: object) -> None:
        self._log = log
        self._message = message
        self._values = values
        self._why: str | None = None

    def note(self, why: object, *values: object) -> None:
        """Note that it failed, and why; further values come right before the reason."""
        text = str(why)
        if text != self._why:
            self._log(self._message, *self._values, *values, text)
        self._why = text

    def end(self) -> bool:
        """Note that it works; return whether it had failed before."""
        failed, self._why = self._why is not None, None
        return failed
