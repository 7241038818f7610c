"""A take-over on another machine: nothing is shared but the bucket."""

from __future__ import annotations

import contextlib
import json

import pytest

from tests.storage.test_store_by_url import SERVE
from tests.support.s3.client import S3Server
from tests.support.s3.machines import Machine, can_separate

pytestmark = pytest.mark.skipif(
    not can_separate(), reason="needs the right to make namespaces: run it as root"
)
TAKE_OVER = """
import json, os, socket, sys, time
from coordinator import Coordinator
from coordinator.history import frame
from tests.storage.test_store_by_url import SHORT, TOPICS, join
began = time.monotonic()
with Coordinator.open(sys.argv[1], topics=TOPICS, config=SHORT) as coordinator:
    took = time.monotonic() - began
    members = [row["member_id"] for row in frame(sys.argv[1], "members").to_pylist()]
    joined = join(coordinator, "one-more").member_epoch
print(json.dumps(dict(host=socket.gethostname(), took=took, members=members, joined=joined)))
"""


@pytest.fixture
def everywhere():
    """A bucket that answers at every address of this machine."""
    with S3Server.started(host="0.0.0.0") as server:  # machines reach it by their own gateways
        yield server


@pytest.fixture
def machines():
    with contextlib.ExitStack() as stack:
        made = []
        for name in ("one", "two"):
            made.append(Machine(name))
            stack.callback(made[-1].remove)
        yield made


def test_a_killed_machine_is_taken_over_by_one_that_shares_the_bucket_alone(everywhere, machines):
    store = everywhere.new_store()
    port = everywhere.endpoint.rpartition(":")[2]
    one, two = (
        everywhere.environment() | {"AWS_ENDPOINT_URL": f"http://{machine.gateway}:{port}"}
        for machine in machines
    )
    with machines[0].run(SERVE, store, **one) as first:
        acknowledged = [first.stdout.readline() for _ in range(15)]
        assert all(acknowledged), first.stderr.read()
        first.kill()
        acknowledged += first.stdout.readlines()
    with machines[1].run(TAKE_OVER, store, **two) as second:
        said, failed = second.communicate(timeout=120)
    assert second.returncode == 0, failed
    found = json.loads(said)
    assert found["host"] == machines[1].name
    assert 0.2 < found["took"] < 60  # it waited for the lease, which was not given back
    assert {f"m{int(number)}" for number in acknowledged if number.strip()} <= {*found["members"]}
    assert found["joined"]
