"""Resolve regular expressions in a pool, and bring the topics found back as events (G-82)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import compress

import pyarrow as pa
import pyarrow.compute as pc
import re2

from coordinator.core.events import Event, RegexesResolved, ResolveRegexes
from coordinator.runtime.event_processor import EventProcessor
from coordinator.runtime.target_computations import Submit

logger = logging.getLogger("muster.coordinator")
QUOTE = r"\Q"
"""From here on to the end, or to an \\E, a regex is taken literally."""


class RegexJobs:
    """The resolutions of one coordinator, at most one per group at a time.

    Parameters
    ----------
    submit
        Submits events to the event loop; any thread may call it.
    """

    def __init__(self, processor: EventProcessor, submit: Submit) -> None:
        self._processor = processor
        self._submit = submit
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="muster-task")
        self._running: set[str] = set()

    def begin(self, task: ResolveRegexes) -> None:
        """Resolve a group's regexes, unless that is under way; called in the loop's thread."""
        if task.group_id in self._running:
            return
        self._running.add(task.group_id)
        future = self._pool.submit(prepare_resolution(self._processor, task))

        def done(found: Future[Event]) -> None:
            self._running.discard(task.group_id)
            if found.cancelled() or found.exception() is not None:
                logger.warning("regexes of group %s were not resolved: %s", task.group_id, found)
                return
            self._submit([found.result()])

        future.add_done_callback(done)

    def close(self) -> None:
        """Cancel what waits; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def prepare_resolution(processor: EventProcessor, task: ResolveRegexes) -> Callable[[], Event]:
    """Return the work of a resolution, on the topics of this instant; any thread may do it."""
    names = sorted(processor.state.topics)
    version, now = processor.state.topics_version, processor.steady()

    def work() -> Event:
        found = {regex: match_names(regex, names) for regex in task.regexes}
        if task.find_visible is not None:
            matched = sorted({name for topics in found.values() for name in topics})
            visible = set(task.find_visible(matched))
            found = {regex: [n for n in topics if n in visible] for regex, topics in found.items()}
        return RegexesResolved(task.group_id, found, version, now)

    return work


def match_names(regex: str, names: Sequence[str]) -> list[str]:
    """Return the names that a regex matches as a whole, in order.

    Arrow's RE2 goes over all of them at once, without the interpreter's lock: a hundred thousand
    names one by one would take it away from all other threads for a tenth of a second and more.
    """
    if QUOTE not in regex:
        try:
            found = pc.match_substring_regex(pa.array(names, pa.string()), rf"\A(?:{regex})\z")
        except pa.ArrowInvalid:  # too large with the words around it
            pass
        else:
            return list(compress(names, found.to_numpy(zero_copy_only=False).tolist()))
    pattern = re2.compile(regex)
    return [name for name in names if pattern.fullmatch(name)]
