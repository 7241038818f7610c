"""An event processor over a log in memory, on a virtual clock: what is around the pure core, with no thread."""

from __future__ import annotations

from coordinator.config import Config, EngineConfig, PlanConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.events import Heartbeat
from coordinator.errors import GroupError
from coordinator.runtime.topic_catalog import DictCatalog
from coordinator.storage.record_log import MemoryLog, MemoryRecords
from coordinator.trace.player import Player
from tests.support.traces.event_history import EventHistory
from tests.support.watched_processor import WatchedProcessor

BEGIN_MS = 1_000_000


class Shell(Player):
    """One store and the coordinator that has it now, with helpers that speak for the group "g"."""

    def __init__(self, *, interval_ms=0, engine_timeout_ms=600_000, plan=None, **topics):
        kafka = kafka_config({"group.consumer.assignment.interval.ms": interval_ms})
        engine = EngineConfig(timeout_ms=engine_timeout_ms)
        config = Config(kafka=kafka, engine=engine, plan=plan or PlanConfig())
        super().__init__(lambda _config, _fresh: MemoryLog(self.storage, self._fault))
        self.storage = MemoryRecords()
        self.fault = None  # an error, or a function of "before" and "after" that raises one
        self.history = EventHistory(config, BEGIN_MS)
        self.begin(config, now=BEGIN_MS, catalog=DictCatalog(topics))

    def make_processor(self, log):
        """Return one that tells the history what comes."""
        processor = WatchedProcessor(log, self.config, lambda: self.now, self.catalog)
        processor.coming = lambda event, state: self.history.add(event, state, self.now)
        return processor

    def reload(self):
        """Fail over: another coordinator claims the store and replays its log."""
        self.history.note("load", self.now)
        super().reload()

    def advance(self, ms):
        """Move the clock; timers fire each at its instant. Returns (kind, member) of each."""
        fired = [one for some in self.pass_until(self.now + ms) for one in some]
        return [(one.due.key[0], one.due.key[2]) for one in fired]

    def ask(self, event):
        """One event's response; a GroupError is raised."""
        (answer,) = self.processor.run([event])
        if isinstance(answer, GroupError):
            raise answer
        return answer.response

    def beat(self, member, epoch, owned=None, **fields):
        """One heartbeat's response."""
        return self.ask(Heartbeat("g", member, epoch, topic_partitions=owned, **fields))

    def join(self, member, *names, **fields):
        """Join with these topics."""
        fields = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": names, **fields}
        return self.beat(member, 0, {}, **fields)

    def member(self, member):
        """One member as the state has it."""
        return self.processor.state.groups["g"].members[member]

    def _fault(self, when):
        if callable(self.fault):
            self.fault(when)
        elif self.fault is not None and when == "before":
            raise self.fault
