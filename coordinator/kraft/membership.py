"""What a node is given and gives back, and what may be in its way: plans and checks. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from coordinator.config import ConfigError
from coordinator.kraft.metadata_image import METADATA_VERSION, MetadataImage
from coordinator.kraft.metadata_image import TOPIC as TOPIC_SETTINGS
from coordinator.kraft.registration import (
    METADATA_LEVELS,
    TOPIC,
    can_cordon,
    choose_rack,
    find_replicas,
    find_strays,
)

ELR_FEATURE = "eligible.leader.replicas.version"
STRIMZI = frozenset({"CONTROLPLANE-9090", "REPLICATION-9091"})
"""Names of the listeners that Strimzi gives to every broker."""
CRUISE_CONTROL = "__CruiseControlMetrics"
FEW_BROKERS = 2
OK, WARNING, BAD = "ok", "warning", "bad"
RIGHTS = {
    9: ("CLUSTER_ACTION", "registers, reads the metadata, follows leaders"),
    8: ("DESCRIBE", "finds the active controller"),
    7: ("ALTER", "moves replicas in `join` and `leave`, and unregisters"),
}
"""Operations on the cluster, in Kafka's numbers, and what a node does by each."""


class Move(NamedTuple):
    """A change of a partition's replicas."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]


class Finding(NamedTuple):
    """What a check found.

    Attributes
    ----------
    level
        ok, warning, or bad: a node would not work, or would do harm.
    """

    level: str
    subject: str
    says: str


def plan_join(image: MetadataImage, node_id: int, partitions: Collection[int]) -> list[Move]:
    """Return how a node becomes the last replica of partitions of the topic of groups.

    As the last one, it is the last that controllers choose as a leader.

    Raises
    ------
    ConfigError
        The node is not there, or a partition is not.
    """
    check_is_alive(image, node_id)
    topic = image.topic(TOPIC)
    if topic is None:
        raise ConfigError(
            f"the cluster has no topic {TOPIC} yet: it is made when the first group comes"
        )
    if unknown := set(partitions) - topic.partitions.keys():
        raise ConfigError(
            f"--partitions has {min(unknown)}: {TOPIC} has 0 to {len(topic.partitions) - 1}"
        )
    moves = []
    for number in sorted(partitions):
        one = topic.partitions[number]
        if one.adding or one.removing:
            raise ConfigError(
                f"{TOPIC}-{number} is being reassigned already: wait for that, or cancel it"
            )
        if node_id not in one.replicas:
            moves.append(Move(TOPIC, number, one.replicas, (*one.replicas, node_id)))
    return moves


def plan_order(
    image: MetadataImage, node_id: int, partitions: Collection[int], *, leads: bool
) -> list[Move]:
    """Return how a node becomes the first replica of partitions, which leads; or the last one.

    Raises
    ------
    ConfigError
        It is not a replica of one, or one would not survive the loss of the node.
    """
    check_is_alive(image, node_id)
    topic = image.topic(TOPIC)
    held = find_replicas(image, node_id)
    if missing := set(partitions) - held.keys():
        raise ConfigError(
            f"--partitions has {min(missing)}: node {node_id} is not a replica of {TOPIC}-"
            f"{min(missing)}; `muster node join` makes it one"
        )
    if leads:
        _check_can_lead(image, node_id)
    moves = []
    for number in sorted(partitions):
        assert topic is not None, "it has replicas"
        one = topic.partitions[number]
        if one.adding or one.removing:
            raise ConfigError(
                f"{TOPIC}-{number} is being reassigned already: wait for that, or cancel it"
            )
        others = tuple(replica for replica in one.replicas if replica != node_id)
        if len(others) < FEW_BROKERS and leads:
            raise ConfigError(
                f"{TOPIC}-{number} has {len(others)} other replicas: a partition that the node "
                f"leads needs {FEW_BROKERS}, so that it goes on without the node"
            )
        moves.append(
            Move(TOPIC, number, one.replicas, (node_id, *others) if leads else (*others, node_id))
        )
    return moves


def _check_can_lead(image: MetadataImage, node_id: int) -> None:
    """See that a node has the listeners of the cluster, and that what is acknowledged survives."""
    brokers = [one for one in image.brokers.values() if one.node_id != node_id]
    names = {one.name for broker in brokers for one in broker.endpoints}
    if missing := names - {one.name for one in image.brokers[node_id].endpoints}:
        raise ConfigError(
            f"node {node_id} only follows: it does not listen on {', '.join(sorted(missing))}; "
            "start `muster node` with --listen"
        )
    least = image.setting(TOPIC_SETTINGS, TOPIC, "min.insync.replicas")
    if not least or not least.isdecimal() or int(least) < FEW_BROKERS:
        raise ConfigError(
            f"min.insync.replicas of {TOPIC} is {least or 'not set'}: set it to 2 with "
            "kafka-configs, so that what the node acknowledges is on a broker, too"
        )


def plan_leave(
    image: MetadataImage, node_id: int, partitions: Collection[int] | None = None
) -> list[Move]:
    """Return how a node gives partitions back; None for all that it has, of any topic.

    Raises
    ------
    ConfigError
        The cluster has no such node, or it has no such replica, or is the only one.
    """
    if node_id not in image.brokers:
        raise ConfigError(f"node {node_id} is not registered: there is nothing to give back")
    held = image.held_by(node_id)
    if partitions is not None:
        held = [(topic, n) for topic, n in held if topic.name == TOPIC and n in partitions]
        if missing := set(partitions) - {number for _, number in held}:
            raise ConfigError(
                f"--partitions has {min(missing)}: node {node_id} is not a replica of {TOPIC}-"
                f"{min(missing)}"
            )
    moves = [give_back(topic.name, number, image, node_id) for topic, number in held]
    for move in moves:
        if not move.after:
            raise ConfigError(
                f"{move.topic}-{move.partition} has no other replica than node {node_id}: give it "
                "one first, with kafka-reassign-partitions"
            )
    return moves


def give_back(name: str, number: int, image: MetadataImage, node_id: int) -> Move:
    """Return how a node stops being a replica of a partition."""
    topic = image.topic(name)
    assert topic is not None, "a topic with replicas"
    before = topic.partitions[number].replicas
    return Move(name, number, before, tuple(one for one in before if one != node_id))


def find_late(image: MetadataImage, moves: Collection[Move]) -> list[int]:
    """Return the brokers that are not in sync yet where they shall stay.

    Controllers end a reassignment when all replicas that stay are in sync.
    """
    late: set[int] = set()
    for move in moves:
        topic = image.topic(move.topic)
        one = None if topic is None else topic.partitions.get(move.partition)
        late |= set(move.after) - set(move.after if one is None else one.isr)
    return sorted(late)


def move_elsewhere(name: str, number: int, image: MetadataImage, node_id: int) -> Move:
    """Return how another broker takes a node's place: the one that has the fewest replicas.

    It is alive, and takes replicas: another node of Muster's does not.
    """
    move = give_back(name, number, image, node_id)
    free = [
        (len(image.held_by(one.node_id)), one.node_id)
        for one in image.brokers.values()
        if not one.is_fenced
        and one.node_id not in move.before
        and takes_replicas(image, one.node_id)
    ]
    return move._replace(after=(*move.after, min(free)[1])) if free else move


def check_is_alive(image: MetadataImage, node_id: int) -> None:
    """See that a node takes part in its cluster now.

    Raises
    ------
    ConfigError
        It is not registered, or fenced.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.is_fenced:
        how = "is not registered" if broker is None else "is fenced: it sends no heartbeats"
        raise ConfigError(f"node {node_id} {how}: start `muster node` first")


def takes_replicas(image: MetadataImage, node_id: int) -> bool:
    """Whether controllers may give replicas to a node now."""
    broker = image.brokers.get(node_id)
    return broker is None or not broker.cordoned_log_dirs


# Checks --------------------------------------------------------------------------------------


def check_cluster(
    image: MetadataImage,
    operations: int,
    node_id: int | None,
    rack: str | None,
    *,
    is_ours: bool,
    obstacle: str = "",
) -> list[Finding]:
    """Return what a node would meet in a cluster, before anything is changed.

    Parameters
    ----------
    operations
        Which operations on the cluster the user may do, as bits by their numbers.
    node_id
        None where it is not known yet.
    is_ours
        Whether the store is of that node.
    obstacle
        Why a node cannot lead there; "" where it can.
    """
    return [
        *_check_rights(operations),
        _check_metadata(image),
        *_check_place(image, node_id, rack, is_ours=is_ours),
        _check_cordon(image),
        *_check_topic(image),
        _check_leading(obstacle),
        *_check_tools(image),
        *_check_held(image, node_id),
    ]


def _check_rights(operations: int) -> list[Finding]:
    return [
        Finding(OK, name, f"allowed: the node {does}")
        if operations >> number & 1
        else Finding(BAD, name, f"not allowed on the cluster, by which the node {does}: allow it")
        for number, (name, does) in RIGHTS.items()
    ]


def _check_metadata(image: MetadataImage) -> Finding:
    level, (low, high) = image.features.get(METADATA_VERSION, 0), METADATA_LEVELS
    if not low <= level <= high:
        return Finding(
            BAD,
            METADATA_VERSION,
            f"its level is {level}, Muster reads {low} to {high}: a newer Muster may read it",
        )
    return Finding(
        OK,
        METADATA_VERSION,
        f"level {level}; while the node is registered, it can be raised to {high} at most",
    )


def _check_place(
    image: MetadataImage, node_id: int | None, rack: str | None, *, is_ours: bool
) -> list[Finding]:
    found = []
    if node_id is not None:
        is_taken = node_id in image.brokers and not is_ours
        found.append(
            Finding(BAD, "node id", f"{node_id} is a broker of the cluster: give another id")
            if is_taken
            else Finding(OK, "node id", f"{node_id} is free, or this node's own")
        )
    try:
        chosen = choose_rack(image, -1 if node_id is None else node_id, rack)
    except ConfigError as error:
        return [*found, Finding(BAD, "rack", str(error))]
    return [*found, Finding(OK, "rack", chosen or "brokers have none")]


def _check_cordon(image: MetadataImage) -> Finding:
    if can_cordon(image):
        return Finding(OK, "cordon", "new topics get no replicas on the node")
    return Finding(
        WARNING,
        "cordon",
        "before metadata.version 4.3-IV0 a node cannot be cordoned: new topics "
        "may get replicas on it, which it does not follow; it names them in its log",
    )


def _check_topic(image: MetadataImage) -> list[Finding]:
    topic = image.topic(TOPIC)
    if topic is None:
        return [Finding(WARNING, TOPIC, "is not there yet: it is made when the first group comes")]
    least = min(len(one.replicas) for one in topic.partitions.values())
    in_sync = image.setting(TOPIC_SETTINGS, TOPIC, "min.insync.replicas") or "1"
    says = f"{len(topic.partitions)} partitions, {least} replicas, min.insync.replicas {in_sync}"
    keeps = image.features.get(ELR_FEATURE, 0) > 0 and in_sync != "1"
    if least < FEW_BROKERS or not keeps:
        return [
            Finding(
                WARNING,
                TOPIC,
                f"{says}: a partition whose brokers have all failed but this node "
                "has no leader until one returns, as the node follows only; two brokers a "
                "partition, min.insync.replicas 2 and eligible.leader.replicas.version 1 keep one",
            )
        ]
    return [Finding(OK, TOPIC, says)]


def _check_leading(obstacle: str) -> Finding:
    if obstacle:
        return Finding(WARNING, "leading", f"a node can only follow here: {obstacle}")
    return Finding(OK, "leading", "a node that has --listen can lead here")


def _check_tools(image: MetadataImage) -> list[Finding]:
    found = []
    names = {one.name for broker in image.brokers.values() for one in broker.endpoints}
    if names & STRIMZI:
        found.append(
            Finding(
                BAD,
                "Strimzi",
                "unregisters every broker that is not its own, at each "
                "reconciliation: pause that (strimzi.io/pause-reconciliation) as long as the node "
                "is there",
            )
        )
    if CRUISE_CONTROL in image.topic_ids:
        found.append(
            Finding(
                WARNING,
                "Cruise Control",
                f"sees the node as an empty broker: exclude it, and {TOPIC}, from its proposals",
            )
        )
    return found


def _check_held(image: MetadataImage, node_id: int | None) -> list[Finding]:
    if node_id is None or node_id not in image.brokers:
        return []
    replicas = find_replicas(image, node_id)
    late = sorted(number for number, one in replicas.items() if node_id not in one.isr)
    says = f"{len(replicas)} partitions of {TOPIC}"
    found = [
        Finding(WARNING, "replicas", f"{says}; not in sync: {_list(late)}")
        if late
        else Finding(OK, "replicas", f"{says}, all in sync")
    ]
    if strays := find_strays(image, node_id):
        names = [f"{topic.name}-{number}" for topic, number in strays]
        found.append(
            Finding(BAD, "strays", f"{_list(names)} were placed on the node: move them away")
        )
    return found


def _list(some: Sequence[object]) -> str:
    few = 5
    more = f" and {len(some) - few} more" if len(some) > few else ""
    return ", ".join(map(str, some[:few])) + more
