"""What a request comes to: events for the coordinator, then a response."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from coordinator.config.kafka import KafkaConfig
from coordinator.core.bounded import FindVisible
from coordinator.core.events import Answer, Event
from coordinator.core.short_calls import apply
from coordinator.core.state.groups import TopicView
from coordinator.core.state.partition_spans import kafka_id
from coordinator.wire.acls import Acls, Operation, Resource, ResourceType
from coordinator.wire.codec import VERSIONS, Api, Request, Values
from coordinator.wire.session import Session

TOPIC_NAME = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}\Z")
NO_TOPIC_ID = UUID(int=0)
UUID_LETTERS, UUID_QUADS, UUID_BYTES = 22, 6, 16
"""Of a topic id as text; it is read in quads of letters, which have three bytes each."""
Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""
FindOffsets: TypeAlias = Callable[[Mapping[Place, int], int, float], Future[Answer]]
"""From the timestamp of each place, an isolation level, and the seconds there are, to a Result: its
response has the fields of ListOffsets for each place."""
REQUEST_BYTES_LEAST, REQUEST_BYTES_MOST = 1 << 20, 100 << 20
ELEMENTS_LEAST, ELEMENTS_MOST = 100_000, 1_000_000
"""What requests may have, however few and however many topics there are."""
NAMED_A_TOPIC = 8
"""How often a join names a topic: for each of its protocols, subscribed and owned."""
BYTES_A_TOPIC, BYTES_A_PARTITION = 16, 128
"""Beside the name: of a topic; of a partition in the longest request, a commit with metadata."""


class RequestRoom(NamedTuple):
    """How many bytes a request may have, and how many elements its lists."""

    size: int
    elements: int

    @classmethod
    def of(cls, view: TopicView) -> RequestRoom:
        """Return what a member needs that is given every partition there is.

        With less, it could neither confirm nor commit what it has, and would retry endlessly.
        """
        size, partitions = REQUEST_BYTES_LEAST, 0
        for name, topic in view.by_name.items():
            size += NAMED_A_TOPIC * (len(name) + BYTES_A_TOPIC)
            size += topic.partitions * (len(name) + BYTES_A_PARTITION)
            partitions += topic.partitions
        elements = max(ELEMENTS_LEAST, len(view.by_name) + partitions)
        return cls(min(size, REQUEST_BYTES_MOST), min(elements, ELEMENTS_MOST))


class ClusterNode(NamedTuple):
    """A server, as answers name it to clients."""

    node_id: int
    host: str
    port: int


SIXES = np.zeros(128, np.uint8)
"""Of each letter of URL-safe base64, the six bits that it stands for."""
SIXES[list(f"{ascii_uppercase}{ascii_lowercase}{digits}-_".encode())] = range(64)
NO_NODE = ClusterNode(-1, "", -1)


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that clients see: one node coordinates, the others stand by.

    Attributes
    ----------
    host, port
        Where clients find us.
    topics
        Those that exist now.
    serves
        Whether this is the coordinator; not once another has taken the store over.
    stands_by
        Whether this node waits to become the coordinator: it knows nodes and topics, but no groups.
    looks
        By API, what rereads topics or nodes before it is answered; it may take a while.
    coordinator_of
        Who coordinates a group, as far as is known; None where one node coordinates all.
    find_offsets
        Asks the Kafka cluster that has the topics, without waiting; None where none has.
    other_nodes
        The other servers of the store.
    other_coordinator
        Who coordinates if this one does not, as far as that is known.
    kafka
        The settings that Kafka has, too.
    acls
        The access lists that are in force now; None lets everyone do everything.
    note_denial
        Called with what a client asked for and may not do.
    operations
        What may be done with a topic, as bits; None where it is not asked.
    versions
        The lowest and highest version of each API that is served.
    offered
        What clients may ask, if it is not that: others answer some of their requests.
    own, rules
        By API, what answers it in place of what answers it elsewhere, and what it requires there.
    """

    node_id: int
    host: str
    port: int
    cluster_id: str
    topics: Callable[[], TopicView]
    serves: Callable[[], bool]
    stands_by: bool = False
    looks: Mapping[Api, Callable[[], object]] = field(default_factory=dict)
    coordinator_of: Callable[[str], ClusterNode | None] | None = None
    find_offsets: FindOffsets | None = None
    other_nodes: Callable[[], Sequence[ClusterNode]] = tuple
    other_coordinator: Callable[[], ClusterNode | None] = lambda: None
    with_login: bool = False
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    acls: Callable[[], Acls | None] = lambda: None
    note_denial: Callable[[Session, Operation, Resource], object] = lambda *_: None
    operations: Callable[[str], int] | None = None
    versions: Mapping[Api, tuple[int, int]] = field(default_factory=lambda: VERSIONS)
    offered: Callable[[], Mapping[int, tuple[int, int]]] | None = None
    own: Mapping[Api, Callable[[Request, Cluster], Call]] = field(default_factory=dict)
    rules: Mapping[Api, Rule] = field(default_factory=dict)

    @property
    def node(self) -> ClusterNode:
        """The node that answers."""
        return ClusterNode(self.node_id, self.host, self.port)

    def coordinator(self) -> ClusterNode | None:
        """Return who coordinates: this node, another, or None if unknown."""
        return self.node if self.serves() else self.other_coordinator()

    def find_coordinator(self, group_id: str) -> ClusterNode | None:
        """Return who coordinates a group: this node, another, or None if unknown."""
        if self.coordinator_of is None:
            return self.coordinator()
        return self.coordinator_of(group_id)

    @property
    def has_classic_members(self) -> bool:
        """Whether members of classic groups are served."""
        return Api.JOIN_GROUP in self.versions


@dataclass(slots=True)
class Call:
    """How a request is answered: events for the coordinator, or others are asked; then a response.

    Attributes
    ----------
    respond
        From the coordinator's answers, one an event, to the response.
    events
        What the coordinator is asked; of none, the response is ready.
    wait_ms
        How long the answer may be held back: nothing will come of it sooner.
    later
        Asks another server than the coordinator, without waiting; the future has the one answer.
    refusal
        Why the client has come to the wrong place, for the log; "" where it has not.
    """

    respond: Callable[[Sequence[Answer]], Values]
    events: Sequence[Event] = field(default=())
    wait_ms: int = 0
    refusal: str = ""
    later: Callable[[], Future[Answer]] | None = None


Rule: TypeAlias = Callable[[Request, Cluster, Any], Call]
"""From a request and what its principal may do (`item_rules.Permissions`) to the call of what is
allowed of it."""


def respond_with(values: Values, wait_ms: int = 0, refusal: str = "") -> Call:
    """Return a call whose response is known."""
    return Call(lambda _: values, wait_ms=wait_ms, refusal=refusal)


def visible_to(session: Session, cluster: Cluster) -> FindVisible | None:
    """Return what finds the topics that a client may describe; None where there are no lists."""
    if cluster.acls() is None:
        return None

    def find(names: Collection[str]) -> Collection[str]:
        acls = cluster.acls()
        if acls is None:
            return names
        who = session.principal, session.host
        topics = [Resource(ResourceType.TOPIC, name) for name in names]
        return [one.name for one in topics if acls.allows(*who, Operation.DESCRIBE, one)]

    return find


def is_valid_topic(name: str) -> bool:
    """Whether Kafka lets a topic be called so."""
    return TOPIC_NAME.match(name) is not None


@lru_cache(maxsize=100_000)
def to_uuid(topic_id: str) -> UUID:
    """Return a topic id as it goes over the wire."""
    return UUID(bytes=base64.urlsafe_b64decode(kafka_id(topic_id) + "=="))


def list_uuids(topic_ids: Sequence[str]) -> NDArray[np.void]:
    """Return very many topic ids as they go over the wire, sixteen bytes each."""
    text = "".join(apply(kafka_id, topic_ids)).encode()
    letters = np.zeros((len(topic_ids), 4 * UUID_QUADS), np.uint8)
    letters[:, :UUID_LETTERS] = SIXES[np.frombuffer(text, np.uint8)].reshape(-1, UUID_LETTERS)
    quads = letters.reshape(len(topic_ids), UUID_QUADS, 4)
    one, two, three, four = (quads[:, :, place] for place in range(4))
    triples = np.stack([one << 2 | two >> 4, two << 4 | three >> 2, three << 6 | four], axis=2)
    raw = np.ascontiguousarray(triples.reshape(len(topic_ids), -1)[:, :UUID_BYTES])
    return raw.view(f"V{UUID_BYTES}").ravel()


@lru_cache(maxsize=100_000)
def from_uuid(uuid: UUID | None) -> str:
    """Return a topic id from the wire as Kafka prints it; kio's None is the zero id."""
    return base64.urlsafe_b64encode((uuid or NO_TOPIC_ID).bytes).decode().rstrip("=")
