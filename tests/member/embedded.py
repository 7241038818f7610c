"""A worker with its coordinator in one process: `python -m tests.member.embedded STORE`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace

from coordinator import Coordinator, Fenced, Member, UnavailableError
from coordinator.config import LeaseConfig
from tests.member.runs import QUICK

CONFIG = replace(QUICK, lease=LeaseConfig(ttl_ms=1_500, renew_ms=300, check_ms=100))


def main(store: str) -> None:
    """Work until killed; after another process has the store, never again."""

    def work(partition, stop):
        offset = member.committed(partition) or 0
        while not stop.wait(0.02):
            offset += 1
            sys.stdout.write(f"{time.monotonic():.3f} {partition} {offset}\n")
            sys.stdout.flush()
            try:
                member.commit({partition: offset}, timeout=1)
            except UnavailableError as error:
                raise Fenced(error.code, "the coordinator has lost its store") from error

    opened = Coordinator.open(store, config=CONFIG, topics={"clicks": 2})
    with opened as coordinator, Member(coordinator, group_id="g", topics=["clicks"]) as member:
        member.run(work)


if __name__ == "__main__":
    main(sys.argv[1])
