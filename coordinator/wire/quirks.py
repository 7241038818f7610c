"""What single clients need beyond Kafka's protocol, and what is done for them.

Each quirk is written here alone, with whose it is; the code that heeds it uses what is defined
beside it. Remove a quirk when no tested client has it any longer (docs/guide/serving.md).

The issues of librdkafka and Kafka were searched for each. Those without an issue were seen with
tested clients and have the client's source only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from coordinator.core.events import Heartbeat

JAVA, LIBRDKAFKA = "kafka-clients (Java)", "librdkafka"


class Quirk(NamedTuple):
    """What a client does.

    Attributes
    ----------
    versions
        Those that were seen to do it.
    does, heeded
        What it does, and what is done about it.
    source
        The client's code that does it: repository, file, and function.
    issue
        Where it is discussed in public; None where a search of the client's issues found nothing.
    """

    client: str
    versions: str
    does: str
    heeded: str
    source: str
    issue: str | None = None


NEEDS_PRODUCE = Quirk(
    LIBRDKAFKA,
    "2.x",
    "does not fetch from a node without Produce, and keeps a core busy instead",
    "Produce is offered, and refused",
    "confluentinc/librdkafka src/rdkafka_feature.c rd_kafka_feature_map: MsgVer2 needs Produce 3",
)
PRODUCE_VERSIONS = (3, 12)

NEEDS_METADATA_12 = Quirk(
    LIBRDKAFKA,
    "2.x, in consumer groups",
    "aborts its process if the highest version of Metadata is below 12",
    "Metadata is offered up to 13",
    "confluentinc/librdkafka src/rdkafka_request.c rd_kafka_MetadataRequest0: rd_assert",
)
METADATA_VERSIONS = (0, 13)

NEEDS_HANDSHAKE_0 = Quirk(
    LIBRDKAFKA,
    "2.0, as in Debian's kcat",
    "logs in by version 1 of SaslHandshake only if 0 is offered too",
    "0 is offered, and refused",
    "confluentinc/librdkafka src/rdkafka_feature.c rd_kafka_feature_map: SaslHandshake 0",
    "https://github.com/confluentinc/librdkafka/pull/4983",
)
HANDSHAKE_VERSIONS = (0, 1)

NEEDS_LOG_FOLDER = Quirk(
    JAVA,
    "4.4.0",
    "takes an answer to DescribeLogDirs without folders for a refusal",
    "one folder that holds nothing",
    "apache/kafka clients/src/main/java/org/apache/kafka/clients/admin/KafkaAdminClient.java "
    "describeLogDirs",
    "https://issues.apache.org/jira/browse/KAFKA-13527",
)
LOG_FOLDERS = ({"error_code": ErrorCode.none, "log_dir": "none", "topics": ()},)

NAMES_NOTHING = Quirk(
    JAVA,
    "4.4.0, with a regular expression",
    "asks Metadata for a topic by its id, and says beside it that the name is empty, not null",
    "an id counts, and the name beside it is ignored",
    "apache/kafka clients/src/main/java/org/apache/kafka/common/requests/MetadataRequest.java "
    "convertTopicIdsToMetadataRequestTopic: sets no name, whose default is empty",
    "https://issues.apache.org/jira/browse/KAFKA-18117",
)


def ask_by_id(one: object) -> Any:  # noqa: ANN401 - kio's, a UUID
    """Return the id by which Metadata is asked for a topic; None if it is by name."""
    return getattr(one, "topic_id", None)


FORGETS_LOST_ANSWERS = Quirk(
    LIBRDKAFKA,
    "2.x, in consumer groups",
    "carries on after a lost connection as if the lost answer had changed nothing, although "
    "it may have revoked partitions",
    "the first answer of a connection brings the assignment",
    "confluentinc/librdkafka src/rdkafka_cgrp.c rd_kafka_cgrp_handle_ConsumerGroupHeartbeat: "
    "after ERR__TRANSPORT it looks for the coordinator, and sends no full request",
)
OWNS_NOTHING_YET = Quirk(
    f"{LIBRDKAFKA}, {JAVA}",
    "2.x, in the second heartbeat; 4.4.0, while it looks up names of topics",
    "reports that it owns nothing while it takes over what the last answer assigned; if that "
    "counted as a release, as in Kafka, another member could get the same partitions",
    "the report counts as if it did not name what the member owns",
    "apache/kafka clients/src/main/java/org/apache/kafka/clients/consumer/internals/"
    "AbstractMembershipManager.java maybeReconcile: takes over what has a name so far",
    "https://issues.apache.org/jira/browse/KAFKA-16198",
)


def read_in_conversation(event: Heartbeat, brought: bool | None) -> Heartbeat:  # noqa: FBT001
    """Return what a heartbeat means on its connection. Other clients notice nothing of it.

    Parameters
    ----------
    brought
        Whether the last answer brought partitions; None if it would be the first one.
    """
    if brought is None:
        return replace(event, wants_assignment=True)
    owned = event.topic_partitions
    if brought and owned is not None and not any(owned.values()):
        return replace(event, topic_partitions=None)
    return event


ASKS_ONLY_FOR_ENDS = Quirk(
    f"{LIBRDKAFKA}, which Muster asks a cluster with",
    "2.16",
    "cannot ask ListOffsets for the special times below the largest one, such as tiered storage",
    "refused as unsupported",
    "confluentinc/librdkafka src/rdkafka.h rd_kafka_OffsetSpec_t: ends at -3",
    "https://github.com/confluentinc/librdkafka/pull/4225",
)
UNASKABLE = ErrorCode.unsupported_version
