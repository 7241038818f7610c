"""A group's life under an embedded coordinator, and its history in SQL.

Two workers join, the topic grows, one worker crashes and comes back. Run it:
`python examples/group_life.py [store]`. Sessions are short here, so that a crash is soon noticed.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from muster import (
    AsyncMember,
    Coordinator,
    DictCatalog,
    Member,
    parse_config,
    spark_session,
    views,
)

SHORT = """
[kafka]
"group.consumer.min.session.timeout.ms" = 1500
"group.consumer.session.timeout.ms" = 1500
"group.consumer.min.heartbeat.interval.ms" = 100
"group.consumer.heartbeat.interval.ms" = 100
"group.consumer.assignment.interval.ms" = 0
"""
GROUP = {"group_id": "billing", "topics": ["orders"]}


def wait(member: Member, partitions: int) -> None:
    """Wait until a member owns so many partitions."""
    while len(member.owned) != partitions:
        member.wait_for_change()
    print(member.member_id, "owns", *(number for _, number in sorted(member.owned)))


async def crash(coordinator: Coordinator, topics: DictCatalog, ann: Member) -> None:
    """Be bob, until the loop ends, and his heartbeats with it: he does not leave."""
    bob = await AsyncMember(coordinator, member_id="bob", **GROUP).open()
    await asyncio.to_thread(wait, ann, 2)
    await bob.wait_for_change()
    print("the topic grows")
    topics.set("orders", 6)
    coordinator.refresh_topics()
    await bob.wait_for_change()
    await asyncio.to_thread(wait, ann, 3)


def main(store: Path) -> None:
    """Live the group's life, then ask about it."""
    topics = DictCatalog({"orders": 4})
    with (
        Coordinator.open(
            store, topics=topics, config=parse_config(SHORT, "the example")
        ) as coordinator,
        Member(coordinator, member_id="ann", **GROUP) as ann,
    ):
        wait(ann, 4)
        print("bob joins")
        asyncio.run(crash(coordinator, topics, ann))
        print("bob has crashed")
        wait(ann, 6)
        with Member(coordinator, member_id="bob", **GROUP) as bob:
            print("bob comes back")
            wait(bob, 3)

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
