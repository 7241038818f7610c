"""Admin APIs that have nothing to report on this node.

It moves no replicas, has no folders of records and no transactions, and is the whole quorum itself.
"""

from __future__ import annotations

from collections.abc import Callable

from kio.schema.errors import ErrorCode

from coordinator.core.consumer.regexes import check_regex
from coordinator.errors import GroupError
from coordinator.wire import quirks
from coordinator.wire.call import Call, Cluster, respond_with
from coordinator.wire.codec import Api, Request

METADATA_LOG = "__cluster_metadata"
TRANSACTION_STATES = {
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
}


def list_partition_reassignments(_request: Request, _cluster: Cluster) -> Call:
    """ListPartitionReassignments: none is under way."""
    return respond_with({"error_code": ErrorCode.none, "error_message": None, "topics": ()})


def describe_log_dirs(_request: Request, _cluster: Cluster) -> Call:
    """DescribeLogDirs: nothing is in them."""
    return respond_with({"error_code": ErrorCode.none, "results": quirks.LOG_FOLDERS})


def list_transactions(request: Request, _cluster: Cluster) -> Call:
    """ListTransactions: an empty list; unknown states are named, wrong patterns refused."""
    asked = dict.fromkeys(request.body.state_filters)
    unknown = [one for one in asked if one not in TRANSACTION_STATES]
    try:
        check_regex(getattr(request.body, "transactional_id_pattern", None) or "")
    except GroupError as refused:
        return respond_with(
            {
                "error_code": refused.code,
                "unknown_state_filters": (),
                "transaction_states": (),
            }
        )
    return respond_with(
        {
            "error_code": ErrorCode.none,
            "unknown_state_filters": unknown,
            "transaction_states": (),
        }
    )


def describe_quorum(request: Request, cluster: Cluster) -> Call:
    """DescribeQuorum: this node alone leads and votes.

    Kafka tells of its one partition alone: beside any other it is as unknown as that one.
    """
    asked = [
        (topic.topic_name, [one.partition_index for one in topic.partitions])
        for topic in request.body.topics
    ]
    known = asked == [(METADATA_LOG, [0])]
    here = {"replica_id": cluster.node_id, "replica_directory_id": None, "log_end_offset": 0}

    def partition(index: int) -> dict[str, object]:
        return {
            "partition_index": index,
            "error_code": ErrorCode.none if known else ErrorCode.unknown_topic_or_partition,
            "error_message": None,
            "leader_id": cluster.node_id if known else 0,
            "leader_epoch": 0,
            "high_watermark": 0,
            "current_voters": [here] if known else (),
            "observers": (),
        }

    topics = [
        {"topic_name": name, "partitions": [partition(index) for index in indexes]}
        for name, indexes in asked
    ]
    listener = {"name": "MUSTER", "host": cluster.host, "port": cluster.port}
    return respond_with(
        {
            "error_code": ErrorCode.none,
            "error_message": None,
            "topics": topics,
            "nodes": [{"node_id": cluster.node_id, "listeners": [listener]}] if known else (),
        }
    )


HANDLERS: dict[Api, Callable[[Request, Cluster], Call]] = {
    Api.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs,
    Api.LIST_TRANSACTIONS: list_transactions,
    Api.DESCRIBE_QUORUM: describe_quorum,
}
