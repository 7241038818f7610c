"""A store of shards: made once, read whole, and refused where one log is meant."""

from __future__ import annotations

import json
import threading
import time
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from assignors import SpecError
from coordinator import Coordinator
from coordinator.config import Config, ConfigError
from coordinator.history import frame
from coordinator.history.frames import frame_pieces
from coordinator.history.log_reader import LogReader
from coordinator.history.nodes_view import list_nodes
from coordinator.shards.node import Node
from coordinator.storage.shards import (
    FILE,
    NODES,
    Shards,
    make_shards,
    read_shards,
    refuse_other_count,
    root_at,
    shard_at,
    store_of,
    stores_of,
)
from coordinator.storage.store_marks import INCOMPLETE
from coordinator.storage.tables.store_files import ask_each
from coordinator.web.shards_reader import open_reader
from pyspark_muster import DefaultSource, event_stream
from pyspark_muster.event_stream import EventStream
from pyspark_muster.options import ReadOptions
from pyspark_muster.view_reader import ViewReader
from tests.support.members import join

GROUPS = [f"g{n}" for n in range(6)]


@pytest.fixture
def store(tmp_path):
    """A store of four shards with six groups, at least one in each."""
    root = str(tmp_path / "store")
    make_shards(root, 4, Config())
    for group_id in GROUPS:
        with Coordinator.open(store_of(root, group_id), topics={"t": 3}) as coordinator:
            join(coordinator, "m", ("t",), group_id)
    return root


def test_the_number_of_shards_is_fixed(tmp_path):
    root = str(tmp_path / "store")
    assert read_shards(tmp_path / "none") is None
    assert make_shards(root, 4, Config()) == read_shards(root) == Shards(4)
    assert make_shards(root, 4, Config()) == Shards(4)
    with pytest.raises(ConfigError, match=r"--shards is 5, but .* has 4, permanently"):
        make_shards(root, 5, Config())


@pytest.mark.parametrize("count", [-1, 0, 1, 1_025])
def test_a_number_that_is_none_is_refused(tmp_path, count):
    with pytest.raises(ConfigError, match="give 2 to 1024"):
        make_shards(str(tmp_path / "store"), count, Config())
    assert not (tmp_path / "store").exists()


def test_a_store_with_groups_stays_one(tmp_path):
    Coordinator.open(tmp_path / "store").close()
    with pytest.raises(ConfigError, match="is a store of one shard"):
        make_shards(str(tmp_path / "store"), 4, Config())
    assert read_shards(tmp_path / "store") is None
    assert stores_of(tmp_path / "store") == [str(tmp_path / "store")]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"count": 4, "format": 2}', '{"count": 4, "hash": "md5"}', '{"count": 1}',
     '{"count": 10000000}', "[" * 100_000],
)  # fmt: skip
def test_a_file_that_says_something_else_is_refused_by_its_name(tmp_path, content):
    make_shards(str(tmp_path), 4, Config())
    (tmp_path / "_shards.json").write_text(content)
    for read in (read_shards, stores_of, lambda s: store_of(s, "g"), lambda s: frame(s, "groups")):
        with pytest.raises(ConfigError, match=r"_shards\.json"):
            read(tmp_path)


def test_a_store_whose_file_is_gone_is_not_served_as_an_empty_one(tmp_path):
    make_shards(str(tmp_path), 4, Config())
    (tmp_path / "root").mkdir()  # as the first node makes it
    (tmp_path / "_shards.json").unlink()
    for read in (lambda: Coordinator.open(tmp_path), lambda: frame(tmp_path, "groups")):
        with pytest.raises(
            Exception, match=r"its store has shards, but the file _shards\.json is gone"
        ):
            read()
    with pytest.raises(ConfigError, match=r"its file _shards\.json is gone"):
        make_shards(str(tmp_path), 4, Config())


def test_a_group_is_where_kafka_hashes_it(store):
    # from Kafka: Utils.abs("g0".hashCode()) % 4 and so on; "g0" is 31 * 103 + 48
    assert [Shards(4).shard_of(g) for g in GROUPS] == [(31 * 103 + 48 + n) % 4 for n in range(6)]
    assert store_of(store, "g0") == shard_at(store, (31 * 103 + 48) % 4)
    assert store_of(store, NODES) == root_at(store)


def test_views_have_the_rows_of_all_shards(store):
    rows = frame(store, "groups")
    assert rows["group_id"].to_pylist() == GROUPS
    assert frame(store, "topics")["topic"].to_pylist() == ["t"], "each shard knows the topics"
    one = frame(store, "assignment_history", group_id="g3")
    assert one.equals(frame(store_of(store, "g3"), "assignment_history", group_id="g3"))
    assert set(pa.table(frame(store, "members"))["group_id"].to_pylist()) == set(GROUPS)
    assert set(frame(store, "log")["group_id"].drop_null().to_pylist()) == set(GROUPS)


def test_rows_say_which_shard_they_are_of(store):
    own = {group_id: Shards(4).shard_of(group_id) for group_id in GROUPS}
    for view in ("groups", "events"):
        rows = frame(store, view)
        found = zip(rows["group_id"].to_pylist(), rows["shard"].to_pylist(), strict=True)
        assert set(found) == set(own.items())
    log = frame(store, "log").filter(pc.equal(frame(store, "log")["kind"], "claim"))
    assert set(log["shard"].to_pylist()) == set(own.values()), "a claim is of no group"
    pieces = pa.concat_tables(frame_pieces(store, "log"))
    assert set(pieces["shard"].to_pylist()) == set(own.values())
    one = store_of(store, "g3")
    for named in (one, f"{one}/", one.replace("/shards/", "/./shards/")):
        assert frame(named, "groups")["shard"].unique().to_pylist() == [own["g3"]]


def test_a_store_of_its_own_is_no_shard(tmp_path):
    """Also one whose folder has the name of a shard, or of the root."""
    for name in ("store", "shards/0004", "root"):
        place = tmp_path / name
        with Coordinator.open(place, topics={"t": 3}) as coordinator:
            join(coordinator, "m", ("t",), "g")
        for view in ("groups", "events", "log"):
            assert frame(place, view)["shard"].unique().to_pylist() == [None], (name, view)
            assert frame(place, view)["shard"].type == pa.int32()


def test_a_position_is_of_one_log(store):
    with pytest.raises(SpecError, match=r"a position, and .* give a time, or name a group"):
        frame(store, "groups", as_of=3)
    assert frame(store, "groups", group_id="g1", as_of=2).num_rows == 0
    assert frame(store, "groups", group_id="g1")["group_id"].to_pylist() == ["g1"]


def test_a_shard_that_has_no_log_yet_has_no_rows_then(tmp_path):
    root = str(tmp_path)
    make_shards(root, 4, Config())
    with pytest.raises(SpecError, match="has no groups yet"):
        frame(root, "groups")
    for group_id, at in (("g0", 1_000), ("g1", 9_000)):
        with Coordinator.open(
            store_of(root, group_id), topics={"t": 3}, clock=lambda at=at: at
        ) as one:
            join(one, "m", ("t",), group_id)
    assert frame(root, "groups", as_of=at_second(5))["group_id"].to_pylist() == ["g0"]
    assert frame(root, "groups", as_of=at_second(10))["group_id"].to_pylist() == ["g0", "g1"]
    with pytest.raises(SpecError, match="before the first record"):
        frame(root, "groups", as_of=at_second(0))


def at_second(second):
    return datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC)


def test_where_one_log_is_meant_it_is_refused(store):
    for open_ in (Coordinator.open, LogReader):
        with pytest.raises(ConfigError, match="is a store of 4 shards: serve it with"):
            open_(store)


def test_commands_read_all_shards(store, muster_here):
    listed = muster_here("groups", "--store", store)
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    assert [row["group_id"] for row in rows] == GROUPS
    assert [row["shard"] for row in rows] == [Shards(4).shard_of(one) for one in GROUPS]
    described = json.loads(muster_here("describe", "g4", "--store", store).stdout)
    assert described["groupId"] == "g4"
    assert described["shard"] == Shards(4).shard_of("g4")
    assert b'"m"' in muster_here("history", "g4", "--store", store).stdout
    assert b"member joined" in muster_here("explain", "g2", "--store", store).stdout
    sound = json.loads(muster_here("verify", "--store", store).stdout)
    assert sound["sound"]
    assert sum(one["groups"] for one in sound["shards"]) == len(GROUPS)
    shown = muster_here("plan", "g1", "--store", store, "--add", "1")
    assert shown.returncode == 0, shown.stderr
    unknown = muster_here("describe", "nobody", "--store", store)
    assert unknown.returncode == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shards", 5], b"has 4, permanently"),
        (["--shards", 1], b"has 4, permanently"),
        (["--takeover", "force"], b"--takeover force needs a store of one shard"),
        (["--push", "http://127.0.0.1:1"], b"--push (push.workers) needs a store of one shard"),
    ],
)
def test_what_shards_cannot_do_is_refused_before_a_node_serves(store, muster_here, words, said):
    done = muster_here("serve", "--store", store, "--listen", "127.0.0.1:0", *words)
    assert done.returncode == 2
    assert said in b" ".join(done.stderr.split())


def test_a_store_of_shards_is_no_place_for_watched_groups(store, muster_here):
    done = muster_here("watch", "kafka://127.0.0.1:1", "--store", store)
    assert done.returncode == 2
    assert b"shards: name another folder: muster serve alone serves shards" in b" ".join(
        done.stderr.split()
    )


def test_each_shard_is_compacted(store, muster_here):
    done = muster_here("compact", "--store", store)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["shard"] for row in rows] == sorted(
        {f"{Shards(4).shard_of(g):04d}" for g in GROUPS}
    )


def test_spark_reads_all_shards_and_their_events(store):
    def rows(view, **options):
        source = DefaultSource({"path": store, "view": view} | options)
        reader = source.reader(source.schema())
        parts = reader.partitions()
        return len(parts), [
            row for part in parts for one in reader.read(part) for row in one.to_pylist()
        ]

    def frames(view, **options):
        return frame(store, view, **options).to_pylist()

    logs = len(stores_of(store))
    assert rows("topics") == (1, frames("topics"))
    found = rows("epochs")
    assert found[0] == logs > 1
    assert sorted(map(str, found[1])) == sorted(map(str, frames("epochs")))
    assert rows("epochs", groupId="g1") == (1, frames("epochs", group_id="g1"))
    assert rows("assignment_at", groupId="g1", epoch="2") == (
        1,
        frames("assignment_at", group_id="g1", epoch=2),
    )

    source = DefaultSource({"path": store, "view": "events"})
    stream = source.streamReader(source.schema())
    time.sleep(event_stream.SAME_MOMENT_MS / 1000)  # the last moment of each log is over
    start, end = stream.initialOffset(), EventStream.latestOffset(stream)
    parts = stream.partitions(start, end)
    assert len(parts) == logs
    streamed = [str(row) for part in parts for one in stream.read(part) for row in one.to_pylist()]
    assert sorted(streamed) == sorted(map(str, frames("events")))


def test_a_group_whose_shard_has_no_log_has_no_rows_where_it_is_pushed_down(tmp_path):
    store = str(tmp_path / "store")
    make_shards(store, 4, Config())
    for group_id in GROUPS[:2]:
        Coordinator.open(store_of(store, group_id), topics={"t": 3}).close()
    reader = ViewReader(ReadOptions.parse({"path": store, "view": "epochs"}))
    reader._filters.groups = frozenset({"g0", "g1", "g2"})
    parts = [(one.group_id, one.store) for one in reader.partitions()]
    assert parts == [(group_id, store_of(store, group_id)) for group_id in ("g0", "g1")]
    with pytest.raises(SpecError, match=r"group 'g2' is not in .* has no groups yet"):
        frame(store, "epochs", group_id="g2")


def test_shards_in_a_bucket_are_asked_several_at_once():
    both = threading.Barrier(2)
    ask_each(lambda _: both.wait(10), ["s3://bucket/store/1", "s3://bucket/store/2"])
    assert ask_each(str.upper, ["/a", "/b"]) == ["/A", "/B"]


def test_a_copy_with_only_some_of_its_shards_is_not_read(store, muster_here):
    """Those that it has are whole, and would be taken for all."""
    open(f"{store}/{INCOMPLETE}", "w").close()
    reads = [
        lambda: stores_of(store),
        lambda: store_of(store, GROUPS[0]),
        lambda: frame(store, "groups"),
        lambda: list_nodes(store, Config()),
        lambda: open_reader(store, Config()),
    ]
    for read in reads:
        with pytest.raises(ConfigError, match="is incomplete"):
            read()
    for words in ("verify", "groups", "doctor", "nodes"):
        done = muster_here(words, "--store", store)
        assert done.returncode == 2
        assert b"is incomplete" in done.stderr


@pytest.mark.parametrize("count", [2, 8])
def test_a_number_of_shards_that_was_changed_while_no_node_ran_is_refused(tmp_path, count):
    """A group would be looked for in another shard than it is in, and be a new one there."""
    root = str(tmp_path / "made")
    make_shards(root, 4, Config())
    file = tmp_path / "made" / FILE
    file.write_text(file.read_text().replace("4", str(count)))
    with pytest.raises(ConfigError, match=f"says {count} shards, and the store was made with 4"):
        Node(root, read_shards(root), Config(), {"t": 1})
    (tmp_path / "made/log/_delta_log" / f"{0:020}.json").unlink()
    refuse_other_count(root, read_shards(root))  # of an older version, which did not note it
