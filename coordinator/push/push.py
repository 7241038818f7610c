"""`Push`: all workers that listen, in a thread of their own."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Self

from coordinator.clock import monotonic_ms
from coordinator.config import ConfigError, PushConfig
from coordinator.errors.status import Status
from coordinator.member.loop_thread import LoopThread
from coordinator.push.address import Address, parse_urls
from coordinator.push.channel import Line
from coordinator.push.pushed_worker import PushedWorker
from coordinator.wire.access import warn_of_readers

if TYPE_CHECKING:
    from coordinator.runtime.coordinator import Coordinator

CONFIRM_MS = 500
"""For how long it counts that the coordinator has just looked whether it has its store."""
logger = logging.getLogger("muster.push")


class PushAccess:
    """The workers' addresses, the token and the TLS context, as configured.

    Raises
    ------
    ConfigError
        An address is invalid, a file cannot be read, or a token would be sent where others read it.
    """

    def __init__(self, config: PushConfig, *, insecure: bool = False) -> None:
        self.addresses = parse_urls(config.workers)
        self.token = _read_token(config.token_file)
        self.tls = _make_tls(config.tls_ca)
        for address in self.addresses:
            self._check(address, insecure=insecure)

    def _check(self, address: Address, *, insecure: bool) -> None:
        if address.is_tls or address.is_local:
            return
        what = f"push.workers (--push) has {address.url}, which is beyond this machine without TLS"
        if not insecure:
            raise ConfigError(f"{what}: give https://, or pass --insecure (server.insecure)")
        logger.warning("%s: anyone on the network path can read the token and the work", what)


def _read_token(path: str) -> str:
    if not path:
        return ""
    try:
        token = Path(path).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"push.token_file {path} cannot be read: {error}") from None
    if not token or not token.isprintable() or " " in token:
        raise ConfigError(f"push.token_file {path} has no token: write one word into it")
    warn_of_readers("push.token_file", path)
    return token


def _make_tls(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except OSError as error:
        raise ConfigError(f"push.tls_ca {ca} cannot be read: {error}") from None


class Push:
    """Members for workers that listen, until it is closed.

    Parameters
    ----------
    coordinator
        Where they are members; it must stay open for longer than this.
    config
        The settings; None takes the coordinator's.
    insecure
        Reach workers beyond this machine without TLS.

    Raises
    ------
    ConfigError
        As `PushAccess`.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        config: PushConfig | None = None,
        *,
        insecure: bool = False,
    ) -> None:
        config = coordinator.config.push if config is None else config
        access = PushAccess(config, insecure=insecure)
        metrics = coordinator.metrics
        line = Line(config, access.token, access.tls, metrics.push_asked)
        self._coordinator = coordinator
        self._confirmed_at_ms = -CONFIRM_MS
        self._workers = [
            PushedWorker(
                coordinator, line, one, self._is_active, metrics.push_lost, metrics.push_refused
            )
            for one in access.addresses
        ]
        metrics.watch_push(
            lambda: (len(self._workers), sum(one.is_registered for one in self._workers))
        )
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = LoopThread()
        self._thread.ask(self._start())

    async def _start(self) -> None:
        self._tasks = [asyncio.create_task(one.run()) for one in self._workers]
        for task in self._tasks:
            task.add_done_callback(_report_bug)

    async def _is_active(self) -> bool:
        """Whether the coordinator has just seen that the store is its own."""
        if monotonic_ms() - self._confirmed_at_ms >= CONFIRM_MS:
            status = await asyncio.to_thread(self._coordinator.confirm_status)
            if status != Status.ACTIVE.value:
                return False
            self._confirmed_at_ms = monotonic_ms()
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop all workers, commit their progress, and leave their groups."""

        async def end() -> None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        if self._tasks or self._workers:
            self._thread.ask(end())
            self._thread.stop()
            self._tasks, self._workers = [], []


def _report_bug(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.error("a worker is no longer served: a bug in Muster", exc_info=task.exception())
