"""Topics: where their metadata comes from, and what a change of it does to groups."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from coordinator import Coordinator
from coordinator.config import ConfigError, parse
from coordinator.core.events import CatalogTopic
from coordinator.core.state.groups import Topic
from coordinator.core.state.records import GroupMetadata
from coordinator.runtime import topic_catalog as topics_module
from coordinator.runtime.topic_catalog import (
    DeltaCatalog,
    DictCatalog,
    FileCatalog,
    KafkaCatalog,
    TopicWatch,
    catalog_of,
    topic_id_of,
)
from tests.support.coordinator_core import lists
from tests.support.members import state_of


def reasons(result):
    return [record.reason for record in result.records if isinstance(record, GroupMetadata)]


# What a change does ------------------------------------------------------------------------------

SEEN = CatalogTopic("id-1", 2, (("r1", "r2"), ("r1",)))
HASHES = {
    "another id": CatalogTopic("id-2", 2, SEEN.racks),
    "more partitions": CatalogTopic("id-1", 3, SEEN.racks),
    "another rack": CatalogTopic("id-1", 2, (("r1", "r3"), ("r1",))),
}


def hash_of(seen, name="a"):
    return Topic.of(name, seen.topic_id, seen.partitions, seen.racks).hash


@pytest.mark.behaviour("G-148", "K-3")
@pytest.mark.parametrize("other", HASHES.values(), ids=HASHES)
def test_the_hash_of_a_topic_tells_what_matters(other):
    assert hash_of(other) != hash_of(SEEN)
    assert 0 <= hash_of(SEEN) < 2**64


@pytest.mark.behaviour("G-148")
def test_the_order_of_racks_does_not_matter_to_the_hash():
    assert hash_of(CatalogTopic("id-1", 2, (("r2", "r1"), ("r1",)))) == hash_of(SEEN)
    assert hash_of(SEEN, "b") != hash_of(SEEN)


@pytest.mark.behaviour("G-148", "G-37", "S-22", "K-90")
def test_a_grown_topic_moves_the_epoch_once_and_is_assigned(group):
    group.join("m1", "a")
    group.topics(a=8)
    assert reasons(group.run(group.heartbeat("m1"))) == ["topics changed"]
    assert reasons(group.run(group.heartbeat("m1"))) == []
    assert lists(group.member("m1").current.assigned) == {"a": list(range(8))}


@pytest.mark.behaviour("G-148", "G-158", "S-22")
def test_replicas_that_move_between_racks_move_the_epoch_but_no_partition(group):
    group.join("m1", "a")
    group.topics(a=6, racks=((("r1",),) * 6))
    before = group.current("m1")[2]
    assert reasons(group.run(group.heartbeat("m1"))) == ["topics changed"]
    assert group.current("m1")[2] == before


@pytest.mark.behaviour("G-37", "G-148")
def test_a_topic_without_subscribers_moves_nothing(group):
    group.join("m1", "a")
    group.topics(b=9, c=1)
    assert reasons(group.run(group.heartbeat("m1"))) == []


@pytest.mark.behaviour("G-148", "S-22", "W-17")
def test_a_topic_may_be_subscribed_to_before_it_exists(group):
    assert group.join("m1", "c").assignment == ()
    group.topics(c=3)
    group.settle()
    assert group.given["m1"] == {"c": [0, 1, 2]}


@pytest.mark.behaviour("S-22", "S-23", "G-56", "G-157")
def test_a_deleted_topic_drops_out(group):
    group.join("m1", "a", "b")
    group.topics(delete=["a"])
    group.settle()
    assert group.given["m1"] == {"b": [0, 1]}
    assert group.target("m1") == {"b": [0, 1]}


@pytest.mark.behaviour("S-22", "G-148")
def test_a_topic_that_came_back_is_another_topic(group):
    group.join("m1", "a")
    group.join("m2", "a")
    group.settle()
    old = group.state.topics["a"].key
    group.topics(delete=["a"])
    group.topics(a=4)
    new = group.state.topics["a"].key
    assert old != new
    lines = group.beat("m1").assignment
    assert lines == ()  # the old one's partitions go first
    group.settle()
    held = {span[0] for m in group.group.members.values() for span in m.current.assigned}
    assert held == {new}
    assert sorted(map(len, (group.given["m1"]["a"], group.given["m2"]["a"]))) == [2, 2]


def test_what_is_seen_again_unchanged_writes_nothing(group):
    assert group.topics().records == []


# Where it comes from -----------------------------------------------------------------------------


def test_topics_of_a_dict():
    catalog = DictCatalog({"a": 3, "b": CatalogTopic("own", 1)})
    assert catalog.topics() == {"a": CatalogTopic(topic_id_of("a"), 3), "b": CatalogTopic("own", 1)}
    catalog.set("b", 2)
    assert catalog.topics()["b"] == CatalogTopic("own", 2)
    catalog.delete("a")
    catalog.delete("never there")
    assert set(catalog.topics()) == {"b"}


FILES = {
    "toml": ("topics.toml", 'a = 3\n[b]\npartitions = 2\ntopic_id = "own"\nracks = [["r1"], ["r2", "r1"]]\n'),
    "toml, in a table": ("x.toml", '[topics]\na = 3\nb = {partitions = 2, topic_id = "own", racks = [["r1"], ["r2", "r1"]]}\n'),
    "json": (
        "topics.json",
        json.dumps({"a": 3, "b": {"partitions": 2, "topic_id": "own", "racks": [["r1"], ["r2", "r1"]]}}),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), FILES.values(), ids=FILES)
def test_topics_of_a_file(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert FileCatalog(tmp_path / name).topics() == {
        "a": CatalogTopic(topic_id_of("a"), 3),
        "b": CatalogTopic("own", 2, (("r1",), ("r1", "r2"))),
    }


WRONG_FILES = {
    "no JSON": "{",
    "no object": "[]",
    "empty": "  \n",
    "negative": '{"a": -1}',
    "a fraction": '{"a": 1.5}',
    "true": '{"a": true}',
    "too large": '{"a": 2147483648}',
    "text": '{"a": "3"}',
    "no name": '{"": 3}',
    "unknown field": '{"a": {"partitions": 3, "colour": 1}}',
    "no count": '{"a": {}}',
    "id is a number": '{"a": {"partitions": 3, "topic_id": 7}}',
    "racks are no lists": '{"a": {"partitions": 1, "racks": [1]}}',
    "topics is a number": '{"topics": 3}',
}


@pytest.mark.parametrize("text", WRONG_FILES.values(), ids=WRONG_FILES)
def test_an_invalid_topics_file_is_refused_by_name(tmp_path, text):
    file = tmp_path / "topics.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match=re.escape(file.name)):
        FileCatalog(file).topics()


@pytest.mark.behaviour("G-128")
def test_a_file_that_is_being_written_deletes_no_topics(tmp_path):
    """A program that rewrites it empties it first: then no topic is gone, nor are its offsets."""
    from tests.support.coordinator_shell import Shell

    file = tmp_path / "topics.toml"
    file.write_text("a = 3\n")
    shell = Shell()
    shell.catalog = FileCatalog(file)
    shell.reload()
    file.write_text("")
    shell.processor.see_topics()
    assert shell.processor.state.topics["a"].partitions == 3


def test_a_source_that_cannot_be_read_is_said_once(caplog):
    """And again where it is another mistake; what a cluster says differs each time."""
    caplog.set_level("INFO")
    clock, errors, failed = iter(range(100, 200)), [], []

    class Source:
        def topics(self):
            if errors:
                raise errors.pop(0)
            return {}

    watch = TopicWatch(Source(), lambda: next(clock), lambda: failed.append(1))
    assert watch.look({}) is watch.unread_since_ms is None
    errors += [OSError("after 10 ms"), OSError("after 20 ms"), ConfigError("line 1")]
    errors += [ConfigError("line 1"), ConfigError("line 2"), OSError("after 30 ms")]
    for _ in range(6):
        assert watch.look({"a": Topic.of("a", "id", 1, ())}) is None
        assert watch.unread_since_ms == 100
    assert watch.look({}) is watch.unread_since_ms is None
    errors.append(OSError("after 40 ms"))
    watch.look({})
    assert watch.unread_since_ms == 101
    said = "topics stay as they were, retrying their source: {}"
    lines = ("after 10 ms", "line 1", "line 2", "after 30 ms")
    assert [record.getMessage() for record in caplog.records] == [
        *map(said.format, lines), "topics can be read again", said.format("after 40 ms")
    ]  # fmt: skip
    assert len(failed) == 7


def test_a_cluster_that_does_not_answer_is_said_in_one_line(capfd, caplog):
    """Its client writes twenty lines a second to stderr, unless they are taken."""
    caplog.set_level("INFO")
    with Coordinator.open(
        None, topics=KafkaCatalog({"bootstrap.servers": "127.0.0.1:1"}, 0.5)
    ) as c:
        c.refresh_topics()
        assert c.topics_unread_since is not None
    assert capfd.readouterr() == ("", "")
    assert len(caplog.records) == 1
    assert "the Kafka cluster does not answer" in caplog.text
    assert "Connect to ipv4#127.0.0.1:1 failed: Connection refused" in caplog.text


def test_topics_of_a_delta_table(tmp_path):
    table = str(tmp_path / "topics")
    catalog = DeltaCatalog(table)
    with pytest.raises(ConfigError, match="is not a Delta table"):
        catalog.topics()
    rows = pa.table(
        {"topic": ["a", "b"], "partitions": pa.array([3, 2], pa.int32()), "topic_id": ["own", None]}
    )
    write_deltalake(table, rows)
    assert catalog.topics() == {"a": CatalogTopic("own", 3), "b": CatalogTopic(topic_id_of("b"), 2)}
    write_deltalake(table, rows.slice(1), mode="overwrite")
    assert set(catalog.topics()) == {"b"}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"topic": ["a"]}, "partitions"),
        ({"topic": ["a", "a"], "partitions": [1, 1]}, "twice"),
        ({"topic": ["a"], "partitions": [-1]}, "partitions"),
        ({"topic": [None], "partitions": [1]}, "empty"),
    ],
)
def test_an_invalid_topics_table_is_refused(tmp_path, columns, message):
    table = str(tmp_path / "topics")
    types = {"topic": pa.string(), "partitions": pa.int64()}
    write_deltalake(
        table, pa.table({name: pa.array(values, types[name]) for name, values in columns.items()})
    )
    with pytest.raises(ConfigError, match=message):
        DeltaCatalog(table).topics()


# The source named in the settings ----------------------------------------------------------------


def known(**given):
    with Coordinator.open(None, **given) as coordinator:
        topics = state_of(coordinator).topics
        return {name: topic.partitions for name, topic in topics.items()}


def test_a_source_is_named_in_the_settings_or_where_the_store_is_opened(tmp_path):
    file, table = tmp_path / "topics.toml", str(tmp_path / "topics")
    file.write_text("a = 3\n")
    write_deltalake(table, pa.table({"topic": ["b"], "partitions": [2]}))
    config = parse(f"[topics]\nsource = '{file}'", "muster.toml")
    assert known(config=config) == {"a": 3}
    assert known(config=config, topics=table) == {"b": 2}
    assert known(config=config, topics={"c": 1}) == {"c": 1}
    assert known() == {}


def test_a_kafka_cluster_as_source_gets_its_clients_settings(monkeypatch):
    asked = []
    monkeypatch.setattr(topics_module, "KafkaCatalog", asked.append)
    text = "[topics]\nkafka = {'security.protocol' = 'SSL'}"
    catalog_of("kafka://one:9092,two:9092", parse(text, "muster.toml").topics.kafka)
    assert asked == [{"bootstrap.servers": "one:9092,two:9092", "security.protocol": "SSL"}]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("nowhere.toml", "the topics in nowhere.toml cannot be read: No such file"),
        ("nowhere", "nowhere is not a Delta table"),
        (["a"], r"topics is \['a'\]: give"),
        ({"a": -1}, "topic 'a' has -1 partitions"),
    ],
)
def test_an_invalid_source_is_refused_before_the_store_is_touched(tmp_path, source, words):
    with pytest.raises(ConfigError, match=words):
        Coordinator.open(tmp_path / "store", topics=source)
    assert not (tmp_path / "store").exists()


def test_muster_serve_refuses_an_invalid_source(muster_here, tmp_path):
    (tmp_path / "own.toml").write_text("[topics]\nsource = 'nowhere.json'")
    done = muster_here("serve", "--config", "own.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert b"the topics in nowhere.json cannot be read" in done.stderr


def test_the_id_of_a_topic_without_one_follows_from_its_name():
    """As in Kafka's traces: a name-based UUID, as unpadded URL-safe base64."""
    assert topic_id_of("a") == "DMF1ucDxNqixw5niaXcmYQ"
    assert topic_id_of("b") == "kutf_uauP-y61xx3dTFXjw"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.json", '{"topics": {"a": {"partitions": 3}}}'),
        ("t.toml", "[topics.a]\npartitions = 3\n"),
    ],
)
def test_a_file_that_an_editor_saved_with_a_byte_order_mark_is_read(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8-sig")
    assert catalog_of(str(path)).topics()["a"].partitions == 3


def test_a_file_is_parsed_again_only_when_its_text_is_another(tmp_path):
    file = tmp_path / "topics.json"
    file.write_text('{"a": 3}')
    catalog = FileCatalog(file)
    first = catalog.topics()
    assert catalog.topics() is first
    file.write_text('{"a": 4')
    with pytest.raises(ConfigError, match="delimiter"):
        catalog.topics()
    file.write_text('{"a": 4}')
    assert catalog.topics()["a"].partitions == 4
    file.write_text('{"a": 3}')
    assert catalog.topics() == first
