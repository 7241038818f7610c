"""Play a script against one store: requests, topics, time and fail-overs, on a virtual clock.

There is one player, and each notation of a script calls its operations: JSON (`json_trace.py`), and
the text of `tests/traces`. It is a thin shell over the event processor, and has no step, replay or
timer code of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from coordinator.config import Config
from coordinator.core.classic_events import WAITING, JoinGroup, JoinGroupResponse, Parked
from coordinator.core.events import Answer, Event, ResolveRegexes, Result
from coordinator.core.state.records import Record
from coordinator.engines.engine import compute_target
from coordinator.errors import ErrorCode
from coordinator.runtime.event_processor import EventProcessor, Fired
from coordinator.runtime.regex_jobs import prepare_resolution
from coordinator.runtime.target_computations import restore_basis
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import MemoryLog, RecordLog

OpenLog: TypeAlias = Callable[[Config, bool], RecordLog]
"""Opens the log: a new one (True) when a script begins, the same again (False) after that."""


class Player:
    """One store, and the coordinator that has it now.

    Parameters
    ----------
    open_log
        Where records go; in memory when left out.

    Attributes
    ----------
    now
        The time in ms since 1970; the notation moves it.
    catalog
        The topics that exist.
    processor
        The coordinator, once a script has begun.
    tasks_wait
        Whether background work waits for `do_tasks`; else each operation ends with it.
    """

    config: Config
    now: int
    catalog: DictCatalog
    processor: EventProcessor

    def __init__(self, open_log: OpenLog | None = None) -> None:
        self._open_log = open_log or self._open_memory
        self._memory: MemoryLog | None = None
        self._log: RecordLog | None = None

    def begin(self, config: Config, *, now: int, catalog: DictCatalog | None = None) -> None:
        """Begin with a new log, no groups, and these topics."""
        self.close()
        self.config, self.now = config, now
        self.catalog = DictCatalog() if catalog is None else catalog
        self.tasks_wait = False
        self._drawn = 0
        self._answered: list[tuple[int, int, Parked]] = []
        self._take_over(fresh=True)

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()

    def make_processor(self, log: RecordLog) -> EventProcessor:
        """Return an event processor that has not loaded the log yet."""
        return EventProcessor(log, self.config, lambda: self.now, self.catalog)

    # Operations ----------------------------------------------------------------------------------

    def change_topics(
        self,
        partitions: Mapping[str, int],
        ids: Mapping[str, str | None],
        deleted: Iterable[str] = (),
    ) -> None:
        """Create, grow and delete topics; another id recreates a topic.

        Raises
        ------
        ConfigError
            A number of partitions or an id is invalid.
        """
        for name, count in partitions.items():
            self.catalog.set(name, count, ids.get(name))
        for name in deleted:
            self.catalog.delete(name)
        self.processor.see_topics()

    def send(self, requests: Sequence[Event]) -> list[Answer]:
        """Send requests together; an id that a join was given is drawn."""
        joins = (one.group_id for one in requests if isinstance(one, JoinGroup))
        consumers = set(filter(self._takes_classic, joins))
        answers = self.processor.run(requests)
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(request, JoinGroup) and not request.member_id:
                self._drawn += request.group_id in consumers or _took_id(answer)
        return answers

    def next_ids(self) -> tuple[str, str]:
        """Return the next id of a new member in a classic and in a consumer group.

        Kafka's are random, and a trace numbers them.
        """
        return f"${self._drawn + 1:03}", f"$c{self._drawn + 1:03}"

    def advance(self, ms: int) -> list[Fired]:
        """Let time pass, and return the timers that fired, each at its instant."""
        fired: list[Fired] = []
        for some in self.pass_until(self.now + ms):
            fired += some
            self.finish()
        return fired

    def pass_until(self, end_ms: int) -> Iterator[list[Fired]]:
        """Let time pass, and fire each timer at its instant.

        Yields
        ------
        list
            The timers that fired at one instant, while the clock stands there.
        """
        while (at := self.processor.timers.next_at()) is not None and at <= end_ms:
            self.now = max(self.now, at)
            yield self.processor.tick()
        self.now = end_ms

    def reload(self) -> None:
        """Fail over: another coordinator claims the log, and replays it."""
        self.close()
        self.processor.parked.release()
        self._note_answered()
        self._take_over(fresh=False)

    def seed(self, record: Record) -> None:
        """Write a record to the log as if another coordinator had."""
        self.processor.log.append([record], self.now)
        self.processor.load()

    def do_tasks(self) -> bool:
        """Do the background work that waits, and tell whether there was any."""
        tasks = self.processor.take_tasks()
        for task in tasks:
            if isinstance(task, ResolveRegexes):
                self.processor.run([prepare_resolution(self.processor, task)()])
            elif (job := restore_basis(self.processor, task)) is not None:
                self.processor.run([compute_target(job)])
        return bool(tasks)

    def finish(self) -> None:
        """End an operation: do the background work, and note who has been answered meanwhile."""
        self._note_answered()
        while not self.tasks_wait and self.do_tasks():
            self._note_answered()

    def take_answered(self) -> list[tuple[int, int, Parked]]:
        """Return once what waiting requests were answered: the time, the request's number, what."""
        found, self._answered = sorted(self._answered, key=lambda one: one[:2]), []
        return found

    # ---------------------------------------------------------------------------------------------

    def _note_answered(self) -> None:
        found = self.processor.parked.take_answered()
        self._answered += [(self.now, number, one) for number, one in found if one is not None]

    def _takes_classic(self, group_id: str) -> bool:
        """Whether it is a live consumer group that takes classic members.

        Such a group draws an id before it checks the protocols of a join.
        """
        group = self.processor.state.groups.get(group_id)
        allowed = self.config.kafka.migration_policy != "disabled"
        return allowed and group is not None and bool(group.members)

    def _take_over(self, *, fresh: bool) -> None:
        self._log = log = self._open_log(self.config, fresh)
        log.claim("trace", "", self.now)
        self.processor = self.make_processor(log)
        self.processor.load()

    def _open_memory(self, _config: Config, fresh: bool) -> RecordLog:  # noqa: FBT001 - a callback
        storage = self._memory.storage if self._memory and not fresh else None
        self._memory = MemoryLog(storage)
        return self._memory


def _took_id(answer: Answer) -> bool:
    """Whether a join without an id was given one by a classic group."""
    response = answer.response if isinstance(answer, Result) else None
    return response is WAITING or (
        isinstance(response, JoinGroupResponse)
        and response.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}
    )
