"""`muster watch` on a real Kafka 4.4.0: two watchers, of which one is killed again and again.

`make test-kafka` only: it needs Java and Maven, and the jars of Kafka once.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from tests.clients import world
from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.support.processes import start

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
TOPICS = {"clicks": 6, "orders": 4}
OURS = {"coordinator_epoch", "position", "at", "at_ms", "reason", "member_id"}
"""Columns of a row that a stop may change: who wrote it, and when a row was seen."""
GROUPS = ("classic", "consumer")
SECONDS = 40


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    try:
        with Kafka(tmp_path_factory.mktemp("watched"), TOPICS) as found:
            # So that the topic of groups is there, and has a group: a busy broker may be slow.
            until(lambda: consume(found, "first", "classic", 2.0) or list_groups(found))
            yield found
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def list_groups(kafka):
    admin = AdminClient({"bootstrap.servers": kafka.address})
    return [one.group_id for one in admin.list_consumer_groups().result(30).valid]


def delete_group(admin, group_id):
    admin.delete_consumer_groups([group_id])[group_id].result(30)
    return True


def until(condition, what=lambda: "", patience_s=120):
    """Wait for what the store, or Kafka, says at last; either may not answer yet."""

    def holds():
        try:
            return condition()
        except (ck.KafkaException, IndexError, KeyError, TimeoutError, ValueError):
            return False

    world.until(holds, what, patience_s)


def consumer(kafka, group, protocol, **more):
    settings = {
        "bootstrap.servers": kafka.address,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **more,
    }
    return ck.Consumer(settings)


def consume(kafka, group, protocol, seconds, topics=("clicks",), rng=None, **more):
    """Be a member for a while, and commit."""
    member = consumer(kafka, group, protocol, **more)
    member.subscribe(list(topics))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        member.poll(0.1)
        for one in member.assignment():
            offset = rng.randrange(1_000) if rng else 1
            try:
                member.commit(
                    offsets=[ck.TopicPartition(one.topic, one.partition, offset)],
                    asynchronous=False,
                )
            except ck.KafkaException:
                break  # a rebalance, or a broker that is away
    member.close()


def write_transactions(kafka, seconds, rng):
    """Commit offsets by transactions, and abort some of them."""
    producer = ck.Producer({"bootstrap.servers": kafka.address, "transactional.id": "eos"})
    reader = consumer(kafka, "eos", "classic")
    reader.subscribe(["orders"])
    end, last = time.monotonic() + seconds, None
    producer.init_transactions(30)
    while time.monotonic() < end:
        reader.poll(0.1)
        try:
            producer.begin_transaction()
            offset = rng.randrange(1_000)
            places = [ck.TopicPartition("orders", 0, offset)]
            producer.send_offsets_to_transaction(places, reader.consumer_group_metadata(), 10)
            time.sleep(rng.random())
            if rng.random() < 0.5:
                producer.commit_transaction(10)
                last = offset
            else:
                producer.abort_transaction(10)
        except ck.KafkaException:
            break  # the broker was restarted in it
    reader.close()
    return last


def start_watcher(kafka, store, log, *more):
    words = ["watch", f"kafka://{kafka.address}", "--store", str(store), *more]
    return start(
        [sys.executable, "-m", "coordinator", *words], stdout=log, stderr=subprocess.STDOUT
    )


def read_store(store, *words):
    done = subprocess.run(
        [sys.executable, "-m", "coordinator", *words, "--store", str(store)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows(store):
    """What the log says of groups, but for offsets, which are folded, and lags, noted now and then."""
    table = DeltaTable(f"{store}/log").to_pyarrow_table().sort_by("position")
    kept = [name for name in table.column_names if name not in OURS]
    mine = {"claim", "partition_read", "kafka_watched", "topic", "offset_commit", "loads"}
    return [row for row in table.select(kept).to_pylist() if row["kind"] not in mine]


def positions(store):
    table = DeltaTable(f"{store}/log").to_pyarrow_table().sort_by("position").to_pylist()
    return {r["partition"]: r["offset"] for r in table if r["kind"] == "partition_read"}


def test_a_watcher_that_is_killed_misses_nothing_and_writes_nothing_twice(kafka, tmp_path):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - to run it again
    rng = random.Random(seed)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    stores = tmp_path / "whole", tmp_path / "killed"
    with ExitStack() as stack:
        logs = [stack.enter_context((tmp_path / f"{s.name}.log").open("wb")) for s in stores]
        whole = start_watcher(kafka, stores[0], logs[0])
        stack.callback(whole.kill)
        killed = [start_watcher(kafka, stores[1], logs[1])]
        stack.callback(lambda: [one.kill() for one in killed])
        for store in stores:
            until(
                lambda store=store: read_store(store, "groups"),
                lambda store=store: (tmp_path / f"{store.name}.log").read_text(),
            )
        threads = [
            threading.Thread(
                target=consume,
                args=(kafka, group, group, 5 + rng.random() * (SECONDS - 10)),
                kwargs={"rng": random.Random(rng.random()), "topics": topics} | more,
            )
            for group in GROUPS
            for topics, more in (
                (("clicks",), {}),
                (("clicks", "orders"), {"group.instance.id": f"static-{group}"}),
                (("^cli.*",), {}),
            )
        ]
        threads.append(threading.Thread(target=write_transactions, args=(kafka, 20, rng)))
        for thread in threads:
            thread.start()
            time.sleep(rng.random() * 2)
        end = time.monotonic() + SECONDS
        restarted = False
        while time.monotonic() < end:
            time.sleep(1 + rng.random() * 4)
            killed[-1].kill()
            killed[-1].wait()
            killed.append(start_watcher(kafka, stores[1], logs[1]))
            if not restarted and time.monotonic() > end - SECONDS / 2:
                kafka.stop()
                kafka.start()
                restarted = True
        for thread in threads:
            thread.join()
        until(lambda: delete_group(admin, "first"))  # a broker that has started may load it still

        def agree():
            if killed[-1].poll() is not None:  # it ended, as it began while the broker was away
                killed.append(start_watcher(kafka, stores[1], logs[1]))
            return len({str(positions(store)) for store in stores}) == 1

        until(agree)
        stay = consumer(kafka, "consumer", "consumer")
        stack.callback(stay.close)
        stay.subscribe(["clicks"])
        until(lambda: stay.poll(0.1) or len(stay.assignment()) == TOPICS["clicks"])
        for store in stores:
            until(lambda store=store: stored(store, "consumer") == asked(admin, "consumer"))
            assert "first" not in {one["group_id"] for one in read_store(store, "groups")}
        until(lambda: rows(stores[0]) == rows(stores[1]))
        for group in (*GROUPS, "eos"):
            for store in stores:
                until(lambda g=group, s=store: offsets_shown(s, g) == offsets_asked(admin, g))
        for process in (whole, killed[-1]):
            process.terminate()
            assert process.wait(30) == 0
    for store in stores:
        assert read_store(store, "verify")[0]["sound"] is True


@pytest.mark.parametrize("killed", [False, True])
def test_asked_again_and_again_a_store_says_what_kafka_does(kafka, tmp_path, killed):
    admin = AdminClient({"bootstrap.servers": kafka.address})
    settings = tmp_path / "muster.toml"
    settings.write_text("[watch]\npoll_ms = 500\n")
    store, rng = tmp_path / "asked", random.Random(5)
    with ExitStack() as stack:
        log = stack.enter_context((tmp_path / "log").open("wb"))

        def start():
            found = start_watcher(kafka, store, log, "--by", "describe", "--config", str(settings))
            stack.callback(found.kill)
            return found

        watcher = start()
        names = [f"{protocol}-{killed}" for protocol in GROUPS]
        stay = [consumer(kafka, name, name.partition("-")[0]) for name in names]
        for one in stay:
            stack.callback(one.close)
            one.subscribe(["clicks", "orders"])
        consume(kafka, "gone", "classic", 3, rng=rng)
        until(lambda: "gone" in {one["group_id"] for one in read_store(store, "groups")})
        if killed:
            watcher.kill()
            watcher.wait()
        until(lambda: delete_group(admin, "gone"))  # a broker that has started may load it still
        for one in stay:
            until(lambda one=one: one.poll(0.1) or len(one.assignment()) == sum(TOPICS.values()))
            one.commit(offsets=[ck.TopicPartition("clicks", 3, 7)], asynchronous=False)
        if killed:
            watcher = start()
        for name in names:
            until(
                lambda name=name: stored(store, name) == asked(admin, name) != {},
                lambda name=name: (
                    stored(store, name),
                    asked(admin, name),
                    (tmp_path / "log").read_text(),
                ),
            )
            until(lambda name=name: offsets_shown(store, name) == offsets_asked(admin, name))
        until(lambda: "gone" not in {one["group_id"] for one in read_store(store, "groups")})
        watcher.terminate()
        assert watcher.wait(30) == 0
        before = len(rows(store))
        begun = (tmp_path / "log").read_text().count("muster watches")
        watcher = start()
        until(lambda: (tmp_path / "log").read_text().count("muster watches") > begun)
        time.sleep(4)
        watcher.terminate()
        assert watcher.wait(30) == 0
        assert len(rows(store)) == before, "what is as it was is not written again"
    assert read_store(store, "verify")[0]["sound"] is True


def stored(store, group):
    (found,) = read_store(store, "describe", group)
    return {
        m["memberId"]: sorted(
            (t["topicName"], p) for t in m["assignment"]["topicPartitions"] for p in t["partitions"]
        )
        for m in found["members"]
    }


def asked(admin, group):
    found = admin.describe_consumer_groups([group])[group].result(30)
    return {
        m.member_id: sorted((p.topic, p.partition) for p in m.assignment.topic_partitions)
        for m in found.members
    }


def offsets_shown(store, group):
    (found,) = read_store(store, "describe", group)
    return {(o["topicName"], o["partition"]): o["offset"] for o in found["offsets"]}


def offsets_asked(admin, group):
    wanted = [ck.ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(wanted)[group].result(30)
    return {(p.topic, p.partition): p.offset for p in found.topic_partitions if p.offset >= 0}
