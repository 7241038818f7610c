"""Dumps of Kafka's topic of groups, read away from the cluster: whole ones, cut ones, odd ones."""

import base64
import gzip
import json
import os
import shutil
import threading

import pytest

from coordinator.config import ConfigError
from coordinator.trace.kafka_json import to_camel_case
from coordinator.watcher.records_file import RecordsFile
from coordinator.watcher.watch import watch
from coordinator.watcher.watched_store import WatchedStore
from tests.support.members import position_of

from .recorded import FILES, FOLDER, read_lines
from .test_watched_groups import NO_GROUP, normal


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def record(offset, batch=0, at=1_000, key=b"\0\1", value=None):
    texts = [None if one is None else base64.b64encode(one).decode() for one in (key, value)]
    return [offset, at, batch, *texts]


@pytest.mark.parametrize("name", FILES[4:])
def test_a_dump_ends_with_the_groups_that_kafka_described(tmp_path, name):
    *_, last = [line for line in read_lines(name) if "groups" in line]
    with watch(FOLDER / name, tmp_path / "store") as watched:
        assert watched.wait(60)
        for group_id, theirs in last["groups"].items():
            (found,) = watched.coordinator.consumer_group_describe(group_id)
            if theirs["errorCode"] == NO_GROUP:
                assert found["error_code"] == NO_GROUP
            else:
                assert normal(to_camel_case(found), wished=False) == normal(theirs, wished=False)


def test_one_that_was_stopped_goes_on(tmp_path):
    source, stop = RecordsFile(FOLDER / FILES[-1], together=3), threading.Event()
    with WatchedStore.open(tmp_path / "cut", source.find_cluster(), is_live=False) as store:
        take, left = store.take, iter(range(4))

        def cut(*args):
            take(*args)
            if next(left) == 3:
                stop.set()

        store.take = cut
        source.follow(store, stop)
    for _ in range(2):  # the second time there is nothing to do
        with watch(FOLDER / FILES[-1], tmp_path / "cut") as watched:
            watched.wait(60)
            positions = watched.store.next_offsets()
            described = watched.coordinator.consumer_group_describe(["g", "h"])
            at = position_of(watched.coordinator)
    with watch(FOLDER / FILES[-1], tmp_path / "whole") as watched:
        watched.wait(60)
        assert watched.store.next_offsets() == positions
        assert watched.coordinator.consumer_group_describe(["g", "h"]) == described
        more = at - position_of(watched.coordinator)
    assert 0 <= more < 20, "claims and places that were read, and nothing twice"


def test_it_may_be_inflated(tmp_path):
    packed = tmp_path / "dump.jsonl.gz"
    with (FOLDER / FILES[0]).open("rb") as plain, gzip.open(packed, "wb") as out:
        shutil.copyfileobj(plain, out)
    assert RecordsFile(packed).find_cluster() == RecordsFile(FOLDER / FILES[0]).find_cluster()
    whole = packed.read_bytes()
    for broken in (whole[:-20], whole[:900] + bytes(300) + whole[1_200:], b"[]"):
        packed.write_bytes(broken)
        with pytest.raises(ConfigError, match=r"dump\.jsonl\.gz"):
            RecordsFile(packed)


def test_what_is_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe cannot be read: it is not a file"):
        RecordsFile(tmp_path / "pipe")


def test_what_a_cleaned_topic_keeps_is_no_history(tmp_path):
    lines = [record(3), record(17, 1), record(40, 2, at=5_000), record(41, 3), record(43, 4)]
    source = RecordsFile(write(tmp_path / "dump", *lines))
    assert source._reduced == 17
    assert source.find_cluster().timestamp == 5_000, "history begins behind the last gap"
    assert RecordsFile(tmp_path / "dump", is_compacted=True)._reduced == 43
    assert RecordsFile(write(tmp_path / "whole", *lines[2:4]))._reduced == -1


ODD = {
    "empty": (b"", "has no records"),
    "no records": (b'{"topics": {}, "at": 1}\n\n', "has no records"),
    "cut": (b'[0, 1, 0, "AAE=", null]\n[1, 1, 0, "AAE', "line 2"),
    "base64": (b'[0, 1, 0, "A*E=", null]\n', "line 1"),
    "falls": (
        b'[5, 1, 0, "AAE=", null]\n[5, 1, 0, "AAE=", null]\n',
        "line 2: offset 5 comes after",
    ),
    "types": (b'["0", 1, 0, "AAE=", null]\n', "line 1"),
    "short": (b"[0, 1]\n", "line 1"),
    "negative": (b'[0, -1, 0, "AAE=", null]\n', "line 1: Expected `int` >= 0"),
    "last offset": (b'[9223372036854775807, 1, 0, "AAE=", null]\n', "line 1: Expected `int` <="),
    "no offset": (b'[%d, 1, 0, "AAE=", null]\n' % (1 << 70), "line 1"),
    "year 10000": (b'[0, 253402300800000, 0, "AAE=", null]\n', "line 1: Expected `int` <="),
    "topics at": (b'{"topics": {}, "at": 253402300800000}\n', "line 1"),
    "partitions": (b'{"topics": {"a": {"id": "b", "partitions": -1}}, "at": 1}\n', "line 1"),
    "too many": (b'{"topics": {"a": {"id": "b", "partitions": 2147483648}}, "at": 1}\n', "line 1"),
    "no name": (b'{"topics": {"": null}, "at": 1}\n', "line 1"),
    "no id": (b'{"topics": {"a": {"id": "", "partitions": 1}}, "at": 1}\n', "line 1"),
    "deep": (b'{"groups": ' + b"[" * 200_000 + b"\n", "line 1: it is nested too deeply"),
    "number": (b"7\n", "line 1"),
    "topics": (b'{"topics": {"a": {"id": 7}}, "at": 1}\n', "line 1"),
    "no text": (b"\xff\xfe\n", "line 1"),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_no_dump_is_refused_before_anything_is_written(tmp_path, name):
    content, said = ODD[name]
    (tmp_path / "dump").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        watch(tmp_path / "dump", tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_line_without_end_is_refused(tmp_path):
    (tmp_path / "dump").write_bytes(b"[" + b" " * 1_000)
    with pytest.raises(ConfigError, match="more than 100 bytes"):
        RecordsFile(tmp_path / "dump", line_max=100)
    with pytest.raises(ConfigError, match="cannot be read"):
        RecordsFile(tmp_path)


def test_a_way_that_is_none_is_refused_in_python_too(tmp_path):
    with pytest.raises(ConfigError, match="by is 'ear': give one of topic, describe"):
        watch("kafka://127.0.0.1:1", tmp_path / "store", by="ear")
    assert not (tmp_path / "store").exists()
