"""Followers and readers get what they ask: at once, or as soon as it is there."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from uuid import UUID

import pytest

from coordinator.kraft.batch_writer import Change, KeyValue
from coordinator.kraft.leading import MARK_MAX
from coordinator.kraft.registration import TOPIC
from coordinator.kraft.replica_apis import Leaders, ReplicaApis
from coordinator.wire.codec import Api, Request, encode

from .leads import OTHER, TOPIC_ID, Led

CHANGE = [Change([KeyValue(b"key", b"value")], 1_000)]


class Asked:
    """A node that leads partition 3 of the topic, and not 4, and what it is asked."""

    def __init__(self, folder):
        self.pair = Led(folder, commit_s=20)
        self.pair.follower.follows = False
        self.led = self.pair.elect()
        known = {3: (1001, self.led.epoch), 4: (2, 9)}
        self.leaders = Leaders(TOPIC_ID, {3: self.led}, known)
        self.apis = ReplicaApis(lambda: self.leaders)
        self.led.changed = self.apis.wake

    def fetch(self, offset=0, number=3, replica=OTHER, wait_ms=5_000, mark=MARK_MAX, **given):
        part = {
            "partition": number, "current_leader_epoch": -1, "fetch_offset": offset,
            "last_fetched_epoch": -1, "partition_max_bytes": 1 << 20, "high_watermark": mark,
        }  # fmt: skip
        topic = SimpleNamespace(
            topic_id=given.pop("topic_id", TOPIC_ID), partitions=[SimpleNamespace(**part | given)]
        )
        body = SimpleNamespace(
            replica_state=SimpleNamespace(replica_id=replica, replica_epoch=11),
            max_wait=timedelta(milliseconds=wait_ms), min_bytes=1, max_bytes=1 << 20,
            topics=[topic],
        )  # fmt: skip
        request = Request(Api.FETCH, 18, 1, body=body)
        return request, self.apis.handlers()[Api.FETCH](request, None)

    async def answer(self, *args, **given):
        request, call = self.fetch(*args, **given)
        answers = () if call.later is None else [await asyncio.wrap_future(call.later())]
        values = call.respond(answers)
        assert encode(request, values)
        return values["responses"][0]["partitions"][0]

    def append(self):
        """Append, in a thread, as a coordinator does."""
        return asyncio.create_task(asyncio.to_thread(self.led.append, CHANGE))


def run(folder, work):
    async def begin():
        async with asyncio.timeout(20):
            await work(Asked(folder))

    asyncio.run(begin())


def test_a_fetch_waits_for_an_append_and_acknowledges_it_by_the_next(tmp_path):
    async def work(asked):
        waiting = asyncio.create_task(asked.answer())
        await asyncio.sleep(0)
        appended = asked.append()
        found = await waiting
        assert found["records"] == asked.pair.file.read(0, 1 << 20)
        assert found["high_watermark"] == 0
        assert not appended.done()
        found = await asked.answer(1, wait_ms=0)
        assert found["records"] == b""
        assert found["high_watermark"] == 1
        assert await appended == 1

    run(tmp_path, work)


def test_a_new_high_watermark_wakes_who_knows_an_older_one(tmp_path):
    async def work(asked):
        appended = asked.append()
        await asked.answer(mark=0)
        found = await asked.answer(1, mark=0)
        assert found["high_watermark"] == 1
        assert await appended == 1

    run(tmp_path, work)


def test_a_fetch_ends_with_its_time_and_with_the_epoch(tmp_path):
    async def work(asked):
        assert (await asked.answer(wait_ms=20))["records"] == b""
        waiting = asyncio.create_task(asked.answer())
        await asyncio.sleep(0.01)
        asked.led.stop()
        assert (await waiting)["error_code"] == 6

    run(tmp_path, work)


def test_readers_get_what_counts(tmp_path):
    async def work(asked):
        appended = asked.append()
        await asked.answer(mark=0)
        assert (await asked.answer(replica=-1, wait_ms=20))["records"] == b""
        await asked.answer(1, wait_ms=0)
        assert (await asked.answer(replica=-1))["records"]
        await appended

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"number": 4}, 6),
        ({"number": 9}, 3),
        ({"topic_id": UUID(int=8)}, 100),
        ({"offset": 5}, 1),
        ({"current_leader_epoch": 4}, 74),
        ({"current_leader_epoch": 6}, 75),
        ({"last_fetched_epoch": 9}, 1),
    ],
)
def test_what_cannot_be_fetched_is_refused_at_once(tmp_path, given, code):
    async def work(asked):
        found = await asked.answer(**given)
        assert found["error_code"] == code
        if code == 6:
            assert found["current_leader"] == {"leader_id": 2, "leader_epoch": 9}

    run(tmp_path, work)


def test_offsets_and_epochs(tmp_path):
    async def work(asked):
        asked.pair.follower.follows = True
        asked.led.changed = asked.pair.follower.pull
        asked.led.append(CHANGE)

        def ask(api, version, **part):
            names = {"name": TOPIC, "topic": TOPIC, "partitions": [SimpleNamespace(**part)]}
            body = SimpleNamespace(replica_id=1, topics=[SimpleNamespace(**names)])
            request = Request(api, version, 1, body=body)
            values = asked.apis.handlers()[api](request, None).respond(())
            assert encode(request, values)
            return values["topics"][0]["partitions"][0]

        for at, offset in ((-1, 1), (-2, 0), (-4, 0)):
            found = ask(Api.LIST_OFFSETS, 11, partition_index=3, timestamp=at)
            assert (found["error_code"], found["offset"]) == (0, offset)
        assert ask(Api.LIST_OFFSETS, 11, partition_index=3, timestamp=5)["error_code"] == 35
        assert ask(Api.LIST_OFFSETS, 11, partition_index=4, timestamp=-1)["error_code"] == 6
        found = ask(Api.OFFSET_FOR_LEADER_EPOCH, 4, partition=3, leader_epoch=asked.led.epoch)
        assert (found["leader_epoch"], found["end_offset"]) == (asked.led.epoch, 1)
        assert ask(Api.OFFSET_FOR_LEADER_EPOCH, 4, partition=4, leader_epoch=1)["error_code"] == 6

    run(tmp_path, work)
