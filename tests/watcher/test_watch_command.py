"""`muster watch` as a process: a dump, its end, a kill, two of them, and what it refuses."""

import asyncio
import json
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from coordinator.member.client_settings import ClientSettings
from coordinator.watcher.kafka_brokers import KafkaBrokers
from tests.support.processes import run_as_text, running

from .recorded import FILES, FOLDER

DUMP, SMALL = str(FOLDER / FILES[-1]), str(FOLDER / "classic-03.jsonl")


def run(*arguments, **more):
    command = [sys.executable, "-m", "coordinator", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **more)


def groups(store):
    return [
        json.loads(line) for line in run_as_text("groups", "--store", store).stdout.splitlines()
    ]


def test_a_dump_is_written_and_read_by_the_other_commands(tmp_path):
    done = run("watch", "--records", DUMP, "--store", tmp_path / "s")
    assert (done.returncode, done.stderr) == (0, "")
    assert "muster watches" in done.stdout
    read = r"2 groups; records read: [1-9]\d*, written 1970-.*Z to 1970-.*Z; passed over: 0, undec"
    assert re.search(read, done.stdout)
    assert {one["group_id"] for one in groups(tmp_path / "s")} == {"g", "h"}
    assert run_as_text("verify", "--store", tmp_path / "s").returncode == 0
    assert "member joined" in run_as_text("explain", "g", "--store", tmp_path / "s").stdout
    again = run("watch", "--records", DUMP, "--store", tmp_path / "s")
    assert again.returncode == 0
    assert "2 groups; records read: 0; passed over: 0, undecodable: 0" in again.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--store is missing"),
        (("--store", "s"), "give a cluster"),
        (("kafka://h:1", "--records", DUMP, "--store", "s"), "one of them"),
        (("localhost:9092", "--store", "s"), "kafka://host:port"),
        (("kafka://nowhere", "--store", "s"), "give host:port"),
        (("kafka://h:1", "--compacted", "--store", "s"), "--compacted"),
        (("--records", "nothing", "--store", "s"), "cannot be read"),
        (("--records", DUMP, "--store", "s", "--takeover", "now"), "--takeover"),
        (("--records", DUMP, "--store", "s", "--by", "describe"), "--by describe"),
        (
            ("kafka://127.0.0.1:1", "--store", "s", "--by", "ear"),
            "--by is 'ear': give one of topic, describe",
        ),
    ],
)
def test_what_cannot_be_watched_is_refused(tmp_path, arguments, said):
    done = run_as_text("watch", *arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert not (tmp_path / "s").exists()


def test_a_server_that_is_no_broker_is_named():
    """It takes the connection, and says nothing that Kafka would."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host, port = silent.getsockname()
        brokers = KafkaBrokers(ClientSettings.read(f"kafka://{host}:{port}", {}), answer_s=0.2)
        with pytest.raises(ConnectionError, match=f"{host}:{port}: no answer of Kafka's within"):
            asyncio.run(brokers.describe("__consumer_offsets"))


def test_a_store_that_is_watched_is_not_served(tmp_path):
    run("watch", "--records", SMALL, "--store", tmp_path / "s")
    done = run_as_text("serve", "--store", tmp_path / "s", "--listen", "127.0.0.1:0")
    assert done.returncode == 2
    assert "muster watch" in done.stderr


def test_pages_stay_until_a_signal_and_another_process_stands_by(tmp_path):
    pytest.importorskip("starlette")
    command = [sys.executable, "-m", "coordinator", "watch", "--records", SMALL]
    command += ["--store", str(tmp_path / "s"), "--web", "127.0.0.1:0"]
    with running(command, stdout=subprocess.PIPE, text=True) as first:
        assert "muster shows the groups at" in first.stdout.readline()
        second = run("watch", "--records", SMALL, "--store", tmp_path / "s", "--takeover", "refuse")
        assert second.returncode == 3
        time.sleep(0.5)
        assert first.poll() is None
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
