"""Groups whose targets wait for approval (docs/guide/plans.md#approval).

Such a group keeps its target when weights, growth or joins would change it. A departed member's
partitions move at once, without approval, and nothing else moves. Nor does a group wait for its
first target, when there is nothing to keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from assignors.registry import find_keeper, knows_loads

if TYPE_CHECKING:
    from coordinator.config import Config
    from coordinator.core.state.groups import Group
    from coordinator.core.state.records import PlanMade

APPROVAL, MANUAL = "consumer.assignor.approval", "manual"
MAX_MOVES, IMBALANCE = "consumer.assignor.max.moves", "consumer.assignor.imbalance"


def end_of(plan: PlanMade, config: Config) -> int:
    """Return until when a plan may be applied, in ms since 1970; settings may shorten it."""
    return min(plan.expires_ms, plan.timestamp + config.plans.valid_ms)


def list_waiting(group: Group, config: Config, now_ms: int) -> list[PlanMade]:
    """Return the plans of a group that wait for approval, the oldest first; none that expired."""
    waiting = [plan for plan in group.plans.values() if now_ms < end_of(plan, config)]
    return sorted(waiting, key=lambda plan: (plan.timestamp, plan.plan_id))


def is_manual(settings: Mapping[str, str]) -> bool:
    """Tell whether the targets of a group wait for approval."""
    return settings.get(APPROVAL) == MANUAL


def keeps_target(settings: Mapping[str, str], group: Group) -> bool:
    """Tell whether a group keeps the target that it has until a plan is applied."""
    return is_manual(settings) and group.assignor != "" and not group.owner_left


def move_nothing(assignor: str, settings: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return an assignor, and settings for it, that assign only partitions without an owner."""
    return find_keeper(loads=knows_loads(assignor)), {**settings, MAX_MOVES: "0"}
