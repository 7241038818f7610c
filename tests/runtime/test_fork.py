"""A child that is forked has the coordinator's memory, but none of its threads."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

CALLS = [
    "steady()",
    "join()",
    "asyncio.run(coordinator.aio.list_groups())",
    "coordinator.submit([])",
    "coordinator.steady_heartbeats('g', ['m'], [1])",
    "coordinator.group_epochs('g')",
    "coordinator.describe_group_config('g')",
    "coordinator.delete_groups('g')",
    "coordinator.serve('127.0.0.1:0')",
    "coordinator.progress()",
    "coordinator.tick()",
]

SCRIPT = """
    import asyncio, os, signal, sys
    from coordinator import Coordinator
    from coordinator.errors import GroupError

    def steady():
        return coordinator.consumer_group_heartbeat(group_id="g", member_id="m", member_epoch=2)

    def join():
        return coordinator.consumer_group_heartbeat(
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1000,
            subscribed_topic_names=["a"], topic_partitions={})

    def forked():
        signal.alarm(20)
        for call in CALLS:
            try:
                eval(call)
            except GroupError as error:
                assert f"is in process {os.getppid()}" in error.message, error
                assert f"this one ({os.getpid()}) was forked" in error.message, error
            else:
                raise AssertionError(call)
        assert coordinator.status == "closed"
        coordinator.close()

    with Coordinator.open(sys.argv[1], topics={"a": 1}) as coordinator:
        join()
        child = os.fork()
        if child == 0:
            try:
                forked()
            except BaseException as error:
                print(repr(error), flush=True)
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert os.path.exists(sys.argv[1] + "/_lease.json")
        steady()
    assert not os.path.exists(sys.argv[1] + "/_lease.json")
"""


def test_a_forked_child_is_refused_by_name_and_closes_nothing(tmp_path):
    script = f"CALLS = {CALLS!r}\n{dedent(SCRIPT)}"
    words = [sys.executable, "-c", script, str(tmp_path / "store")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
