"""Two versions on one store: the last release and this one follow each other under a group.

`make test-clients` runs it. The last release is a commit, from which a wheel is built here: what
it imports has not changed since.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from coordinator.config import Config
from coordinator.storage.shards import make_shards
from tests.clients.world import Coordinators, Group, free_port, partitions
from tests.conftest import ROOT
from tests.support.longer import longer

pytestmark = longer("make test-clients")
LAST = "0.2.0", "e6be6d2a^"
"""The last release, and the commit that is it."""
CLICKS = partitions("clicks", 8)


@pytest.fixture(scope="module")
def last(tmp_path_factory):
    """The command that is the last release."""
    version, commit = LAST
    source, there = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("last")
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the clone is too shallow: it has no commit {commit}")
    subprocess.run(["tar", "x"], input=archive.stdout, cwd=source, check=True)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "--target", there, "."], cwd=source, check=True)
    command = ("env", f"PYTHONPATH={there}", sys.executable, "-P", "-m", "coordinator")
    said = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.split()[1] == version
    return command


def test_a_group_lives_through_an_upgrade_and_the_way_back(last, tmp_path):
    class Old(Coordinators):
        program = last

    with Old(tmp_path, {"clicks": 8}) as served:
        other = f"127.0.0.1:{free_port()}"
        with Group(tmp_path, "billing", [served.address, other]) as group:
            for name in ("m0", "m1"):
                group.join(name)
            group.settled(["m0", "m1"], CLICKS)
            served.program = Coordinators.program
            served.serve(other)
            before = group.changes()
            served.servers[0].leave()
            group.works(["m0", "m1"])
            assert group.changes() == before
            served.program = last
            served.serve()
            served.servers[1].leave()
            group.works(["m0", "m1"])
            assert group.changes() == before


def test_the_last_release_refuses_a_store_of_shards(last, tmp_path):
    store = tmp_path / "store"
    make_shards(str(store), 4, Config())
    command = [*last, "serve", "--store", store, "--listen", "127.0.0.1:0", "--topics", "none.json"]
    (tmp_path / "none.json").write_text("{}")
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "has format 2, this version of Muster knows formats up to 1" in done.stderr
