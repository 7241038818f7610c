"""A process with very many members: `python -m benchmarks.member.process KIND MEMBERS SECONDS`."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmarks.measure import resident_mib
from coordinator import AsyncMember, Member

GROUP, TOPIC = "crowd", "t"
PATIENCE_S = 600.0


def serve(partitions: int, pipe: Connection) -> None:
    """Serve on the wire until the pipe ends."""
    from coordinator import Coordinator  # noqa: PLC0415 - members over the wire do without it

    with Coordinator.open(None, topics={TOPIC: partitions}) as coordinator:
        serving = coordinator.serve("127.0.0.1:0")
        pipe.send(serving.address)
        pipe.recv()


def over_the_wire(count: int, steady_s: float) -> dict[str, float]:
    """Measure members with threads, whose coordinator is in another process."""
    spawn = multiprocessing.get_context("spawn")
    near, far = spawn.Pipe()
    server = spawn.Process(target=serve, args=(count, far))
    server.start()
    address = near.recv()
    began = time.perf_counter()
    members = [Member(address, group_id=GROUP, topics=TOPIC).open() for _ in range(count)]
    end = began + PATIENCE_S
    while not _has_each_one(members, time.perf_counter() < end):
        time.sleep(0.05)
    joined_s = time.perf_counter() - began
    before, clock = time.process_time(), time.perf_counter()
    time.sleep(steady_s)
    found = _found(joined_s, time.process_time() - before, time.perf_counter() - clock)
    near.send("end")
    server.join()  # the members need not leave one by one
    return found


async def with_asyncio(count: int, steady_s: float) -> dict[str, float]:
    """Measure members with asyncio, in the process of their coordinator."""
    from coordinator import Coordinator  # noqa: PLC0415 - members over the wire do without it

    with Coordinator.open(None, topics={TOPIC: count}) as coordinator:
        began = time.perf_counter()
        members = [AsyncMember(coordinator, group_id=GROUP, topics=TOPIC) for _ in range(count)]
        for member in members:
            await member.open()
        end = began + PATIENCE_S
        while not _has_each_one(members, time.perf_counter() < end):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        joined_s = time.perf_counter() - began
        before, clock = time.process_time(), time.perf_counter()
        await asyncio.sleep(steady_s)
        found = _found(joined_s, time.process_time() - before, time.perf_counter() - clock)
        await asyncio.gather(*(member.leave() for member in members))
        return found


def _has_each_one(members: list[Member] | list[AsyncMember], in_time: bool) -> bool:  # noqa: FBT001
    """Whether every partition has its member."""
    owned = [member.owned for member in members]
    if not in_time:
        raise RuntimeError(f"{sum(map(len, owned))} of {len(members)} partitions are owned")
    return all(len(found) == 1 for found in owned)


def _found(joined_s: float, cpu_s: float, steady_s: float) -> dict[str, float]:
    return {
        "joined_ms": joined_s * 1_000,
        "percent": cpu_s / steady_s * 100,
        "mib": resident_mib("VmRSS"),
    }


def main(kind: str, count: int, steady_s: float) -> dict[str, float]:
    """Measure one kind of members."""
    kinds: dict[str, Callable[[], dict[str, float]]] = {
        "wire": lambda: over_the_wire(count, steady_s),
        "asyncio": lambda: asyncio.run(with_asyncio(count, steady_s)),
    }
    return kinds[kind]()


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))), flush=True)
    sys.stdout.close()
