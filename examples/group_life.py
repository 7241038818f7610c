"""A group's life under an embedded coordinator, and its history in SQL.

Two workers join, the topic grows, one worker crashes, the coordinator itself is restarted, the
worker comes back. Run it: `python examples/group_life.py [store]`. Time is the program's own here,
so that a session timeout of 45 seconds takes none; a pipeline leaves `clock` out.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from coordinator import Coordinator, Fenced
from coordinator.runtime.topic_catalog import DictCatalog
from spark_jobs.session.session import spark_session
from spark_jobs.sql import views

NOON_MS = 1_790_000_000_000


class Worker:
    """A member: it owns what it was told last, and says so at each heartbeat."""

    def __init__(self, name: str) -> None:
        self.name, self.epoch, self.owned = name, 0, {}

    def beat(self, coordinator: Coordinator) -> None:
        """Send a heartbeat and follow its answer."""
        fields = {"topic_partitions": self.owned}
        if self.epoch == 0:
            fields |= {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
        try:
            answer = coordinator.consumer_group_heartbeat(
                group_id="billing", member_id=self.name, member_epoch=self.epoch, **fields
            )
        except Fenced as error:
            print(f"{self.name}: {error.code.name}: gives everything up and joins again")
            self.epoch, self.owned = 0, {}
            return
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment
            print(f"{self.name} owns {self.owned.get('orders', [])} at epoch {self.epoch}")


def main(store: Path) -> None:
    """Live the group's life, then ask about it."""
    now = [NOON_MS]
    topics = DictCatalog({"orders": 4})

    def beats(coordinator: Coordinator, *workers: Worker, times: int = 4) -> None:
        for _ in range(times):
            now[0] += 2_000
            for worker in workers:
                worker.beat(coordinator)

    ann, bob = Worker("ann"), Worker("bob")
    with Coordinator.open(store, topics=topics, clock=lambda: now[0]) as coordinator:
        print("two workers join")
        beats(coordinator, ann, bob)
        print("the topic grows")
        topics.set("orders", 6)
        coordinator.refresh_topics()
        beats(coordinator, ann, bob)
        print("bob crashes")
        for _ in range(6):
            now[0] += 10_000
            coordinator.tick()
            beats(coordinator, ann, times=1)
    print("the coordinator is restarted; bob comes back")
    with Coordinator.open(store, topics=topics, clock=lambda: now[0]) as coordinator:
        beats(coordinator, ann, bob, times=6)

    spark = spark_session("history")
    views.register(spark, str(store))
    spark.sql(
        "SELECT group_epoch, reason, member_id, moved FROM epochs "
        "WHERE group_id = 'billing' ORDER BY group_epoch"
    ).show(truncate=False)
    spark.sql(
        "SELECT first_partition, last_partition, member_id, since, reason, until, until_reason "
        "FROM assignment_history WHERE group_id = 'billing' ORDER BY since, first_partition"
    ).show(truncate=False)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "store")
