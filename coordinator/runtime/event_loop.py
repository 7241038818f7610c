"""The thread that runs the event processor, and hands its slow work out.

Requests wait in four queues (`futures.py`): what members send all the time, members that
join, what takes long by itself or is very much at once, and everything else. The loop takes what
waits in the first, and behind it who joins, as one batch, then some of the others as batches of
their own: an idle coordinator answers at once, a busy one batches by itself while a commit is under
way, and heartbeats never wait behind a flood of joins, nor behind more than one large request.
`log.linger_ms` makes it wait longer for more requests.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Container
from concurrent.futures import Future
from typing import TypeVar

from coordinator.core.classic_events import JoinGroup, SyncGroup
from coordinator.core.events import (
    Answer,
    DecidePlan,
    Event,
    ResolveRegexes,
    Result,
    Task,
)
from coordinator.core.large_requests import LARGE, weigh
from coordinator.engines.engine import Engine
from coordinator.errors.status import Status, refusal, unanswered
from coordinator.runtime import futures
from coordinator.runtime.beside import BesideAnswers
from coordinator.runtime.event_decider import Turn
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.futures import Item, WaitingItems, are_brief, groups_of, reads
from coordinator.runtime.parked_requests import LaterAnswers
from coordinator.runtime.regex_jobs import RegexJobs
from coordinator.runtime.target_computations import TargetComputations
from coordinator.runtime.threads_left import leave

TICK_MS, IDLE_MS = 50, 1_000
"""How long the loop waits at most: where deadlines are by a clock that may be set, or the log is to
be loaded again; and otherwise, where it is woken for all else. A node has hundreds of loops."""
RETRY_S = 1.0
CLOSE_S = 0.5
"""How long `close` waits for the last answers."""
DECIDED_S = 0.01, 0.02
"""How long a batch is decided at most, and then written: where others wait, and where none do."""
DECIDED_SHARE, DECIDED_MOST_S = 0.5, 0.25
"""Or for this part of the time that the last one took to write, if that is longer: a slow store
would only write otherwise."""
BOARDED, BOARDED_JOINS = 100, 10
"""How many events that came meanwhile a batch is written with: deciding them takes a few ms."""
TIMERS_A_ROUND = 50
"""Timers fired a round: bounded, so that mass timeouts do not starve requests."""
REQUESTS_A_ROUND = 25
"""Requests about groups that a round takes: heartbeats wait for at most this many of them, from
any caller. The network's thread bounds what it decodes at once (`wire/server.py`)."""
LARGE_A_ROUND = 10_000
"""How much of large requests a round takes, by their weight; one at least."""
LATE = 5.0
"""How many times over log maintenance is due where commits are slowed down for it."""
CATCH_UP_MS = 200
"""For how long at most: from twice as late on."""
DEADLINE_S = 0.25
"""How often requests are refused once one has waited for the store for too long."""
ANSWERS_A_ROUND = 250
"""Answers that a round gives to those that waited: bounded for the same reason."""
WAY_MS = 20, 200
"""How long requests wait, least and most, so that another can claim the log between commits."""
WAY_ROUNDS, WAY_MOST_MS = 5, 2_000
"""The most where the store is slow: so many of our last round, which a claim is longer than."""
LOOK_S = 0.005
"""How long a request that changes nothing waits at most, where others wait to share a commit."""
MAY_WAIT = (JoinGroup, SyncGroup)
"""What may have to wait for other members of its group."""
T = TypeVar("T")
logger = logging.getLogger("muster.coordinator")


class EventLoop:
    """Runs an event processor in a thread of its own."""

    def __init__(self, processor: EventProcessor, engine: Engine | None = None) -> None:
        self.processor = processor
        self._queues = WaitingItems()
        self._wake = threading.Condition()
        self._open = True
        self._ended = False
        self._boarded: list[Item] = []
        self._items: list[Item] = []
        """Those of this round; what is left of them when the loop dies is refused."""
        self._later = LaterAnswers()
        self._turn = Turn(*DECIDED_S, self._others_wait, self._board)
        self._room = processor.config.log.batch_records_max
        """How many events a round takes: not many more than there was time for in the last."""
        self._written_s = 0.0
        """How long the last batch took to be written."""
        self._idle_s = 0.0
        self._makes_way_since: float | None = None
        self._took_ms = 0
        """How long the last round took."""
        self._regex_jobs = RegexJobs(processor, self.submit)
        self.target_computations = TargetComputations(processor, self.submit, engine)
        processor.decider.compute_now = self.target_computations.compute_now
        self.maintenance_due = threading.Event()
        """Set when log maintenance is due: until then each commit costs more than the last."""
        self.requests_due = threading.Event()
        """Set when the inbox has requests, where another looks for us."""
        self.decide_plan: Callable[[DecidePlan], Answer] = self.decide_plan_here
        """Decides what other processes ask of plans; raises a GroupError to be asked again."""
        self.asked = 0
        """How much was asked, in steady heartbeats: the rate is the load."""
        self.lost = threading.Event()
        """Set once no more answers leave, so that the lease is given back at once."""
        self._over = threading.Event()
        self._deadline = threading.Thread(
            target=self._keep_deadline, name="muster-deadline", daemon=True
        )
        self._beside = BesideAnswers(processor, self._answer_beside)
        self._thread = threading.Thread(target=self._run, name="muster-loop", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()
        self._deadline.start()
        self._beside.start()

    def close(self) -> None:
        """Answer what waits, then stop; refuse what takes longer, such as waiting for a store."""
        with self._wake:
            self._open = False
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            logger.warning("the log is still being written to; not waiting for it")
            leave(self._thread)
            self.processor.close()
            self._end(self._take_all())
        self.target_computations.close()
        self._regex_jobs.close()

    @property
    def ended(self) -> bool:
        """Whether no more answers leave, because the loop was closed, died or gave up."""
        return self._ended

    def submit(self, events: list[Event]) -> Future[list[Answer]]:
        """Ask; the future has one answer an event once all may be answered.

        Of a join or a sync that has to wait for other members, the response is a `LaterAnswer`.
        """
        state, now = self.processor.state, time.monotonic()
        events = self._later.number(events)
        weights = [weigh(state, event) for event in events]
        weight = sum(weights)
        item = Item(events, Future(), now)
        if max(weights, default=0) > LARGE:
            item.weights = weights
        elif weight > LARGE and are_brief(events):
            item.weights = [1] * len(events)  # cut by time alone, as none takes long
        return self._put(item, weight)

    def decide_plan_here(self, event: DecidePlan) -> Answer:
        """Decide about a plan, and wait for that; a target that is computed is given up for it."""
        (answer,) = self.submit([event]).result()
        if isinstance(answer, Result) and event.action in {"apply", "approve"}:
            self.target_computations.supersede(event.group_id)
        return answer

    def is_large(self, event: Event) -> bool:
        """Whether others had better not wait for this; any thread may ask."""
        return weigh(self.processor.state, event) > LARGE

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run a function in the loop's thread, where it may read the state."""
        future: Future[T] = Future()
        self._put(Item([], future, time.monotonic(), function))
        return future

    def _put(self, item: Item, weight: int = 0) -> Future[list[Answer]]:
        with self._wake:
            self.asked += weight
            if self._open:
                self._queues.put(item)
                self._wake.notify()
                return item.future
        futures.refuse(item, refusal(self.processor.status))
        return item.future

    # In a thread of its own ----------------------------------------------------------------------

    def _keep_deadline(self) -> None:
        """Refuse who has waited for the store for too long; the loop may be waiting for it still.

        Once it has not answered for that long, requests are refused at once, until it answers.
        """
        most = self.processor.config.log.answer_ms
        left_ms = most
        while not self._over.wait(min(threading.TIMEOUT_MAX, max(DEADLINE_S, left_ms / 1000))):
            left_ms = most - self.processor.health.waiting_ms
            if left_ms > 0:
                continue
            for item in self._take_all():
                futures.refuse(item, unanswered(most))

    def _take_all(self) -> list[Item]:
        """Take what waits, and what this round is about."""
        with self._wake:
            return [*self._items, *self._queues.take_all()]

    def _answer_beside(self, busy: frozenset[str]) -> list[Event]:
        """Answer some of the heartbeats that wait and change nothing, and return them."""
        with self._wake:
            waiting = [item for item in self._queues.brief if not item.must_wait]
        found: dict[Item, list[Answer]] = {}
        room = LARGE
        for item in waiting:
            answers = None if item.answers else self.processor.answer_beside(item.events, busy)
            item.must_wait = answers is None
            if answers is not None:
                found[item] = answers
            room -= len(item.events)
            if room <= 0:
                break
        answered: list[Event] = []
        for item in self._take_beside(found):
            futures.set_answer(item.future, found[item])
            answered += item.events
        return answered

    def _take_beside(self, found: Container[Item]) -> list[Item]:
        """Take these out of their queue, as far as they are there, and are wanted still."""
        if not found:
            return []
        with self._wake:
            waiting = [*self._queues.brief]
            self._queues.brief.clear()
            self._queues.brief.extend(item for item in waiting if item not in found)
        return [item for item in waiting if item in found and item.begin()]

    def _others_wait(self) -> bool:
        """Whether others wait for the end of a batch, who are not answered beside it."""
        with self._wake:
            brief = self._queues.brief
            waits = bool(brief) and (brief[0].must_wait or not self._beside.is_on)
            return waits or bool(self._queues.others)

    # In the loop's thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait() and self.processor.status is not Status.BROKEN:
                began = time.monotonic()
                self._round()
                self._took_ms = int((time.monotonic() - began) * 1000)
            while self._queues:
                self._round()
        except BaseException:
            logger.exception("the coordinator's loop has ended: a stand-by may take over the store")
        finally:
            self.processor.close()
            with self._wake:
                self._open = False
            left = self._take_all()
            self._later.give(self.processor.parked.take_answered())
            self._later.refuse()
            self._end(left)

    def _end(self, left: list[Item]) -> None:
        """Refuse the requests that are left; no more answers leave."""
        for item in left:
            futures.refuse(item, refusal(self.processor.status))
        self._ended = True
        self._over.set()
        self._beside.close()
        self.lost.set()

    def _wait(self) -> bool:
        """Wait for something to do, or until a timer is due; False when it is time to stop."""
        began = time.monotonic()
        with self._wake:
            if not self._queues and self._open and not self.processor.parked.has_answered:
                self._wake.wait(self._most_ms() / 1000)
            going = self._open
        self._idle_s += time.monotonic() - began
        linger = max(self.processor.config.log.linger_ms, self._catch_up_ms(), self._way_ms())
        if linger > 0 and self._queues:
            self._linger(linger / 1000)
        return going

    def _linger(self, seconds: float) -> None:
        """Let requests wait, for others or for a claim; those that change nothing do not wait."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and self._open:
            self._answer_readers()
            if self.processor.status is not Status.ACTIVE:
                return  # what waits is refused at once
            time.sleep(min(left, LOOK_S))

    def _answer_readers(self) -> None:
        """Answer what needs no commit, but of no group that what waits may change."""
        if self._queues.brief and self.processor.confirm():
            self.processor.extend_beside(self._answer_beside(frozenset()))
        with self._wake:
            others = self._queues.others
            readers = deque(item for item in others if reads(item))
            if readers:
                changed = self._list_changed()
                readers = deque(one for one in readers if changed.isdisjoint(groups_of(one)))
            for item in readers:
                others.remove(item)
        while readers:
            self._serve((readers,), REQUESTS_A_ROUND)

    def _list_changed(self) -> set[object]:
        """Return the groups that what waits may change."""
        return {group for item in self._queues if not reads(item) for group in groups_of(item)}

    def _most_ms(self) -> int:
        """Return how long there is nothing to do if no one asks."""
        processor = self.processor
        is_known = processor.status is Status.ACTIVE and processor.steady.is_own
        return processor.wait_ms(IDLE_MS if is_known else TICK_MS)

    def _catch_up_ms(self) -> int:
        """Return how long requests wait for others, to share a commit, where maintenance is late.

        Each commit makes it later; so there are few commits, and no request is refused.
        """
        late = self.processor.log.lag() - LATE
        return 0 if late <= 0 else min(CATCH_UP_MS, int(late * CATCH_UP_MS / LATE))

    def make_way(self, *, on: bool) -> None:
        """Commit less often while another is to claim the log, which races with every commit."""
        self._makes_way_since = time.monotonic() if on else None
        self.processor.makes_way = on

    def read_requests(self) -> None:
        """Have the inbox read now."""
        self.requests_due.set()

    def _way_ms(self) -> int:
        """Return how long requests wait for a claim: as long as one has been tried already."""
        since = self._makes_way_since
        if since is None or self.processor.status is not Status.ACTIVE:
            return 0
        most_ms = max(WAY_MS[1], min(WAY_MOST_MS, WAY_ROUNDS * self._took_ms))
        return min(most_ms, max(WAY_MS[0], int((time.monotonic() - since) * 1000)))

    def _round(self) -> None:
        """Answer what waits, fire timers, hand out tasks.

        Answers first: after a pause, members whose heartbeats wait here are alive.
        """
        if self.processor.status is Status.FAILED:
            self._retry_load()
        elif self.processor.status is Status.FENCED:
            self.target_computations.cancel_all()
        most = self.processor.config.log.batch_records_max
        all_decided = self._serve(self._queues.in_turn(), self._room)
        self._room = min(most, max(BOARDED, 2 * self._room if all_decided else self._room // 2))
        self._serve((self._queues.others,), min(most, REQUESTS_A_ROUND))
        self._serve((self._queues.large,), LARGE_A_ROUND, large=True)
        self.processor.tick(TIMERS_A_ROUND)
        self._later.give(self.processor.parked.take_answered(ANSWERS_A_ROUND))
        if self.processor.status is Status.ACTIVE and self.processor.log.is_maintenance_due():
            self.maintenance_due.set()
        for task in self.processor.take_tasks():
            self._start(task)

    def _serve(self, queues: tuple[deque[Item], ...], most: int, *, large: bool = False) -> bool:
        """Answer a batch of what waits in queues, at most so many events; whether it was not cut.

        Parameters
        ----------
        queues
            The items of the first come first.
        """
        if not any(queues):
            return True
        began = time.monotonic()
        items = self._items = self._take(queues, most)
        events = [event for item in items for event in item.piece]
        is_long = large or len(events) > LARGE or any(queues)
        with self._beside.during(events if is_long else ()):
            answers = self.processor.run(events, self._turn_now()) if events else []
        if events:
            took_s = time.monotonic() - began
            self._written_s = max(0.0, took_s - self.processor.decider.took_s)
        items, left = self._divide(items, len(answers))
        boarded, self._boarded = self._boarded, []
        self._answer([*items, *boarded], answers)
        if events:
            ended = time.monotonic()
            total = self._idle_s + ended - began
            waited = (began - items[0].since) * 1000
            idle = self._idle_s / total if total else 0.0
            self.processor.metrics.processed(
                max(waited, 0.0), (ended - began) * 1000, len(self._queues), idle
            )
            self._idle_s = 0.0
        for item in items:
            if item.call is not None:
                futures.do_call(item, item.call)
        self._items = []
        return not left

    def _turn_now(self) -> Turn:
        """Return for how long a batch is decided now."""
        least_s = min(DECIDED_MOST_S, DECIDED_SHARE * self._written_s)
        return self._turn.lengthened(least_s)

    def _take(self, queues: tuple[deque[Item], ...], room: int) -> list[Item]:
        """Take what waits and is still wanted, as far as there is room in the batch."""
        items: list[Item] = []
        with self._wake:
            for queue in queues:
                while queue and room > 0:
                    item = queue.popleft()
                    if item.begin():
                        items.append(item)
                        room = item.take_piece(room)
                    else:
                        self._queues.forget(item)
        return items

    def _board(self) -> list[Event]:
        """Take a few that came meanwhile into the batch that is about to be written."""
        brief, joining = self._queues.brief, self._queues.joining
        self._boarded = [*self._take((brief,), BOARDED), *self._take((joining,), BOARDED_JOINS)]
        self._items = [*self._items, *self._boarded]
        events = [event for item in self._boarded for event in item.piece]
        self._beside.keep_off(events)
        return events

    def _divide(self, items: list[Item], decided: int) -> tuple[list[Item], list[Item]]:
        """Return what was decided, and what there was no time for, which is put back as the next.

        Parameters
        ----------
        decided
            How many of the events were.
        """
        first = 0
        while first < len(items) and (decided > 0 or not items[first].piece):
            decided -= len(items[first].piece)
            first += 1
        done, left = items[:first], items[first:]
        with self._wake:
            self._queues.put_back(left)
            self._queues.note_turn(done, left)
        return done, left

    def _answer(self, items: list[Item], answers: list[Answer]) -> None:
        """Answer those who have all answers; the others go on behind who came meanwhile."""
        at = 0
        for item in items:
            if item.call is not None:
                continue
            if item.future.done():  # refused meanwhile
                at += len(item.piece)
                self._forget(item)
                continue
            found = answers[at : at + len(item.piece)]
            for event, answer in zip(item.piece, found, strict=False):
                waits = isinstance(event, MAY_WAIT)
                item.answers.append(self._later.promise(event, answer) if waits else answer)
            at += len(item.piece)
            if len(item.answers) == len(item.events):
                self._forget(item)
                futures.set_answer(item.future, item.answers)
            else:
                item.since = time.monotonic()
                with self._wake:
                    self._queues.put(item)

    def _forget(self, item: Item) -> None:
        with self._wake:
            self._queues.forget(item)

    def _retry_load(self) -> None:
        time.sleep(RETRY_S)
        self.processor.reload()

    # Tasks ---------------------------------------------------------------------------------------

    def _start(self, task: Task) -> None:
        if isinstance(task, ResolveRegexes):
            self._regex_jobs.begin(task)
        else:
            self.target_computations.begin(task)
