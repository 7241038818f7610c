"""`muster watch` is killed in the middle, twice; in the end the store says what Kafka said."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest

from coordinator.watcher.watch import watch as watch_here
from tests.support.longer import longer
from tests.support.processes import run_as_text, running

from .recorded import FILES, FOLDER, read_lines
from .test_watched_groups import NO_GROUP, normal

LONG = longer("another topic: make test-clients")

PATIENCE_S = 60


def commits(store):
    return len(list((store / "log" / "_delta_log").glob("*.json")))


def watch(name, store, *more):
    command = [sys.executable, "-m", "coordinator", "watch", "--records", str(FOLDER / name)]
    command += ["--store", str(store), "--takeover", "force", *more]
    return running(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_at(name, store, count):
    """Kill a watcher without a chance to tidy up once the log has so many commits."""
    until = time.monotonic() + PATIENCE_S
    with watch(name, store) as process:
        while commits(store) < count and process.poll() is None and time.monotonic() < until:
            time.sleep(0.001)
        was_killed = process.poll() is None
        process.send_signal(signal.SIGKILL)
    return was_killed


def rows(command, *arguments):
    done = run_as_text(command, *arguments)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize(
    "name", ["wide-00.jsonl", pytest.param(FILES[-1], marks=LONG, id=FILES[-1])]
)
def test_killed_twice_nothing_is_missing_and_nothing_is_there_twice(tmp_path, name):
    store, whole = tmp_path / "store", tmp_path / "whole"
    assert kill_at(name, store, 3)
    assert kill_at(name, store, commits(store) + 4)
    with watch(name, store) as last:
        said, failed = last.communicate(timeout=PATIENCE_S)
        assert (last.returncode, failed) == (0, ""), said
    with watch_here(FOLDER / name, whole) as watched:
        watched.wait(PATIENCE_S)
    assert run_as_text("verify", "--store", store).returncode == 0
    *_, done = [line for line in read_lines(name) if "groups" in line]
    for group_id, theirs in done["groups"].items():
        if theirs["errorCode"] == NO_GROUP:
            continue
        (ours,) = rows("describe", group_id, "--store", store)
        assert normal(as_kafka(ours, theirs), wished=False) == normal(theirs, wished=False)
        for command in ("history", "explain"):
            found, wanted = (rows(command, group_id, "--store", path) for path in (store, whole))
            assert [strip(one) for one in found] == [strip(one) for one in wanted]


def as_kafka(ours, theirs):
    """Return a description with Kafka's fields alone: `describe` has some of its own."""
    ours = {name: value for name, value in ours.items() if name in theirs}
    names = theirs["members"][0] if theirs["members"] else {}
    members = [{n: value for n, value in one.items() if n in names} for one in ours["members"]]
    return ours | {"members": members}


def strip(row):
    """Return a row without its positions, among which are claims of the store.

    When a member wrote last is forgotten in a kill: that it left is then what it did, or it died.
    A claim is dated, too, so that what follows it at once may be a millisecond later.
    """
    kept = {name: value for name, value in row.items() if "position" not in name}
    text = re.sub(r"(\.\d)\d\dZ", r"\1Z", json.dumps(kept))
    text = text.replace("member left or timed out", "member left")
    return json.loads(text.replace("member_gone", "member_left"))
