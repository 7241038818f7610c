"""`Coordinator`, the group coordinator that a pipeline embeds or a server serves.

It claims a store when the lease allows it, replays the log, and serves requests from any thread
through one loop (`runner`). Everything slow runs beside that loop: regexes, computations, topics,
the lease, log maintenance.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pyarrow as pa

from coordinator.clock import Clock, monotonic_ms, wall_ms
from coordinator.compute.engine import Engine
from coordinator.config import Config
from coordinator.core.events import (
    JOIN,
    Answer,
    Caller,
    ConfigureGroup,
    DeleteGroup,
    Describe,
    Event,
    Heartbeat,
    Install,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Prepare,
)
from coordinator.core.state import State, TopicView
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime import futures, responses
from coordinator.runtime.background_tasks import Keeper
from coordinator.runtime.batch_heartbeats import run_beats
from coordinator.runtime.event_loop import Loop
from coordinator.runtime.event_processor import Runner, Steady
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.responses import HeartbeatAnswer
from coordinator.runtime.topic_catalog import TopicCatalog, catalog_for
from coordinator.status import Status, refusal
from coordinator.storage.record_log import RecordLog
from coordinator.storage.store_claim import claimed

if TYPE_CHECKING:
    from coordinator.wire.listener import Serving

T = TypeVar("T")
PROCESS = Caller("process")
"""Who deletes or alters something without the wire: the program that embeds the coordinator."""
logger = logging.getLogger("muster.coordinator")


class Coordinator:
    """A group coordinator over one store.

    >>> from coordinator import Coordinator
    >>> with Coordinator.open(None, topics={"clicks": 4}) as coordinator:
    ...     answer = coordinator.consumer_group_heartbeat(
    ...         group_id="g", member_id="m1", member_epoch=0, rebalance_timeout_ms=60_000,
    ...         subscribed_topic_names=["clicks"], topic_partitions={})
    >>> answer.assignment
    {'clicks': [0, 1, 2, 3]}

    All methods may be called from any thread; `aio` has the same ones as coroutines. No answer
    leaves before its records are durable. A child that is forked has no coordinator: what it asks
    is refused.
    """

    def __init__(self, runner: Runner, loop: Loop, keeper: Keeper | None) -> None:
        self._runner = runner
        self._inner = loop
        self._process = os.getpid()
        self._keeper = keeper
        self._closing = threading.RLock()
        self._when_closed: list[Callable[[], object]] = []
        self.aio = AsyncFace(self)

    @classmethod
    def open(
        cls,
        store: str | Path | None,
        *,
        config: Config | None = None,
        topics: TopicCatalog | Mapping[str, int] | str | None = None,
        engine: Engine | None = None,
        takeover: str = "wait",
        address: str = "",
        clock: Clock = wall_ms,
        log: RecordLog | None = None,
    ) -> Self:
        """Claim a store, replay its log, and serve.

        Parameters
        ----------
        store
            Folder of the tables (docs/design/log_format.md#store); None keeps everything in memory.
        topics
            Where topic metadata comes from: a catalog, just {topic: partitions}, or a source named
            as in the setting `topics.source`, which stands when this is left out.
        engine
            What computes very large targets; None finds them by the entry points `muster.engines`.
        takeover
            "wait" until the lease of another coordinator ends; "refuse" names the holder; "force"
            claims at once and fences it.
        address
            Where this coordinator can be reached, for those that look for it.
        clock
            Ms since 1970. Deadlines run on one of the machine's that nobody can set; on a clock of
            one's own they run on that.

        Raises
        ------
        BusyError
            Another coordinator has the store, and takeover is "refuse".
        ConfigError
            The store can be no folder of ours, or the source of topics cannot be read.
        LogError
            The log is corrupt, or of a newer version; the message names the file.
        """
        config = config or Config()
        catalog = catalog_for(topics, config)
        lease = None
        if log is None:
            log, lease = claimed(store, config, takeover, address, clock)
        steady = monotonic_ms if clock is wall_ms else clock
        runner = Runner(log, config, clock, catalog, Metrics(config.metrics.groups_max), steady)
        runner.metrics.watch(lambda: runner.state, lambda: runner.status.value)
        loop = Loop(runner, engine)
        keeper = Keeper(loop, lease)
        keeper.hold()
        try:
            runner.load()
        except BaseException:
            keeper.close()
            log.close()
            raise
        loop.start()
        keeper.start()
        return cls(runner, loop, keeper)

    @property
    def _loop(self) -> Loop:
        """The loop, for who asks it something."""
        self._refuse_forked()
        return self._inner

    def _refuse_forked(self) -> None:
        """Refuse a child that was forked: no thread of ours is there, nobody would answer."""
        here = os.getpid()
        if here != self._process:
            raise GroupError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"The coordinator is in process {self._process}, this one ({here}) was forked from "
                "it: open one here, or ask that one over the wire (Coordinator.serve).",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Answer what is asked, hand the store over at once, and stop; twice is no fault.

        In a forked child this does nothing: the coordinator is its parent's.
        """
        if os.getpid() != self._process:
            return
        with self._closing:
            self._inner.close()
            if self._keeper is not None:
                self._keeper.close()
            self._runner.log.close()
            while self._when_closed:
                self._when_closed.pop()()

    def when_closed(self, work: Callable[[], object]) -> None:
        """Have something done once the coordinator has closed; what was asked last goes first."""
        with self._closing:
            self._when_closed.append(work)

    @property
    def status(self) -> str:
        """What the coordinator is doing: "active", or why it refuses; in a fork, "closed"."""
        here = os.getpid() == self._process
        return (self._runner.status if here else Status.CLOSED).value

    @property
    def metrics(self) -> Metrics:
        """The Prometheus metrics; serve `metrics.registry`."""
        return self._runner.metrics

    @property
    def config(self) -> Config:
        """The settings."""
        return self._runner.config

    @property
    def topics(self) -> TopicView:
        """The topics that the coordinator knows now; never changed, replaced by a new view."""
        return self._runner.topics

    def serve(self, listen: str | None = None, *, insecure: bool = False) -> Serving:
        """Let Kafka clients join over the wire, beside the callers in this process.

        Parameters
        ----------
        listen
            host:port, instead of the configured one; port 0 takes any that is free. The result's
            `address` is what clients connect to; closing it ends their connections.
        insecure
            Listen beyond this machine even without TLS and login.

        Raises
        ------
        ConfigError
            Something configured cannot be used, or the address is not safe to open.
        OSError
            The address is taken.
        """
        self._refuse_forked()
        from coordinator.wire.listener import serve  # noqa: PLC0415 - the codec takes its time

        return serve(self, listen, insecure=insecure)

    def refresh_topics(self) -> None:
        """Ask the catalog now, instead of at its next turn."""
        self._loop.call(self._runner.see_topics).result()

    def tick(self) -> None:
        """Look at the timers now; on a clock of one's own, after moving it."""
        self._loop.call(self._runner.tick).result()

    # Kafka's APIs --------------------------------------------------------------------------------

    def consumer_group_heartbeat(
        self,
        *,
        group_id: str,
        member_id: str,
        member_epoch: int,
        **fields: Any,  # noqa: ANN401
    ) -> HeartbeatAnswer:
        """Join (epoch 0), beat, or leave (−1; −2 for a while, static members).

        Parameters
        ----------
        fields
            instance_id, rack_id, rebalance_timeout_ms, subscribed_topic_names,
            subscribed_topic_regex, server_assignor, topic_partitions ({topic: [partition]} owned
            now), client_id, client_host; what is left out is unchanged (K-24).
        """
        return self.submit_heartbeat(
            group_id=group_id, member_id=member_id, member_epoch=member_epoch, **fields
        ).result()

    def consumer_group_heartbeats(self, requests: Sequence[Heartbeat]) -> list[HeartbeatAnswer]:
        """Answer many heartbeats as one batch, in order, with one commit for all."""
        answers = self._loop.submit(list(requests)).result()
        return [responses.heartbeat_answer(answer) for answer in answers]

    def steady_heartbeats(
        self, group_id: str, member_ids: Sequence[str], member_epochs: Sequence[int]
    ) -> list[HeartbeatAnswer]:
        """Answer heartbeats that carry nothing but id and epoch: the batch face of a server."""
        if len(member_ids) != len(member_epochs):
            raise ValueError(f"{len(member_ids)} ids and {len(member_epochs)} epochs: give pairs")
        runner = self._runner

        def beat() -> list[Answer | Steady]:
            return runner.confirmed(run_beats(runner, group_id, member_ids, member_epochs))

        answers: list[Answer | Steady]
        loop = self._loop
        try:
            answers = loop.call(beat).result()
        except GroupError as closed:
            answers = [closed] * len(member_ids)
        return [
            HeartbeatAnswer(0, "NONE", None, member_id, found[0], found[1])
            if isinstance(found, Steady)
            else responses.heartbeat_answer(found)
            for member_id, found in zip(member_ids, answers, strict=True)
        ]

    def consumer_group_describe(self, group_ids: Sequence[str] | str) -> list[dict[str, Any]]:
        """Return groups as Kafka describes them (G-130)."""
        events = [Describe(group_id) for group_id in responses.as_list(group_ids)]
        answers = self._loop.submit(list(events)).result()
        return [
            {"group_id": event.group_id, **_described(answer)}
            for event, answer in zip(events, answers, strict=True)
        ]

    def group_epochs(self, group_ids: Sequence[str] | str) -> list[tuple[int, int]]:
        """Return (group epoch, assignment epoch) of groups: cheap to ask again and again.

        Raises
        ------
        GroupError
            The coordinator does not serve: it is loading, fenced or closed.
        """

        def look(state: State) -> list[tuple[int, int]]:
            groups = [state.groups.get(name) for name in responses.as_list(group_ids)]
            return [(g.epoch, g.assignment_epoch) if g else (0, 0) for g in groups]

        return self._read(look)

    def list_groups(
        self, states_filter: Iterable[str] = (), types_filter: Iterable[str] = ()
    ) -> dict[str, Any]:
        """Return all groups, filtered in any case (G-129)."""
        event = ListGroups(frozenset(states_filter), frozenset(types_filter))
        return self._ask(event, lambda rows: {"groups": rows})

    def delete_groups(self, group_ids: Sequence[str] | str) -> list[dict[str, Any]]:
        """Delete empty groups; one outcome a group (G-131)."""
        return [
            {"group_id": group_id, **self._ask(DeleteGroup(group_id, PROCESS), lambda _: {})}
            for group_id in responses.as_list(group_ids)
        ]

    def offset_commit(
        self,
        *,
        group_id: str,
        topics: Mapping[str, Mapping[int, object]],
        member_id: str = "",
        member_epoch: int = -1,
    ) -> dict[str, Any]:
        """Commit offsets: {topic: {partition: offset or (offset, metadata)}}."""
        event = OffsetCommit(group_id, member_id, member_epoch, responses.offsets_of(topics))
        return self._ask(event, responses.committed)

    def offset_fetch(
        self,
        *,
        group_id: str,
        topics: Mapping[str, Sequence[int]] | None = None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[str, Any]:
        """Return committed offsets of some partitions, or of all."""
        return self._ask(OffsetFetch(group_id, topics, member_id, member_epoch), responses.fetched)

    def offset_delete(
        self, *, group_id: str, topics: Mapping[str, Sequence[int]]
    ) -> dict[str, Any]:
        """Delete offsets of topics that the group does not subscribe to."""
        return self._ask(OffsetDelete(group_id, topics, PROCESS), responses.committed)

    def alter_group_config(self, group_id: str, settings: Mapping[str, object]) -> dict[str, Any]:
        """Set all settings of a group id, before or after it exists; {} goes back to defaults."""
        if isinstance(settings, Mapping):  # else it is refused by its type
            settings = {name: str(value) for name, value in settings.items()}
        return self._ask(ConfigureGroup(group_id, settings, PROCESS), lambda _: {})  # type: ignore[arg-type]

    def describe_group_config(self, group_id: str) -> dict[str, str]:
        """Return the settings of a group id that are not the defaults.

        Raises
        ------
        GroupError
            The coordinator does not serve: it is loading, fenced or closed.
        """
        return self._read(lambda state: dict(state.settings.get(group_id, {})))

    def consumer_group_prepare_assignment(self, group_id: str) -> dict[str, Any]:
        """Begin an external computation: an id, the group epoch, and the group as tables (K-42)."""
        return self._ask(Prepare(group_id, str(uuid.uuid4())), dict)

    def consumer_group_install_assignment(
        self,
        *,
        group_id: str,
        computation_id: str,
        group_epoch: int,
        ranges: pa.Table,
        assignor: str = "external",
        partial: bool = False,
    ) -> dict[str, Any]:
        """Install what was computed for a prepared computation (K-43…K-50)."""
        event = Install(group_id, computation_id, group_epoch, ranges, assignor, partial)
        return self._ask(event, dict)

    def progress(self) -> str:
        """Return one line on the targets that engines compute now: stage and rows; "" if none."""
        return self._loop.computing.progress()

    def cancel_computation(self, group_id: str) -> bool:
        """Give up the target that is computed for a group, if one is; it is begun again later."""
        return self._loop.computing.cancel(group_id)

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Ask many things as one batch, without waiting: one answer an event, in order.

        What is cancelled before its turn is not done.
        """
        return self._loop.submit(list(events))

    # How a request goes --------------------------------------------------------------------------

    def submit_heartbeat(self, **fields: Any) -> Future[HeartbeatAnswer]:  # noqa: ANN401
        """Ask without waiting."""
        version = fields.pop("version", 1)
        if version == 0 and fields.get("member_epoch") == JOIN and fields.get("member_id") == "":
            fields["member_id"] = str(uuid.uuid4())  # G-12: version 0 may join without an id
        found = self._loop.submit([Heartbeat(**fields)])
        return futures.then(found, lambda answers: responses.heartbeat_answer(answers[0]))

    def confirm_status(self, patience_s: float = 1.0) -> str:
        """Return the status as of now: "active" only if the log was just seen to be ours.

        `status` is what was noticed last; a process that was stopped may not know yet that another
        one has the store.

        Parameters
        ----------
        patience_s
            How long the loop has to answer; it is "busy" when that is not enough.
        """
        look = self._loop.call(lambda: self._runner.confirmed([]))
        try:
            look.result(patience_s)
        except TimeoutError:
            look.cancel()
            return "busy"
        except GroupError:
            pass  # closed
        return self.status

    def _read(self, look: Callable[[State], T]) -> T:
        """Read the state in the loop's thread; it may leave only while the log is ours."""

        def read() -> T:
            if self._runner.status is not Status.ACTIVE:
                raise refusal(self._runner.status)
            found = look(self._runner.state)
            (seen,) = self._runner.confirmed([None])
            if isinstance(seen, GroupError):
                raise seen
            return found

        return self._loop.call(read).result()

    def _ask(self, event: Event, shape: Callable[[Any], dict[str, object]]) -> dict[str, Any]:
        answers = self._loop.submit([event]).result()
        return responses.plain_answer(shape)(answers[0])


class AsyncFace:
    """The coordinator's methods as coroutines; heartbeats wait on the loop, not on a thread."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def consumer_group_heartbeat(self, **fields: object) -> HeartbeatAnswer:
        """See `Coordinator.consumer_group_heartbeat`."""
        return await asyncio.wrap_future(self._coordinator.submit_heartbeat(**fields))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return any other method of the coordinator, to be awaited; it runs in a thread."""
        method = getattr(self._coordinator, name)

        async def call(*args: object, **fields: object) -> object:
            return await asyncio.to_thread(method, *args, **fields)

        return call


def _described(answer: Answer) -> dict[str, Any]:
    if isinstance(answer, GroupError):
        return {"error_code": int(answer.code), "error_message": answer.message}
    assert isinstance(answer.response, dict)
    return answer.response
