"""The partitions that a node leads: each gets a coordinator, from its election on until another's.

The node's loop calls `end_others` before it lets a replica follow or go, and `begin_ours` behind
that: while a partition is led, no one but its coordinator writes the log. Coordinators load in
threads of their own; until one is there its groups are refused as being loaded.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from coordinator.clock import monotonic_ms
from coordinator.config import Config
from coordinator.core.events import (
    Answer,
    ConfigureGroup,
    DecidePlan,
    Event,
    RecordAudit,
    Result,
)
from coordinator.core.java_hash import place_of
from coordinator.core.state.groups import TopicView
from coordinator.core.state.records import RequestAnswered
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import Status
from coordinator.errors.trouble import Trouble
from coordinator.kraft.image_catalog import ImageCatalog
from coordinator.kraft.leading import Leadership, Standing, find_alive
from coordinator.kraft.led_partition import LedPartition
from coordinator.kraft.links import Controllers
from coordinator.kraft.metadata_image import TOPIC as TOPIC_SETTINGS
from coordinator.kraft.metadata_image import MetadataImage, Partition
from coordinator.kraft.partition_records import PartitionRecords
from coordinator.kraft.record_writer import ASSIGNORS
from coordinator.kraft.registration import TOPIC
from coordinator.kraft.replica_apis import Leaders
from coordinator.kraft.replicas import Replica
from coordinator.runtime.coordinator import Coordinator
from coordinator.shards.inbox_rounds import config_of_part
from coordinator.shards.node_metrics import NodeMetrics
from coordinator.shards.router import Router
from coordinator.storage.record_log import CommitFailed, WriterFenced
from coordinator.telemetry.start import start_telemetry
from coordinator.watcher.record_keeper import RecordKeeper
from coordinator.wire.codec import Api

COMMIT_S, RETRY_S, ISR_S, LAG_S = 5.0, 0.25, 0.1, 30.0
REFUSED_S = 1.0
"""How long an append waits for its replicas; between two tries to load; between two looks at who
is in sync; and how long a follower may lag, as Kafka's `replica.lag.time.max.ms`."""
PATIENCE_S = 15.0
"""How long a coordinator may fail to read its log, until a broker had better lead the partition."""
BATCH_BYTES, ISR_LEAST = 1_048_588, 1
"""Kafka's defaults of `max.message.bytes` and `min.insync.replicas`."""
logger = logging.getLogger("muster.node")


@dataclass(eq=False)
class Term:
    """A partition while it is led.

    Attributes
    ----------
    coordinator
        Of its groups; None until they are loaded.
    failed_s
        Since when that has failed; None while it has not.
    ask_again_s
        Not before that are its replicas in sync asked for: the controller has refused that.
    is_hopeless
        Whether the log cannot be read here at all: a broker has to lead it.
    """

    led: LedPartition
    coordinator: Coordinator | None = None
    failed_s: float | None = None
    ask_again_s: float = 0.0
    is_hopeless: bool = False


class LeaderOf:
    """What a node leads.

    Parameters
    ----------
    config
        Of each coordinator.
    assignors
        Those of the cluster's brokers, the default one first.
    commit_s
        How long an append waits for its replicas.
    patience_s
        How long a coordinator may fail to read or write its log.
    metrics
        Of all partitions.
    store
        Of the node's history.

    Attributes
    ----------
    changed
        Called when there is something new to fetch, in any thread.
    leaders
        What is known of the topic of groups.
    keeper
        Keeps what Kafka's topic has no record for.
    """

    def __init__(
        self,
        node_id: int,
        config: Config,
        standing: Standing,
        assignors: Sequence[str] = ASSIGNORS,
        commit_s: float = COMMIT_S,
        patience_s: float = PATIENCE_S,
        metrics: NodeMetrics | None = None,
        store: str | None = None,
    ) -> None:
        self._commit_s, self._patience_s = commit_s, patience_s
        self._node_id, self._standing, self._assignors = node_id, standing, tuple(assignors)
        self.config = replace(config, engine=replace(config.engine, engine="local"))
        self.metrics = metrics or NodeMetrics(config.metrics.groups_max)
        self._end_telemetry = start_telemetry(config, self.metrics)
        self.catalog = ImageCatalog(config.kafka, config.node)
        self.changed: Callable[[], object] = lambda: None
        self._terms: dict[int, Term] = {}
        self.leaders: Leaders | None = None
        self._count = 0
        self.keeper = RecordKeeper(self._list_served, lambda: self._count, store)
        self._has_closed = False
        self._changing = threading.Lock()
        self.router = Router(self.find, self.list_open)

    # What the metadata says ----------------------------------------------------------------------

    def end_others(self, image: MetadataImage) -> None:
        """End what another leads by now, or leads in another epoch; its files are free then."""
        topic = image.topic(TOPIC)
        known: Mapping[int, Partition] = {} if topic is None else topic.partitions
        is_same = topic is not None and self.leaders and topic.topic_id == self.leaders.topic_id
        for number, term in list(self._terms.items()):
            one = known.get(number)
            leads = one is not None and is_same and one.leader == self._node_id
            if not leads or one is None or one.leader_epoch != term.led.epoch:
                self._end(number)

    def begin_ours(self, image: MetadataImage, held: Mapping[int, Replica]) -> None:
        """Lead what the metadata says, and take what it says of who is in sync."""
        topic = image.topic(TOPIC)
        if topic is None or self._has_closed:
            return
        self.catalog.update(image)
        self._count = len(topic.partitions)
        changed = self.catalog.update_settings(image)
        if changed:  # what is being loaded has them already, or is given them again
            self.submit(changed)
        least = _read_number(image, "min.insync.replicas", ISR_LEAST)
        for number, replica in held.items():
            one = topic.partitions[number]
            if one.leader != self._node_id:
                continue
            term = self._terms.get(number)
            if term is None:
                self._begin(number, replica, one, least, image)
            else:
                term.led.follow(one, least)
        known = {number: (one.leader, one.leader_epoch) for number, one in topic.partitions.items()}
        led = {number: term.led for number, term in self._terms.items()}
        self.leaders = Leaders(topic.topic_id, led, known)

    def _begin(
        self, number: int, replica: Replica, one: Partition, least: int, image: MetadataImage
    ) -> None:
        log = replica.file.log
        leadership = Leadership(log, self._node_id, one, least, monotonic_ms() / 1000, LAG_S)
        most = _read_number(image, "max.message.bytes", BATCH_BYTES)
        led = LedPartition(
            number, replica.file, leadership, most, self._standing, self._tell, self._commit_s
        )
        term = self._terms[number] = Term(led)
        logger.info("%s-%d: leads in epoch %d, from offset %d", TOPIC, number, led.epoch, log.end)
        self._start(lambda: self._load(term), f"muster-loads-{number}")

    def _tell(self) -> None:
        self.changed()

    def _end(self, number: int) -> None:
        term = self._terms.pop(number)
        with self._changing:
            term.led.stop()
        logger.info("%s-%d: no longer leads in epoch %d", TOPIC, number, term.led.epoch)
        if self.leaders is not None:
            led = {n: one.led for n, one in self._terms.items()}
            self.leaders = self.leaders._replace(led=led)
        if term.coordinator is not None:
            self._start(term.coordinator.close, f"muster-ends-{number}")

    def _start(self, run: Callable[[], object], name: str) -> None:
        threading.Thread(target=run, name=name, daemon=True).start()

    def close(self) -> None:
        """Lead nothing any longer."""
        self._has_closed = True
        open_now = self.list_open()
        for number in list(self._terms):
            term = self._terms.pop(number)
            with self._changing:
                term.led.stop()
        for coordinator in open_now:
            coordinator.close()
        self.keeper.close()
        self._end_telemetry()

    # Loading -------------------------------------------------------------------------------------

    def _load(self, term: Term) -> None:
        """Load a partition's groups, in a thread of its own, until that works or it has ended."""
        began = time.monotonic()
        trouble = Trouble(logger.warning, "%s-%d waits: %s", TOPIC, term.led.number)
        while not term.led.has_ended:
            log = PartitionRecords(
                term.led,
                lambda: self.catalog.view,
                self._assignors,
                lambda: self._settings_of(term.led.number),
                kept=lambda: self.keeper.find(term.led.number),
                keep=self.keeper.send,
            )
            try:
                log.claim("", "", 0)
                opened = Coordinator.open_led(
                    log,
                    config=config_of_part(self.config),
                    topics=self.catalog,
                    metrics=self.metrics,
                )
            except WriterFenced:
                return
            except CommitFailed as error:
                trouble.note(error)
                time.sleep(RETRY_S)
                continue
            except Exception:
                logger.exception(
                    "%s-%d cannot be loaded: a broker has to lead it", TOPIC, term.led.number
                )
                term.is_hopeless = True
                return
            logger.info(
                "%s-%d: its groups are here after %.2f s",
                TOPIC, term.led.number, time.monotonic() - began,
            )  # fmt: skip
            if not self._take_in(term, opened):
                opened.close()
            else:  # what was changed while it was loaded
                now = self._settings_of(term.led.number)
                self.submit([ConfigureGroup(name, one) for name, one in now.items()])
                self.keeper.compare()
            return

    def _settings_of(self, number: int) -> dict[str, dict[str, str]]:
        """Return the settings of the groups of a partition."""
        found = self.catalog.settings.items()
        return {name: one for name, one in found if place_of(name, self._count) == number}

    def _take_in(self, term: Term, opened: Coordinator) -> bool:
        """Serve a partition's groups from now on; False where it is no longer led."""
        with self._changing:
            if not term.led.has_ended:
                term.coordinator = opened
            return term.coordinator is not None

    @property
    def must_step_down(self) -> bool:
        """Whether groups of a partition cannot be served here, and a broker may do better."""
        now_s, found = time.monotonic(), False
        for term in list(self._terms.values()):
            coordinator = term.coordinator
            has_failed = coordinator is not None and coordinator.status == Status.FAILED.value
            fails = has_failed or term.led.cannot_write
            if not fails or not term.led.is_held_by_others:
                term.failed_s = None
            elif term.failed_s is None:
                term.failed_s = now_s
            is_late = term.failed_s is not None and now_s - term.failed_s > self._patience_s
            found |= term.is_hopeless or is_late
        return found

    # Who has a group -----------------------------------------------------------------------------

    def find(self, group_id: str) -> Coordinator | GroupError:
        """Return the coordinator of a group, or the error that refuses its requests."""
        return self.find_at(place_of(group_id, self._count) if self._count else -1, group_id)

    def find_at(self, number: int, group_id: str = "") -> Coordinator | GroupError:
        """Return the coordinator of a partition, or the error that refuses its requests."""
        term = self._terms.get(number)
        of_group = f", which has group {group_id}" if group_id else ""
        if term is None or term.led.has_ended:
            return GroupError(
                ErrorCode.NOT_COORDINATOR,
                f"Another node leads {TOPIC}-{number}{of_group}: find the coordinator.",
            )
        if term.coordinator is None:
            return GroupError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"{TOPIC}-{number}{of_group} is being loaded: try again.",
            )
        return term.coordinator

    def list_open(self) -> list[Coordinator]:
        """Return the coordinators that serve, in the order of their partitions."""
        return list(self._list_served().values())

    def _list_served(self) -> dict[int, Coordinator]:
        terms = sorted(self._terms.items())
        return {number: one.coordinator for number, one in terms if one.coordinator is not None}

    @property
    def is_loaded(self) -> bool:
        """Whether the groups of all that it leads are served."""
        return all(term.coordinator is not None for term in list(self._terms.values()))

    # Replicas in sync ----------------------------------------------------------------------------

    async def keep_isr(
        self, control: Controllers, image: Callable[[], MetadataImage], broker_epoch: int
    ) -> None:
        """See that the replicas in sync are those that follow, until cancelled."""
        trouble = Trouble(logger.warning, "the replicas in sync stay, trying again: %s")
        while True:
            await asyncio.sleep(ISR_S)
            asked = self._list_changes(image())
            if not asked or self.leaders is None:
                continue
            topic = {"topic_id": self.leaders.topic_id, "partitions": list(asked.values())}
            try:
                answer = await control.ask(
                    Api.ALTER_PARTITION,
                    broker_id=self._node_id,
                    broker_epoch=broker_epoch,
                    topics=[topic],
                )
                why = "" if not int(answer.error_code) else answer.error_code.name
            except (OSError, GroupError) as error:
                why = str(error)
            if why:
                trouble.note(why)
                await asyncio.sleep(RETRY_S)
                continue
            trouble.end()
            for found in (one for topic in answer.topics for one in topic.partitions):
                self._take(found)

    def _list_changes(self, image: MetadataImage) -> dict[int, dict[str, object]]:
        found: dict[int, dict[str, object]] = {}
        topic = image.topic(TOPIC)
        if topic is None:
            return found
        for number, term in self._terms.items():
            alive = find_alive(image.brokers, topic.partitions[number].replicas)
            waits = time.monotonic() < term.ask_again_s
            change = None if waits else term.led.ask_isr(alive)
            if change is not None:
                found[number] = {
                    "partition_index": number,
                    "leader_epoch": term.led.epoch,
                    "new_isr_with_epochs": [
                        {"broker_id": node_id, "broker_epoch": epoch}
                        for node_id, epoch in sorted(change.replicas.items())
                    ],
                    "partition_epoch": change.partition_epoch,
                }
        return found

    def _take(self, found: Any) -> None:  # noqa: ANN401 - a partition of kio's answer
        term = self._terms.get(found.partition_index)
        if term is None:
            return
        before = term.led.isr
        term.led.take_isr(found)
        if int(found.error_code):
            term.ask_again_s = time.monotonic() + REFUSED_S
            logger.warning(
                "%s-%d: the replicas in sync stay %s: %s",
                TOPIC, term.led.number, before, found.error_code.name,
            )  # fmt: skip
        elif term.led.isr != before:
            logger.info(
                "%s-%d: in sync are %s, before %s", TOPIC, term.led.number, term.led.isr, before
            )

    # What a server asks --------------------------------------------------------------------------

    status = Status.ACTIVE.value
    nodes = None

    @property
    def topics(self) -> TopicView:
        """The topics there are."""
        return self.catalog.view

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Submit events, each to the partition of its group; the audit goes where it is kept."""
        audits = [one for one in events if isinstance(one, RecordAudit)]
        if not audits or len(audits) < len(events):
            return self.router.submit(events)
        for one in audits:
            self.keeper.send(one.records)
        done: Future[list[Answer]] = Future()
        done.set_result([Result() for _ in events])
        return done

    def decide_plan(self, event: DecidePlan) -> Answer:
        """Decide what another process asks of a plan; return once the answer is kept.

        Raises
        ------
        GroupError
            The answer could not be kept in time.
        """
        found = self.find(event.group_id)
        if isinstance(found, GroupError):
            verdict = f"{found.code.name}: {found.message}"
            self.keeper.send([RequestAnswered(event.group_id, event.request_id, 0, verdict)])
            answer: Answer = Result(response=verdict)
        else:
            answer = found.decide_plan(event)
        self.keeper.flush()
        return answer

    def is_large(self, event: Event) -> bool:
        """Whether others had better not wait for an event."""
        return self.router.is_large(event)


def _read_number(image: MetadataImage, name: str, default: int) -> int:
    """Return a setting of the topic of groups, as Kafka reads it where none is given."""
    found = image.setting(TOPIC_SETTINGS, TOPIC, name)
    return int(found) if found and found.isdecimal() else default
