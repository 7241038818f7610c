"""Parts of open pages, sent as they change: each is made once for all who look at it.

A browser that does not read waits alone. What it has not taken is replaced by what is newer, so it
costs one message, however far it falls behind. Making a view takes a tenth of a processor at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

from coordinator.display.printable import visible
from coordinator.web.errors import NoGroupError, explain

Parts: TypeAlias = dict[str, bytes]
Make: TypeAlias = Callable[[], Awaitable[tuple[Parts, float]]]
"""Makes the parts of a view; says how many seconds of a processor that took."""
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
POLL_S = 0.25
SHARE = 10
"""What took a second to make is remade after this many."""
STALL_S = 60.0
"""How long a browser may take to read what was sent, before its connection is closed."""
GONE, TROUBLE = "gone", "trouble"
"""Parts that are news for the page's sign: its group is gone; why it is not live, "" if it is."""
HERE = b"event: here\ndata:\n\n"
"""What is sent if there is nothing else, so that a page can tell a connection that has ended."""
logger = logging.getLogger("muster.web")


@dataclass(frozen=True, slots=True)
class Times:
    """How long what pages get stays valid, in seconds.

    Attributes
    ----------
    period_s
        How long a part stays as it is at least.
    age_s
        How old a view may be if nothing changes: what it counts, it may count of the last hour.
    ping_s
        The longest silence towards a page.
    retry_s
        How long a store that cannot be read is left alone.
    """

    period_s: float = 1.0
    age_s: float = 60.0
    ping_s: float = 15.0
    retry_s: float = 10.0


TIMES = Times()


class Mailbox:
    """What one page has not been sent yet: of each part, the newest."""

    def __init__(self) -> None:
        self.parts: Parts = {}
        self.filled = asyncio.Event()

    def put(self, parts: Parts) -> None:
        """Replace parts by newer ones."""
        self.parts |= parts
        self.filled.set()

    def take(self) -> Parts:
        """Return what is new, and forget it."""
        parts, self.parts = self.parts, {}
        self.filled.clear()
        return parts


class LiveView:
    """One view that is open in one page or more."""

    def __init__(self, hub: Hub, make: Make) -> None:
        self.boxes: set[Mailbox] = set()
        self.last: Parts = {}
        self._hub = hub
        self._make = make
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while self.boxes:
            seen, wait_s = self._hub.version, self._hub.times.period_s
            trouble = b""
            try:
                parts, took_s = await self._make()
                wait_s = max(wait_s, SHARE * took_s)
            except NoGroupError as error:
                parts = {GONE: str(error).encode()}
            except Exception as error:  # noqa: BLE001 - the next try may succeed
                logger.warning("could not read a live page: %s", error)
                parts, wait_s = {}, self._hub.times.retry_s
                trouble = visible(explain(error)).encode()
            if trouble or TROUBLE in self.last:
                parts[TROUBLE] = trouble
            changed = {name: part for name, part in parts.items() if self.last.get(name) != part}
            self.last |= changed
            if changed:
                for box in self.boxes:
                    box.put(changed)
            await asyncio.sleep(wait_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(0 if trouble else self._hub.times.age_s):
                    await self._hub.wait_for_change(seen)


class Hub:
    """All open views. Used in the server's event loop only.

    Parameters
    ----------
    count_changes
        Returns another number once the store has changed, even if others have read it since; asked
        often, so it must be cheap.
    pages_max
        How many pages may be open.
    times
        How long things take.
    """

    def __init__(
        self, count_changes: Callable[[], int], pages_max: int, times: Times = TIMES
    ) -> None:
        self.times = times
        self.version = 0
        self.pages = 0
        self.pages_max = pages_max
        self.ended = False
        self._count_changes, self._changes = count_changes, 0
        self._channels: dict[Hashable, LiveView] = {}
        self._changed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None

    @property
    def is_full(self) -> bool:
        """Whether no more pages may be open."""
        return self.pages >= self.pages_max or self.ended

    def join(self, key: Hashable, make: Make) -> Mailbox:
        """Open a view for one more page; `make` makes its parts, the same for all of this key."""
        channel = self._channels.get(key)
        if channel is None or channel.task.done():
            channel = self._channels[key] = LiveView(self, make)
        box = Mailbox()
        channel.boxes.add(box)
        self.pages += 1
        if channel.last:
            box.put(channel.last)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look())
        return box

    def leave(self, key: Hashable, box: Mailbox) -> None:
        """Close a view of a page; with the last page, the view is no longer made."""
        channel = self._channels.get(key)
        self.pages -= 1
        if channel is None:
            return
        channel.boxes.discard(box)
        if not channel.boxes:
            channel.task.cancel()
            del self._channels[key]

    async def wait_for_change(self, seen: int) -> None:
        """Return once the store has changed since a version."""
        while self.version == seen:
            await self._changed.wait()

    def end(self) -> None:
        """Close all views."""
        self.ended = True
        for channel in self._channels.values():
            for box in channel.boxes:
                box.filled.set()

    async def _look(self) -> None:
        while self._channels and not self.ended:
            await asyncio.sleep(POLL_S)
            try:  # in a thread, because an object store may let it wait
                changes = await asyncio.to_thread(self._count_changes)
            except Exception as error:  # noqa: BLE001 - the next look may succeed
                logger.warning("cannot tell whether the store has changed: %s", error)
                self._tell()  # the pages find out, and say, that they cannot read it
                await asyncio.sleep(self.times.retry_s)
                continue
            if changes != self._changes:
                self._changes = changes
                self._tell()

    def _tell(self) -> None:
        """Have all views remade."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()


class PageEvents:
    """A response that never ends: the parts of a view as server-sent events.

    Parameters
    ----------
    may_see
        Whether the viewer still may; asked before each message.
    """

    def __init__(
        self,
        hub: Hub,
        key: Hashable,
        make: Make,
        may_see: Callable[[], bool],
        headers: list[tuple[bytes, bytes]],
    ) -> None:
        self._hub = hub
        self._key = key
        self._make = make
        self._may_see = may_see
        self._headers = headers

    async def __call__(self, _scope: object, receive: Receive, send: Send) -> None:
        """Send events until the browser goes, stalls, or may no longer see the view."""
        box = self._hub.join(self._key, self._make)
        gone = asyncio.create_task(_wait_for_end(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self._headers})
            await self._send(send, b"retry: 2000\n\n")
            while not gone.done() and not self._hub.ended and self._may_see():
                filled = asyncio.create_task(box.filled.wait())
                await asyncio.wait(
                    {filled, gone},
                    timeout=self._hub.times.ping_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                filled.cancel()
                parts = box.take()
                await self._send(send, format_events(parts) if parts else HERE)
                if GONE in parts:
                    break
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except (TimeoutError, OSError):
            pass  # it stalled, or it is gone: it will ask again
        finally:
            gone.cancel()
            self._hub.leave(self._key, box)

    async def _send(self, send: Send, body: bytes) -> None:
        async with asyncio.timeout(STALL_S):
            await send({"type": "http.response.body", "body": body, "more_body": True})


def format_events(parts: Parts) -> bytes:
    """Return parts as events: the id of the part, then its lines."""
    events = []
    for name, part in parts.items():
        lines = part.split(b"\n")
        if name in {GONE, TROUBLE}:
            events.append(b"event: %s\n" % name.encode())
        else:
            events.append(b"event: part\ndata: %s\n" % name.encode())
        events += [b"data: %s\n" % line for line in lines]
        events.append(b"\n")
    return b"".join(events)


async def _wait_for_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
