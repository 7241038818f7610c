"""Work of a node for its clients, in the server's loop, which goes on where a client has gone.

What it does is on connections that others have too, and may be done only once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

from coordinator.core.events import Answer


class Working:
    """What is under way; for one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        """Begin, in the loop, and return the future of the answer."""
        future: Future[Answer] = Future()

        async def run() -> None:
            try:
                found = await work
            except Exception as error:  # noqa: BLE001 - handed to the caller
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():  # the client is gone
                    future.set_result(found)

        task = self._loop.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return future

    def close(self) -> None:
        """Answer nothing more."""
        for task in list(self._tasks):
            task.cancel()
