"""What is asked and waits for the event loop: the futures of answers, and four queues.

What a caller does with its future never reaches the thread that answers: a cancelled call is a
call whose answer is not wanted.

The queues are by how long others would wait for what is in them. Members that join by a heartbeat
wait behind those that send one to stay: each may have a target computed, and thousands that start
at once would hold up all others until their sessions end. A member's own requests stay in their
order.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any, TypeVar

from coordinator.core.classic_events import ClassicHeartbeat
from coordinator.core.events import READING, Answer, Event, Heartbeat, OffsetCommit
from coordinator.core.large_requests import joins
from coordinator.errors import GroupError

T = TypeVar("T")
BRIEF = Heartbeat | ClassicHeartbeat | OffsetCommit
"""What members send all the time: a round takes `log.batch_records_max` of them. The wire, which
has not decoded them, knows them by number: `connection.BRIEF`, which a test keeps equal."""
logger = logging.getLogger("muster.coordinator")


def begin(future: Future[Any]) -> bool:
    """Whether the answer is still wanted; if so, the call cannot be cancelled from now on."""
    if future.done() and not future.cancelled():
        return False  # it has another answer
    try:
        return future.set_running_or_notify_cancel()
    except RuntimeError:
        return False


def set_answer(future: Future[T], value: T) -> None:
    """Answer the caller."""
    _settle(lambda: future.set_result(value))


def fail(future: Future[Any], error: BaseException) -> None:
    """Raise an error for the caller; one that was already answered keeps that answer."""
    _settle(lambda: future.set_exception(error))


def then(future: Future[Any], shape: Callable[[Any], T]) -> Future[T]:
    """Return a future of what `shape` makes of an outcome; one is cancelled with the other only.

    A call whose turn has begun can no longer be cancelled, nor can what hangs on it.
    """
    out: Future[T] = Future()
    cancel = out.cancel
    out.cancel = future.cancel  # type: ignore[method-assign]
    out.running = lambda: not out.done() and future.running()  # type: ignore[method-assign]

    def done(found: Future[Any]) -> None:
        if found.cancelled():
            cancel()
            begin(out)
        elif begin(out):
            try:
                set_answer(out, shape(found.result()))
            except Exception as error:  # noqa: BLE001 - handed to the caller
                fail(out, error)

    future.add_done_callback(done)
    return out


def _settle(change: Callable[[], None]) -> None:
    """Change a future and run its callbacks, even if it is done already or they raise."""
    try:
        change()
    except InvalidStateError:
        pass  # cancelled, or answered already
    except BaseException:
        logger.exception("what a caller does with an answer failed")


@dataclass(slots=True, eq=False)
class Item:
    """Events that are asked together, and who waits for the answers.

    Attributes
    ----------
    piece
        The events of this round: all, or as many as others can wait for.
    answers
        Those of the rounds before.
    weights
        Of the events; none where each weighs 1.
    must_wait
        Whether it was seen that it cannot be answered beside a large request.
    queue
        In which it waits, or waited.
    """

    events: list[Event]
    future: Future[Any]
    since: float
    call: Callable[[], object] | None = None
    piece: list[Event] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    must_wait: bool = False
    queue: deque[Item] | None = None
    begun: bool = False

    def begin(self) -> bool:
        """Whether the answer is wanted; if so, it cannot be cancelled from now on."""
        self.begun = self.begun or begin(self.future)
        return self.begun

    def take_piece(self, room: int) -> int:
        """Take the next piece, one event at least, and return how much room it leaves."""
        begin = len(self.answers)
        if not self.weights:
            self.piece = self.events[begin : begin + room]
            return room - len(self.piece)
        end = begin
        while end < len(self.events) and (end == begin or self.weights[end] <= room):
            room -= self.weights[end]
            end += 1
        self.piece = self.events[begin:end]
        return room


def reads(item: Item) -> bool:
    """Whether an item changes nothing."""
    return item.call is None and all(isinstance(event, READING) for event in item.events)


def groups_of(item: Item) -> list[object]:
    """Return the group of each event of an item, None where it names none."""
    return [getattr(event, "group_id", None) for event in item.events]


def do_call(item: Item, call: Callable[[], object]) -> None:
    """Answer an item by what it calls."""
    try:
        found = call()
    except Exception as error:  # noqa: BLE001 - handed to the caller
        fail(item.future, error)
    else:
        set_answer(item.future, found)


def refuse(item: Item, error: GroupError) -> None:
    """Refuse what will not be decided; a request that has its answer keeps it."""
    if item.call is None:
        set_answer(item.future, [error] * len(item.events))
    else:
        fail(item.future, error)


class WaitingItems:
    """The queues; who calls it has the lock of the loop.

    Attributes
    ----------
    brief
        What members send all the time.
    joining
        Heartbeats of members that join, and what these members send behind it.
    large
        What takes long by itself, or is very much at once.
    others
        Everything else.
    """

    def __init__(self) -> None:
        self.brief: deque[Item] = deque()
        self.joining: deque[Item] = deque()
        self.others: deque[Item] = deque()
        self.large: deque[Item] = deque()
        self._members: Counter[tuple[str, str]] = Counter()
        """Those of what was put into `joining` and is not answered yet."""
        self._passed_over = False

    def __iter__(self) -> Iterator[Item]:
        for queue in (self.brief, self.joining, self.others, self.large):
            yield from queue

    def __len__(self) -> int:
        return len(self.brief) + len(self.joining) + len(self.others) + len(self.large)

    def put(self, item: Item) -> None:
        """Have an item wait behind others of its kind."""
        if item.queue is None:
            item.queue = self._find_queue(item)
            if item.queue is self.joining:
                self._members.update(_members_of(item))
        item.queue.append(item)

    def put_back(self, items: Sequence[Item]) -> None:
        """Have items wait again, as the next ones of their kind."""
        for item in reversed(items):
            assert item.queue is not None, "it was put"
            item.queue.appendleft(item)

    def forget(self, item: Item) -> None:
        """Forget an item that is answered, or not wanted any longer."""
        if item.queue is self.joining:
            self._members.subtract(_members_of(item))
            for member in _members_of(item):
                if self._members[member] <= 0:
                    del self._members[member]

    def take_all(self) -> list[Item]:
        """Take all that waits."""
        found = [*self]
        for queue in (self.brief, self.joining, self.others, self.large):
            queue.clear()
        self._members.clear()
        return found

    def in_turn(self) -> tuple[deque[Item], ...]:
        """Return what members send, and who joins: first those who had no time last time."""
        return (self.joining, self.brief) if self._passed_over else (self.brief, self.joining)

    def note_turn(self, done: Sequence[Item], left: Sequence[Item]) -> None:
        """Note for whom of a batch there was time."""
        waits = any(item.queue is self.joining for item in left)
        self._passed_over = waits and not any(item.queue is self.joining for item in done)

    def _find_queue(self, item: Item) -> deque[Item]:
        if item.weights:
            return self.large
        if item.call is not None or not are_brief(item.events):
            return self.others
        if any(map(joins, item.events)):
            return self.joining
        if self._members and not self._members.keys().isdisjoint(_members_of(item)):
            return self.joining
        return self.brief


def are_brief(events: Sequence[Event]) -> bool:
    """Whether members send such events all the time."""
    return all(isinstance(event, BRIEF) for event in events)


def _members_of(item: Item) -> set[tuple[str, str]]:
    """Return the members of an item's heartbeats, but for those of wrong types."""
    return {
        (event.group_id, event.member_id)
        for event in item.events
        if type(event) is Heartbeat
        and isinstance(event.group_id, str)
        and isinstance(event.member_id, str)
    }
