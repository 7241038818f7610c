"""What a program asks about the coordinator itself: its status, who it serves, its timers."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from coordinator.config import Config, ConfigError
from coordinator.core.events import RecordAudit
from coordinator.core.state.groups import State, TopicView, Watched
from coordinator.errors import GroupError
from coordinator.errors.status import STUCK, Status, refusal
from coordinator.extras import require
from coordinator.runtime.group_requests import GroupRequests
from coordinator.runtime.metrics import Metrics
from coordinator.storage.nodes import StoreNodes

if TYPE_CHECKING:
    from coordinator.web.server import WebServer
    from coordinator.wire.call import FindOffsets
    from coordinator.wire.listener import RunningServer

T = TypeVar("T")


class ServiceRequests(GroupRequests):
    """All that a `Coordinator` can be asked once it is open; any thread may ask."""

    _process: int

    @abstractmethod
    def _refuse_forked(self) -> None:
        """Refuse a child that was forked."""

    @abstractmethod
    def close(self) -> None:
        """Answer pending requests, release the store, and stop; a second call does nothing."""

    @abstractmethod
    def when_closed(self, work: Callable[[], object]) -> None:
        """Have something done once the coordinator has closed."""

    @property
    def status(self) -> str:
        """What the coordinator is doing: "active", or why it refuses; in a fork, "closed"."""
        here = os.getpid() == self._process
        return (self._processor.status if here else Status.CLOSED).value

    @property
    def health(self) -> str:
        """The status, or "stuck": the log has not let it answer for as long as a lease lives.

        A stuck coordinator has given its lease up, and may recover if no other has taken it over.
        """
        return STUCK if self._processor.is_stuck else self.status

    @property
    def stuck_ms(self) -> int:
        """For how long the log has not let it answer."""
        return self._processor.health.stuck_ms

    @property
    def epoch(self) -> int:
        """The coordinator epoch of its claim of the log."""
        return self._processor.log.epoch

    @property
    def metrics(self) -> Metrics:
        """The Prometheus metrics; serve `metrics.registry`."""
        return self._processor.metrics

    @property
    def config(self) -> Config:
        """The settings."""
        return self._processor.config

    @property
    def topics(self) -> TopicView:
        """The topics that the coordinator knows now; never changed, replaced by a new view."""
        return self._processor.topics

    @property
    def topics_unread_since(self) -> int | None:
        """Since when the source of topics cannot be read, in ms since 1970; None while it can.

        Meanwhile topics are those that were read last.
        """
        watch = self._processor.topic_watch
        return None if watch is None else watch.unread_since_ms

    @property
    def watched(self) -> Watched | None:
        """The Kafka cluster that coordinates the groups; None where this coordinator does."""
        return self._processor.state.watched

    def look(self, find: Callable[[State], T]) -> T:
        """Return what a function finds in the state.

        Parameters
        ----------
        find
            Called in the loop's thread; it must keep nothing that changes.

        Returns
        -------
        object
            What it returned.

        Raises
        ------
        GroupError
            The coordinator is closed, or does not know what its log says.
        """

        def find_now() -> T:
            if self._processor.status is not Status.ACTIVE:
                raise refusal(self._processor.status)
            return find(self._processor.state)

        return self._loop.call(find_now).result()

    @property
    def find_offsets(self) -> FindOffsets | None:
        """Asks the Kafka cluster of the topics for offsets; None without a cluster."""
        watch = self._processor.topic_watch
        return None if watch is None else watch.find_offsets

    @property
    def nodes(self) -> StoreNodes | None:
        """The servers of the store, to be one of; None where no other process has it."""
        log = self._processor.log
        if log.store is None:
            return None
        return StoreNodes(log.store, self.config.lease, lambda: log.epoch)

    def serve(self, listen: str | None = None, *, insecure: bool = False) -> RunningServer:
        """Let Kafka clients join over the wire, beside the callers in this process.

        Parameters
        ----------
        listen
            host:port, instead of the configured one; port 0 takes a free one.
        insecure
            Listen beyond this machine even without TLS and login.

        Returns
        -------
        RunningServer
            Its `address` is what clients connect to; closing it ends their connections.

        Raises
        ------
        ConfigError
            A setting cannot be used, or the address is not safe to open.
        OSError
            The address is taken.
        """
        self._refuse_forked()
        from coordinator.wire.listener import serve  # noqa: PLC0415 - the codec takes its time

        return serve(self, listen, insecure=insecure)

    def serve_web(self, listen: str | None = None, *, insecure: bool = False) -> WebServer:
        """Show the groups to browsers: the pages of `muster web`, over this coordinator's store.

        Parameters
        ----------
        listen, insecure
            As for `serve`.

        Returns
        -------
        WebServer
            Its `url` is the address of the pages; closing it ends them.

        Raises
        ------
        ConfigError
            The store is missing, a setting cannot be used, or the address is not safe to
            open.
        MissingExtraError
            `muster[web]` is not installed. It is a ConfigError, too.
        OSError
            The address is taken.
        """
        self._refuse_forked()
        if self._processor.log.store is None:
            raise ConfigError("the pages need a store: open the coordinator with one")
        require("Coordinator.serve_web", "web")
        from coordinator.web.server import WebServer  # noqa: PLC0415 - an extra

        server = self.config.server
        config = replace(self.config, server=replace(server, insecure=insecure or server.insecure))
        return WebServer(
            self._processor.log.store,
            config,
            listen,
            lambda records: self.submit([RecordAudit(records)]),
            lambda: self.status,
        )

    def refresh_topics(self) -> None:
        """Ask the catalog for topics now, instead of at its next turn.

        Raises
        ------
        GroupError
            The coordinator is closed.
        """
        self._loop.call(self._processor.see_topics).result()

    def tick(self) -> None:
        """Fire the timers that are due now: for a clock of your own, after you moved it.

        Raises
        ------
        GroupError
            The coordinator is closed.
        """
        self._loop.call(self._processor.tick).result()

    def confirm_status(self, patience_s: float = 1.0) -> str:
        """Return the status as of now: "active" only if the log was just seen to be ours.

        `status` is the last known one; a process that was suspended may not know yet that another
        one has the store.

        Parameters
        ----------
        patience_s
            How long the loop has to answer, in seconds.

        Returns
        -------
        str
            A status, or "busy" when the loop did not answer in time.
        """
        look = self._loop.call(self._processor.confirm)
        try:
            look.result(patience_s)
        except TimeoutError:
            look.cancel()
            return "busy"
        except GroupError:
            pass  # closed
        return self.status

    def progress(self) -> str:
        """Report on the targets that engines compute now.

        Returns
        -------
        str
            One line: stage and rows of each; "" when none is computed.
        """
        return self._loop.target_computations.progress()

    def cancel_computation(self, group_id: str) -> bool:
        """Cancel the computation of a group's target; it is retried later.

        Parameters
        ----------
        group_id
            The group.

        Returns
        -------
        bool
            Whether one was being computed.
        """
        return self._loop.target_computations.cancel(group_id)
