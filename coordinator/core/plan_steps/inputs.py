"""What a plan is computed from: a digest and a description of each input, and what drifted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from coordinator.config import Config
from coordinator.core.heartbeat import preferred_assignor
from coordinator.core.records import LoadsNoted
from coordinator.core.state import Group, State
from coordinator.core.target_builder import AssignorInput, MemberChange, build_input
from coordinator.errors import ErrorCode, GroupError

MEMBERS, TOPICS, TARGET = "members", "topics", "target"
WEIGHTS, CONSTRAINTS, SETTINGS = "weights", "constraints", "settings"
NAMES_TOLD = 50
NO_TARGET = "none"
_DIGEST_BYTES = 8
_SEPARATOR = "\x1f"


@dataclass(frozen=True, slots=True)
class PlanBasis:
    """A group as a plan finds it.

    Attributes
    ----------
    assignor
        That the group's next target would have.
    settings
        The group's own.
    input
        Members, topics, targets, weights and constraints.
    """

    group_id: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    settings: Mapping[str, str]
    input: AssignorInput


def find_group(state: State, group_id: str) -> Group:
    """Return a consumer group.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND; INVALID_REQUEST for a classic group, whose leader assigns.
    """
    group = state.groups.get(group_id)
    if group is not None:
        return group
    if group_id in state.classic:
        raise GroupError(
            ErrorCode.INVALID_REQUEST,
            f"Group {group_id} is a classic group, which has no target: plans are for groups of "
            "the consumer protocol.",
        )
    raise GroupError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")


def take_basis(state: State, config: Config, group_id: str, now_ms: int) -> PlanBasis:
    """Return a group as it is now; no later change reaches it.

    Raises
    ------
    GroupError
        As `find_group`.
    """
    group = find_group(state, group_id)
    return PlanBasis(
        group_id,
        group.epoch,
        group.assignment_epoch,
        preferred_assignor(config, group.wishes),
        dict(state.settings.get(group_id, {})),
        build_input(state, group, MemberChange(), now_ms),
    )


def describe_inputs(basis: PlanBasis) -> dict[str, str]:
    """Return each input of a plan as "digest description"."""
    found = basis.input
    members = [
        repr(
            (
                meta.member_id,
                meta.instance_id,
                meta.rack_id,
                meta.client_id,
                meta.subscribed_topic_names,
                found.regexes.get(meta.subscribed_topic_regex),
            )
        )
        for _, meta in sorted(found.metas.items())
    ]
    topics = [f"{topic.key}{topic.partitions}{topic.hash}" for topic in found.topics]
    counts = [f"{topic.key.name}={topic.partitions}" for topic in found.topics]
    loads = found.loads or LoadsNoted(basis.group_id)
    rules = [repr((rule, _is_over(rule.until_ms, found.as_of_ms))) for rule in loads.constraints]
    rules += loads.drained
    told = {
        MEMBERS: (members, _list_names(sorted(found.metas), "members")),
        TOPICS: (topics, _list_names(counts, "topics")),
        TARGET: _describe_target(basis),
        WEIGHTS: ([repr(loads.weights), repr(loads.capacities)], _describe_weights(found.loads)),
        CONSTRAINTS: (rules, f"{len(rules)}" if rules else "none"),
        SETTINGS: (
            [repr(sorted(basis.settings.items()))],
            _list_names([f"{k}={v}" for k, v in sorted(basis.settings.items())], "settings"),
        ),
    }
    return {name: f"{hash_texts(texts)} {said}" for name, (texts, said) in told.items()}


def hash_texts(texts: Iterable[str]) -> str:
    """Return a digest of texts in order."""
    joined = _SEPARATOR.join(texts).encode(errors="surrogatepass")
    return hashlib.blake2b(joined, digest_size=_DIGEST_BYTES).hexdigest()


def find_drift(planned: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say which inputs are not what a plan was made from, a line each."""
    drifted = []
    for name in now:
        before, after = planned.get(name, " not known"), now[name]
        if before.split(" ", 1)[0] != after.split(" ", 1)[0]:
            drifted.append(f"{name}: {_compare(before, after)}")
    return drifted


def _compare(before: str, after: str) -> str:
    old, new = (text.partition(" ")[2] for text in (before, after))
    if old == new:
        return f"changed, still {new}" if new else "changed"
    was, has = (set(text.split(", ")) for text in (old, new))
    if NAMES_TOLD >= len(was | has) > 1 and was & has:
        gone, come = sorted(was - has), sorted(has - was)
        parts = [f"no longer {', '.join(gone)}"] * bool(gone) + [f"now {', '.join(come)}"] * bool(
            come
        )
        return "; ".join(parts)
    return f"was {old}, is {new}"


def _list_names(names: list[str], what: str) -> str:
    if not names:
        return "none"
    return ", ".join(names) if len(names) <= NAMES_TOLD else f"{len(names)} {what}"


def _describe_target(basis: PlanBasis) -> tuple[list[str], str]:
    """Return the target's texts; that there is none yet is said too."""
    targets = basis.input.targets
    rows = [f"{member_id}{targets[member_id]}" for member_id in sorted(targets)]
    if not rows:
        return [NO_TARGET], NO_TARGET
    return [str(basis.assignment_epoch), *rows], f"epoch {basis.assignment_epoch}"


def _describe_weights(loads: LoadsNoted | None) -> str:
    if loads is None or not (loads.weights or loads.capacities):
        return "none"
    known = sum(len(one.weights) for one in loads.weights)
    return f"{known} weights, {len(loads.capacities)} capacities"


def _is_over(until_ms: int | None, now_ms: int | None) -> bool:
    return until_ms is not None and now_ms is not None and until_ms <= now_ms
