"""Wait for a store that does not answer: that is neither damage nor a reason to end.

Restarting the process would only ask the store more often.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import TypeVar

from coordinator.clock import monotonic_ms
from coordinator.config import ConfigError
from coordinator.storage.record_log import CommitFailed, Unconfirmed, Unreachable
from coordinator.storage.tables.files import StoreRefusedError
from coordinator.storage.tables.store_files import explain_silence, is_remote, root_of

T = TypeVar("T")
PAUSES_S = (1.0, 2.0, 5.0, 10.0)
"""After how long a store that does not answer is asked again; the last one again and again."""
_WAITED_FOR: set[str] = set()
logger = logging.getLogger("muster.coordinator")


def is_waited_for(store: str | os.PathLike[str]) -> bool:
    """Whether this process is opening a store that does not answer."""
    return root_of(store) in _WAITED_FOR


class Patience:
    """Waits while a store is opened, and logs when it begins to wait and when it goes on.

    Parameters
    ----------
    root
        Of the store; None for none. On a disk only a stand-by waits, which has seen that it works.
    waits
        Whether to wait at all.
    sleep
        Waits so many seconds; what it raises ends that.
    """

    def __init__(
        self, root: str | None, *, waits: bool = True, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._root = root or ""
        self._may_wait = waits
        self._waits = waits and is_remote(self._root)
        self._sleep = sleep
        self._since_ms = 0
        self._tries = 0
        self._held: object = None

    def run(self, work: Callable[[], T]) -> T:
        """Do something with the store, until it answers.

        Raises
        ------
        ConfigError, CommitFailed
            As for `failed`.
        """
        while True:
            try:
                found = work()
            except (CommitFailed, OSError) as error:
                self.failed(error)
            else:
                self.answered()
                return found

    def failed(self, error: CommitFailed | OSError) -> None:
        """Wait after a failure that time may mend.

        Raises
        ------
        ConfigError
            The store refuses us.
        CommitFailed
            Waiting would not help.
        """
        if isinstance(error, StoreRefusedError):
            self._end()
            raise ConfigError(f"the store {self._root} cannot be opened: {error}") from None
        silence = explain_silence(error)
        if not self._waits or isinstance(error, Unconfirmed):
            if isinstance(error, CommitFailed):
                raise error
            if silence:
                raise Unreachable(silence) from None
            raise CommitFailed(f"the store {self._root} cannot be opened: {error}") from None
        if not self._tries:
            self._since_ms = monotonic_ms()
            logger.warning("waiting for the store %s: %s", self._root, silence or error)
        _WAITED_FOR.add(self._root)
        try:
            self._sleep(PAUSES_S[min(self._tries, len(PAUSES_S) - 1)])
        except BaseException:
            self._end()
            raise
        self._tries += 1
        self._held = None

    def stands_by(self, held: object) -> None:
        """Bear with a disk, too: the store was read, and another one has it.

        A disk that is full is read as well as any: that one may be written to again is seen once
        its holder has written.

        Parameters
        ----------
        held
            The lease as it was read.
        """
        self._waits = self._may_wait
        if self._tries and self._held in (None, held):
            self._held = held
        else:
            self.answered()

    def answered(self) -> None:
        """Go on: the store has answered all that it was asked."""
        if self._tries:
            waited_s = (monotonic_ms() - self._since_ms) / 1000
            logger.warning("the store %s answers again after %.0f s", self._root, waited_s)
        self._end()

    def _end(self) -> None:
        self._tries, self._held = 0, None
        _WAITED_FOR.discard(self._root)
