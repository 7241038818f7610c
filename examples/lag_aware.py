"""A lag-aware group: weights from a table that changes while it runs, drained through plans.

    python examples/lag_aware.py STORE

Two workers share the partitions of `clicks` by lag. The lag of one partition grows; the group moves
what that is worth. Then a worker is to be repaired: its partitions move by a plan that waits for
approval. In the end the view of plans tells it; `muster sql` asks the same of the store.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from muster import Coordinator, Member, WeightTables, frame, parse_config

QUICK = """
# So that the example ends in seconds: see conf/muster.toml for what a service has.
log.fsync = false
weights = { poll_ms = 200, half_life_ms = 0, interval_ms = 200 }
plans.poll_ms = 200
[kafka]
"group.consumer.assignors" = ["weighted"]
"group.consumer.assignment.interval.ms" = 0
"group.consumer.heartbeat.interval.ms" = 200
"group.consumer.min.heartbeat.interval.ms" = 100
"""
PATIENCE_S = 60
QUESTION = """
SELECT epochs.group_epoch, epochs.reason, plans.principal, plans.decided_by, plans.decision_reason
FROM epochs LEFT JOIN plans
ON epochs.group_id = plans.group_id AND epochs.group_epoch = plans.applied_epoch
ORDER BY epochs.group_epoch
"""
BALANCED = 2_300
"""A lag that neither worker is above, once three partitions have 1,000 each."""


def main(store: Path) -> None:
    """Run the group, and print who owns what as its lag changes."""
    lag = dict.fromkeys(range(6), 100.0)
    config = parse_config(QUICK, "the example")

    def read_lag() -> WeightTables:  # of a monitoring table, say; a path does as well
        columns = {"topic": ["clicks"] * len(lag), "partition": [*lag], "weight": [*lag.values()]}
        return WeightTables(pa.table(columns))

    with (
        Coordinator.open(
            store, config=config, topics={"clicks": 6}, weights=read_lag
        ) as coordinator,
        Member(coordinator, group_id="etl", topics=["clicks"], instance_id="worker-1") as one,
        Member(coordinator, group_id="etl", topics=["clicks"], instance_id="worker-2") as two,
    ):
        workers = {"worker-1": one, "worker-2": two}

        def loads() -> dict[str, int]:
            return {
                name: int(sum(lag[owned.partition] for owned in worker.owned))
                for name, worker in workers.items()
            }

        def are_all_owned() -> bool:
            return sum(len(worker.owned) for worker in workers.values()) == len(lag)

        wait_until(lambda: are_all_owned() and len(one.owned) == len(two.owned))
        print("lag by worker", loads())

        for owned in one.owned:
            lag[owned.partition] = 1_000.0
        wait_until(lambda: are_all_owned() and max(loads().values()) <= BALANCED)
        print("after it grew", loads())

        coordinator.alter_group_config("etl", {"consumer.assignor.approval": "manual"})
        shown = coordinator.plan("etl", drain=["worker-2"], reason="disk of worker-2")
        coordinator.propose_plan(shown, by="User:ann")
        (waiting,) = coordinator.waiting_plans("etl")
        print("waiting:", waiting.summary.moved, "partitions move, for", waiting.reason)
        coordinator.approve_plan("etl", waiting.plan_id, by="User:bob", reason="low traffic")
        wait_until(lambda: are_all_owned() and not two.owned)
        print("drained", {name: len(worker.owned) for name, worker in workers.items()})

    plans = frame(store, "plans", group_id="etl").to_pylist()
    for plan in plans:
        print(plan["status"], "in epoch", plan["applied_epoch"], "by", plan["decided_by"])
    print(f'ask more: muster sql "{" ".join(QUESTION.split())}" --store {store}')


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait while the workers send heartbeats, in threads of their own."""
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > until:
            raise SystemExit(f"not so after {PATIENCE_S} s")
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
