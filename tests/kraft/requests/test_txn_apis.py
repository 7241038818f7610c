"""What producers, and the coordinators of their transactions, ask a node, and what it answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode as Code

from coordinator.core.events import Heartbeat, OffsetFetch
from coordinator.core.java_hash import place_of
from coordinator.errors import ErrorCode, GroupError
from coordinator.kraft.metadata_image import Endpoint
from coordinator.kraft.registration import TOPIC
from coordinator.kraft.replica_apis import Leaders
from coordinator.kraft.requests.txn_apis import TRANSACTIONS, TransactionApis
from coordinator.wire.call import to_uuid
from coordinator.wire.codec import Api, Request, decode, encode
from tests.kraft.leads import TOPIC_ID
from tests.kraft.test_transactions import UNSTABLE, Node
from tests.support.wire_client import read_response, request_frame

from .nodes import GROUP, READ, TRANSACTION, WRITE, Person, allow
from .nodes import TOPIC as RESOURCE_TOPIC

COUNT, LED = 5, place_of("g", 5)
AT = ("broker", 9092)


class Groups(Node):
    """A node that leads the partition of group g, of five."""

    def __init__(self, folder):
        super().__init__(folder)
        self.elect()
        self.is_loading = False

    @property
    def leaders(self):
        known = dict.fromkeys(range(COUNT), (1, 1))
        return Leaders(TOPIC_ID, {LED: self.led}, known)

    def find_at(self, number):
        if number != LED:
            return GroupError(ErrorCode.NOT_COORDINATOR, "another")
        if self.is_loading:
            return GroupError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "later")
        return self.coordinator._loop

    def submit(self, events):
        return self.coordinator._loop.submit(events)


class Asked:
    """A node, the coordinator of transactions that it asks, and those who ask it."""

    def __init__(self, folder):
        self.groups = Groups(folder)
        self.asked, self.verdict, self.failure = [], Code.none, None
        self.meanwhile = None
        self.settings = SimpleNamespace(tls=None, login=None, servers=[AT])
        broker = SimpleNamespace(endpoints=[Endpoint("PLAINTEXT", *AT, 0)])
        states = SimpleNamespace(partitions={n: SimpleNamespace(leader=n) for n in range(3)})
        self.topics = {TRANSACTIONS: states}
        self.image = SimpleNamespace(
            topic=self.topics.get, brokers={place_of("tx", 3): broker, 9: broker}
        )
        self.apis = TransactionApis(self.groups, self, lambda: self.image)

    async def ask(self, address, api, *, transactions):
        """As `Links`: what the coordinator of transactions answers."""
        assert (address, api) == (AT, Api.ADD_PARTITIONS_TO_TXN)
        self.asked += transactions
        verdict = self.verdict
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.failure is not None:
            raise self.failure
        (one,) = transactions[0]["topics"]
        done = [SimpleNamespace(partition_error_code=verdict) for _ in one["partitions"]]
        topics = [SimpleNamespace(results_by_partition=done)]
        return SimpleNamespace(
            error_code=Code.none, results_by_transaction=[SimpleNamespace(topic_results=topics)]
        )

    async def close(self):
        """As `Links`."""

    async def answer(self, api, version, body):
        cluster = SimpleNamespace(topics=lambda: self.groups.coordinator.topics)
        request = Request(api, version, 1, body=body)
        call = self.apis.handlers()[api](request, cluster)
        answers = () if call.later is None else [await asyncio.wrap_future(call.later())]
        values = call.respond(answers)
        assert encode(request, values)
        return values

    async def commit(self, version=5, topic="orders", partition=0, **given):
        """The error of TxnOffsetCommit of one partition."""
        one = SimpleNamespace(
            partition_index=partition, committed_offset=5, committed_metadata=None,
            committed_leader_epoch=-1,
        )  # fmt: skip
        usual = {
            "transactional_id": "tx", "group_id": "g", "producer_id": 7, "producer_epoch": 0,
            "topics": [self.named(version, topic, [one])],
        }  # fmt: skip
        if version >= 3:
            usual |= {"generation_id": -1, "member_id": "", "group_instance_id": None}
        values = await self.answer(Api.TXN_OFFSET_COMMIT, version, SimpleNamespace(**usual | given))
        return values["topics"][0]["partitions"][0]["error_code"]

    def named(self, version, topic, partitions):
        """A topic as a version of the request names it."""
        if version < 6:
            return SimpleNamespace(name=topic, partitions=partitions)
        known = self.groups.coordinator.topics.by_name.get(topic)
        topic_id = to_uuid(known.key.topic_id) if known else UUID(int=9)
        return SimpleNamespace(topic_id=topic_id, partitions=partitions)

    async def end(self, *numbers, version=2, topic=TOPIC, **given):
        """The errors of WriteTxnMarkers of some partitions, one marker."""
        usual = {
            "producer_id": 7, "producer_epoch": 0, "transaction_result": True,
            "coordinator_epoch": 0,
            "topics": [SimpleNamespace(name=topic, partition_indexes=numbers or [LED])],
        }  # fmt: skip
        body = SimpleNamespace(markers=[SimpleNamespace(**usual | given)])
        values = await self.answer(Api.WRITE_TXN_MARKERS, version, body)
        return [int(one["error_code"]) for one in values["markers"][0]["topics"][0]["partitions"]]

    def offset(self):
        return self.groups.run(OffsetFetch("g", {"orders": [0]}))["orders"][0]


def run(folder, work):
    async def begin():
        asked = Asked(folder / "p")
        try:
            async with asyncio.timeout(20):
                await work(asked)
        finally:
            asked.apis.close()
            asked.groups.resign()

    asyncio.run(begin())


@pytest.mark.parametrize("version", range(7))
def test_offsets_wait_for_the_end_of_their_transaction(tmp_path, version):
    async def work(asked):
        assert await asked.commit(version) == 0
        assert await asked.commit(version, partition=1) == 0
        assert asked.asked == [
            {
                "transactional_id": "tx", "producer_id": 7, "producer_epoch": 0,
                "verify_only": version < 5, "topics": [{"name": TOPIC, "partitions": [LED]}],
            }
        ], "the coordinator of the transaction is asked once"  # fmt: skip
        assert asked.groups.answers()["g", 0] == (None, UNSTABLE)
        assert await asked.end() == [0]
        assert asked.groups.answers()["g", 0] == (5, 5)

    run(tmp_path, work)


STALE = {
    "no member": ({"member_id": "m", "generation_id": 3}, Code.unknown_member_id),
    "another epoch": ({"member_id": "own", "generation_id": 99}, Code.stale_member_epoch),
    "no group": ({"group_id": "g0", "member_id": "m", "generation_id": 3}, Code.group_id_not_found),
}


@pytest.mark.parametrize(("given", "code"), STALE.values(), ids=STALE)
def test_errors_that_came_with_version_6(tmp_path, given, code):
    """Before, a client knew one code for a wrong epoch and for a group that is gone."""

    async def work(asked):
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["orders"]}
        asked.groups.run(Heartbeat("g", "own", 0, topic_partitions={}, **joins))
        assert await asked.commit(6, **given) == code
        known = code if code == Code.unknown_member_id else Code.illegal_generation
        assert await asked.commit(5, **given) == known
        assert await asked.commit(6, topic="nowhere") == Code.unknown_topic_id
        assert await asked.commit(6, partition=99) == Code.unknown_topic_or_partition

    run(tmp_path, work)


def test_version_6_is_read_and_written():
    """As version 5 but for the topic, whose id takes the name's place."""
    partition = {
        "partition_index": 1, "committed_offset": 5, "committed_leader_epoch": -1,
        "committed_metadata": "x",
    }  # fmt: skip
    words = {
        "transactional_id": "tx", "group_id": "g", "producer_id": 7, "producer_epoch": 0,
        "generation_id": 3, "member_id": "m", "group_instance_id": None,
        "topics": [{"name": "t" * 15, "topic_id": UUID(int=1), "partitions": [partition]}],
    }  # fmt: skip
    five, six = (request_frame(Api.TXN_OFFSET_COMMIT, v, **words)[8:] for v in (5, 6))
    assert six == five.replace(b"\x10" + b"t" * 15, UUID(int=1).bytes)
    versions = {Api.TXN_OFFSET_COMMIT: (0, 6)}
    request = decode(request_frame(Api.TXN_OFFSET_COMMIT, 6, **words)[4:], versions=versions)
    (topic,) = request.body.topics
    assert (topic.topic_id, topic.partitions[0].committed_offset) == (UUID(int=1), 5)
    outcome = [{"partition_index": 1, "error_code": Code.unknown_topic_id}]
    values = {"topics": [{"name": None, "topic_id": UUID(int=1), "partitions": outcome}]}
    _, found = read_response(encode(request, values), Api.TXN_OFFSET_COMMIT, 6)
    assert found.topics[0].topic_id == UUID(int=1)
    assert found.topics[0].partitions[0].error_code is Code.unknown_topic_id


VERDICTS = {
    "fenced": (Code.producer_fenced, 5, Code.invalid_producer_epoch),
    "older": (Code.invalid_producer_epoch, 5, Code.invalid_producer_epoch),
    "not part of it": (Code.invalid_txn_state, 4, Code.invalid_txn_state),
    "abortable": (Code.transaction_abortable, 4, Code.transaction_abortable),
    "abortable, to an old client": (Code.transaction_abortable, 3, Code.invalid_txn_state),
    "busy": (Code.concurrent_transactions, 5, Code.concurrent_transactions),
    "another coordinator": (Code.not_coordinator, 5, Code.not_coordinator),
    "unknown": (Code.invalid_producer_id_mapping, 5, Code.invalid_producer_id_mapping),
    "not allowed to ask": (Code.cluster_authorization_failed, 5, Code.invalid_txn_state),
}


@pytest.mark.parametrize(("verdict", "version", "code"), VERDICTS.values(), ids=VERDICTS)
def test_what_is_not_verified_is_not_written(tmp_path, verdict, version, code):
    async def work(asked):
        asked.verdict = verdict
        assert await asked.commit(version) is code
        assert not asked.groups.pair.follower.raw
        asked.verdict = Code.none
        assert await asked.commit(version) == 0

    run(tmp_path, work)


def test_a_coordinator_that_cannot_be_asked(tmp_path):
    async def work(asked):
        asked.failure = ConnectionError("gone")
        assert await asked.commit() is Code.coordinator_load_in_progress
        assert await asked.commit(1) is Code.coordinator_not_available, "older clients know that"
        asked.failure = None
        assert await asked.commit(transactional_id="other") is Code.coordinator_not_available
        del asked.topics[TRANSACTIONS]
        assert await asked.commit() is Code.coordinator_not_available
        assert not asked.groups.pair.follower.raw

    run(tmp_path, work)


def test_a_transaction_that_ends_while_it_is_verified_takes_nothing_more(tmp_path):
    async def work(asked):
        async def abort():
            asked.meanwhile = None
            assert await asked.end(transaction_result=False) == [0]
            asked.verdict = Code.invalid_txn_state

        asked.meanwhile = abort
        assert await asked.commit(4) is Code.invalid_txn_state
        assert len(asked.asked) == 2, "it is asked again"
        assert asked.offset() is None

    run(tmp_path, work)


def test_transactions_that_end_each_time_are_given_up(tmp_path):
    async def work(asked):
        async def abort():
            assert await asked.end(transaction_result=False) == [0]

        asked.meanwhile = abort
        assert await asked.commit() is Code.coordinator_load_in_progress

    run(tmp_path, work)


REFUSED = {
    "a producer below 0": ({"producer_id": -1}, Code.invalid_producer_id_mapping),
    "an epoch below 0": ({"producer_epoch": -1}, Code.invalid_producer_id_mapping),
    "no group": ({"group_id": ""}, Code.invalid_group_id),
    "a topic that is not there": ({"topic": "none"}, Code.unknown_topic_or_partition),
    "a partition that is not there": ({"partition": 2}, Code.unknown_topic_or_partition),
    "a member that is not there": ({"member_id": "m"}, Code.unknown_member_id),
    "a generation": ({"generation_id": 3}, Code.illegal_generation),
}


@pytest.mark.parametrize(("given", "code"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(tmp_path, given, code):
    async def work(asked):
        if code is Code.unknown_member_id:
            asked.groups.coordinator.consumer_group_heartbeat(
                group_id="g", member_id="other", member_epoch=0, rebalance_timeout_ms=60_000,
                subscribed_topic_names=["orders"], topic_partitions={},
            )  # fmt: skip
        assert await asked.commit(**given) == code

    run(tmp_path, work)


# Markers -----------------------------------------------------------------------------------------


def test_markers_go_where_the_node_leads(tmp_path):
    async def work(asked):
        others = [number for number in range(COUNT) if number != LED]
        assert await asked.end(LED, *others, 99) == [0, *[6] * len(others), 3]
        assert await asked.end(0, topic="orders") == [3]
        assert await asked.end(LED, producer_id=-1) == [49]
        asked.groups.is_loading = True
        assert await asked.end() == [6], "the coordinator of transactions knows no other error"

    run(tmp_path, work)


def test_markers_that_are_late_or_old(tmp_path):
    async def work(asked):
        assert await asked.commit(producer_epoch=3) == 0
        assert await asked.end(producer_epoch=2) == [47]
        assert await asked.end(producer_epoch=3, transaction_version=2) == [47]
        assert await asked.end(producer_epoch=4, transaction_version=2, coordinator_epoch=5) == [0]
        assert await asked.end(producer_epoch=4, transaction_version=2, coordinator_epoch=5) == [0]
        assert await asked.end(producer_epoch=4, coordinator_epoch=4) == [52]
        assert asked.offset().offset == 5

    run(tmp_path, work)


# Over the wire -----------------------------------------------------------------------------------


def over_the_wire(client, node, group):
    place = {
        "partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1,
        "committed_metadata": None,
    }  # fmt: skip
    found = client.ask(
        Api.TXN_OFFSET_COMMIT, transactional_id="tx", group_id=group, producer_id=7,
        producer_epoch=2, generation_id=-1, member_id="", group_instance_id=None,
        topics=[{"topic_id": node.image.topic_ids["orders"], "partitions": [place]}],
    )  # fmt: skip
    return int(found.topics[0].partitions[0].error_code)


def test_a_producer_needs_rights(secured):
    group = secured.group()
    with Person(secured, "ann") as ann:
        assert over_the_wire(ann, secured, group) == 53
        allow(secured, "User:ann", TRANSACTION, "tx", WRITE)
        assert over_the_wire(ann, secured, group) == 30
        allow(secured, "User:ann", GROUP, group, READ)
        assert over_the_wire(ann, secured, group) == 29
        allow(secured, "User:ann", RESOURCE_TOPIC, "orders", READ)
        assert over_the_wire(ann, secured, group) == 15, "no broker leads __transaction_state"


def test_markers_over_the_wire(plain):
    marker = {
        "producer_id": 7, "producer_epoch": 1, "transaction_result": True, "coordinator_epoch": 0,
        "transaction_version": 2, "topics": [{"name": TOPIC, "partition_indexes": [0, 1]}],
    }  # fmt: skip
    with Person(plain, None) as broker:
        for _ in range(2):
            ended = broker.ask(Api.WRITE_TXN_MARKERS, markers=[marker])
            found = ended.markers[0].topics[0].partitions
            assert [int(one.error_code) for one in found] == [0, 6]


def test_very_many_markers_are_answered(tmp_path):
    async def work(asked):
        markers = [
            SimpleNamespace(
                producer_id=one, producer_epoch=0, transaction_result=False, coordinator_epoch=0,
                topics=[SimpleNamespace(name=TOPIC, partition_indexes=[LED])],
            )
            for one in range(2_000)
        ]  # fmt: skip
        values = await asked.answer(Api.WRITE_TXN_MARKERS, 1, SimpleNamespace(markers=markers))
        codes = {one["topics"][0]["partitions"][0]["error_code"] for one in values["markers"]}
        assert (codes, len(values["markers"])) == ({Code.none}, 2_000)
        assert len(asked.groups.coordinator._processor.state.transactions.producers) == 2_000

    run(tmp_path, work)
