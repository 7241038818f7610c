"""`muster serve --processes`: several nodes on one machine, which are started again."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from coordinator.cli import processes as module
from coordinator.cli.processes import _command, _keep, _Process, check_processes, run_processes
from coordinator.config import Config, ConfigError, ServerConfig
from coordinator.storage.record_log import LogError
from tests.shards.conftest import SHARDS
from tests.shards.test_nodes_listed import rows_of
from tests.support import processes
from tests.support.longer import longer
from tests.support.members import wait_for

SETTINGS = Config(server=ServerConfig(listen="0.0.0.0:9192", node_id=5, http_listen="[::1]:80"))


def test_each_node_has_an_id_and_ports_of_its_own():
    words = ["serve", "--store", "s", "--processes", "3", "--processes=3", "--node", "5"]
    kept = [sys.executable, "-m", "coordinator", "serve", "--store", "s", "--node", "5"]
    assert _command(SETTINGS, words, 2) == [
        *kept, "--node=7", "--listen=0.0.0.0:9194", "--http=[::1]:82"
    ]  # fmt: skip
    anywhere = replace(SETTINGS, server=ServerConfig(listen="h:0", advertised="a:9000"))
    assert _command(anywhere, [], 1)[3:] == ["--node=2", "--listen=h:0", "--advertised=a:9001"]


@pytest.mark.parametrize(
    ("count", "store", "listen", "why"),
    [
        (1, "s", "h:1", "--processes is 1: give 2 or more"),
        (2, None, "h:1", "needs a store of shards"),
        (3, "s", "h:65534", "node 3 of them would be at port 65536"),
        (2, "s", "h", "'h' has no port"),
    ],
)
def test_what_cannot_be_nodes_is_refused(count, store, listen, why):
    settings = Config(server=ServerConfig(listen=listen))
    with pytest.raises(ConfigError, match=why):
        check_processes(count, settings, store)


def test_a_store_of_one_shard_has_no_processes(tmp_path, muster_here):
    done = muster_here("serve", "--store", tmp_path / "one", "--processes", 2)
    assert done.returncode == 2
    assert b"--processes 2 needs a store of shards: give --shards too" in done.stderr


class Child:
    """A process that ends as the test says."""

    def __init__(self, code=None):
        self.code = code

    def poll(self):
        return self.code


def test_a_node_that_ends_is_started_again_later_each_time(monkeypatch):
    started = []
    monkeypatch.setattr(
        subprocess, "Popen", lambda *_, **__: started.append(Child()) or started[-1]
    )
    node, waits, now = _Process(["x"]), [], 0.0
    for _ in range(7):
        _keep(node, now)
        node.running.code = -9
        _keep(node, now)
        waits.append(node.due_s - now)
        _keep(node, node.due_s - 0.1)
        assert node.running is None
        now = node.due_s
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    _keep(node, now)
    node.running.code = 1
    _keep(node, now + module.STEADY_S)
    assert node.due_s == now + module.STEADY_S + 1.0, "it had lived"
    assert len(started) == 8


def test_a_node_that_is_refused_ends_all(monkeypatch):
    children = [Child(), Child(2)]
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: next(given))
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    given, ended = itertools.cycle(children), []
    for child in children:
        child.send_signal = lambda number, child=child: ended.append((child, number))
        child.wait = lambda: None
    with pytest.raises(LogError, match="a node was refused"):
        run_processes(2, SETTINGS, ["serve"])
    assert ended == [(children[0], signal.SIGTERM)], "the other one has ended"


def test_a_node_ends_once_the_process_that_started_it_is_gone(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(os, "kill", lambda *words: words == (os.getpid(), 15) and ended.set())
    module.end_with_parent()  # it was started by no other node
    monkeypatch.setenv(module.PARENT, str(os.getppid()))
    module.end_with_parent()
    assert module.PARENT not in os.environ, "what it starts has another parent"
    assert not ended.wait(0.5)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    assert ended.wait(10)


@longer("it starts three processes, and kills one")
def test_nodes_of_one_command_share_a_store_and_one_comes_back(store, muster_here):
    words = ["serve", "--store", store, "--shards", SHARDS, "--processes", 2]
    command = [sys.executable, "-m", "coordinator", *words, "--listen", "127.0.0.1:0"]
    parent = processes.start([*command, "--topic", "t=4"], start_new_session=True)

    def shards():
        rows = rows_of(muster_here("nodes", "--store", store))
        return {row["member_id"]: row["shards"] for row in rows}

    wait_for(lambda: sorted(shards().values()) == [2, 2])
    before = set(shards())
    children = subprocess.run(
        ["pgrep", "-P", str(parent.pid)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len(children) == 2
    subprocess.run(["kill", "-9", children[0]], check=True)
    wait_for(lambda: sorted(shards().values()) == [2, 2] and len(before & set(shards())) == 1)
    parent.kill()
    wait_for(lambda: shards() == {})
