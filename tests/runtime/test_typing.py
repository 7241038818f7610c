"""A user's type checker sees Muster: mypy finds what is wrong in a program that embeds it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys

from coordinator import AsyncCoordinator, Coordinator
from tests.conftest import ROOT

PROGRAM = """
import asyncio
from typing import assert_type

from coordinator import AsyncCoordinator, Coordinator, HeartbeatAnswer

coordinator = Coordinator.open(None, topics={"clicks": 4})
answer = coordinator.consumer_group_heartbeat(
    group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000,
    subscribed_topic_names=["clicks"], topic_partitions={"clicks": [0, 1]},
)
assert_type(answer, HeartbeatAnswer)
assert_type(answer.assignment, dict[str, list[int]] | None)
assert_type(coordinator.submit_heartbeat(group_id="g", member_id="m", member_epoch=2).result(), HeartbeatAnswer)
coordinator.offset_commit(group_id="g", topics={"clicks": {0: 5}})
coordinator.offset_commit(group_id="g", topics={"clicks": {0: (5, "metadata")}})
coordinator.consumer_group_heartbeat(group_id="g", member_id="m", member_epoch=0, imbalence=1)  # E: call-arg
coordinator.submit_heartbeat(group_id="g", member_id="m", member_epoch=0, imbalence=1)  # E: call-arg
coordinator.consumer_group_heartbeat(group_id="g", member_id="m", member_epoch="0")  # E: arg-type
coordinator.consumer_group_heartbeat(group_id="g", member_id="m")  # E: call-arg
coordinator.offset_commit(group_id="g", topics={"clicks": [5]})  # E: dict-item
coordinator.delete_group("g")  # E: attr-defined


async def main() -> None:
    aio: AsyncCoordinator = coordinator.aio
    answer = await aio.consumer_group_heartbeat(group_id="g", member_id="m", member_epoch=2)
    assert_type(answer, HeartbeatAnswer)
    assert_type(await aio.group_epochs(["g"]), list[tuple[int, int]])
    await aio.consumer_group_heartbeat(group_id="g", member_id="m", member_epoch=2, imbalence=1)  # E: call-arg
    await aio.consumer_group_heartbeat(group_id="g", member_id="m", member_epoch="2")  # E: arg-type
    await aio.list_groups(status=["Stable"])  # E: call-arg
    await aio.delete_group("g")  # E: attr-defined


asyncio.run(main())
"""
NOT_AWAITED = {
    "decide_plan", "forward_plans", "is_large", "make_way", "name_late", "open", "read_requests",
    "submit", "submit_heartbeat", "when_closed",
}  # fmt: skip
"""They answer with a future or at once, or concern the object itself."""


def test_mypy_checks_a_program_that_embeds_a_coordinator(tmp_path):
    """In a folder of its own, so that mypy finds what is installed and not the clone.

    By the settings of `make check`, whose answers about Muster it then has: 14 s of CPU otherwise.
    """
    (tmp_path / "program.py").write_text(PROGRAM)
    settings = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
    command = [sys.executable, "-m", "mypy", "--strict", *settings, "program.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = re.findall(r"^program\.py:(\d+): error: .*\[([a-z-]+)\]$", run.stdout, re.MULTILINE)
    expected = [
        (str(number), line.partition("# E: ")[2])
        for number, line in enumerate(PROGRAM.splitlines(), start=1)
        if "# E: " in line
    ]
    assert found == expected, run.stdout + run.stderr
    assert 'unexpected keyword argument "imbalence"' in run.stdout.lower()


def requests(face):
    methods = dict(inspect.getmembers(face, inspect.isfunction))
    return {name: method for name, method in methods.items() if not name.startswith("_")}


def test_the_async_coordinator_has_the_requests_of_the_coordinator():
    sync, coroutines = requests(Coordinator), requests(AsyncCoordinator)
    assert coroutines.keys() == sync.keys() - NOT_AWAITED
    for name, method in coroutines.items():
        assert inspect.iscoroutinefunction(method), name
        assert inspect.signature(method) == inspect.signature(sync[name]), name


def test_every_parameter_of_a_request_is_typed_and_documented():
    for name, method in requests(Coordinator).items():
        parameters = dict(inspect.signature(method).parameters)
        del parameters["self"]
        for parameter in parameters.values():
            named = f"{name}: {parameter}"
            assert parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL), named
            assert parameter.annotation not in (parameter.empty, "Any", "object"), named
            assert re.search(rf"^ +(\w+, )*{parameter.name}\b", method.__doc__, re.MULTILINE), named
