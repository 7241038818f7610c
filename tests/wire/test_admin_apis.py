"""What operators' tools ask of any Kafka, where this node has nothing to tell (B2)."""

from __future__ import annotations

import pytest

from coordinator.wire.codec import Api
from tests.support.wire_side import NONE, UNKNOWN_TOPIC, side

__all__ = ["side"]


def test_no_partition_is_moved(side):
    """kafka-topics --describe asks for it."""
    answer = side.ask(Api.LIST_PARTITION_REASSIGNMENTS, 0, topics=None)
    assert (int(answer.error_code), answer.topics) == (NONE, ())


@pytest.mark.parametrize("version", range(1, 6))
def test_no_folder_holds_records(side, version):
    answer = side.ask(Api.DESCRIBE_LOG_DIRS, version, topics=None)
    (folder,) = answer.results  # of none, the Java client says that it has no right to see any
    assert (folder.log_dir, folder.topics, int(folder.error_code)) == ("none", (), NONE)
    assert int(getattr(answer, "error_code", NONE)) == NONE


@pytest.mark.parametrize("version", range(3))
def test_no_transaction_is_there(side, version):
    answer = side.ask(Api.LIST_TRANSACTIONS, version, state_filters=["Ongoing", "Odd"])
    assert (int(answer.error_code), answer.transaction_states) == (NONE, ())
    assert answer.unknown_state_filters == ("Odd",)


@pytest.mark.parametrize("version", range(3))
def test_this_node_is_the_quorum(side, version):
    asked = [
        {"topic_name": name, "partitions": [{"partition_index": p} for p in (0, 1)]}
        for name in ("__cluster_metadata", "clicks")
    ]
    answer = side.ask(Api.DESCRIBE_QUORUM, version, topics=asked)
    assert int(answer.error_code) == NONE
    known, *unknown = [one for topic in answer.topics for one in topic.partitions]
    assert (int(known.error_code), known.leader_id) == (NONE, 7)
    assert [one.replica_id for one in known.current_voters] == [7]
    assert [(int(one.error_code), one.leader_id) for one in unknown] == [(UNKNOWN_TOPIC, -1)] * 3
    if version >= 2:
        ((listener,),) = [node.listeners for node in answer.nodes]
        assert (listener.host, listener.port) == ("here", 9092)
