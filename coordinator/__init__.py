"""The group coordinator: a pure core that decides, and a shell that makes it durable and serves.

>>> from coordinator import Coordinator
>>> with Coordinator.open(None, topics={"clicks": 4}) as coordinator:
...     coordinator.status
'active'

Importing it starts nothing and needs no JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from assignors.late_names import late_names

if TYPE_CHECKING:
    from coordinator.core.plans.planner import ShownPlan
    from coordinator.errors import Fenced, GroupError, PartitionsRefusedError, UnavailableError
    from coordinator.member.application import AsyncStop, Stop
    from coordinator.member.async_member import AsyncMember
    from coordinator.member.driver import Change
    from coordinator.member.exactly_once import ExactlyOnceTable
    from coordinator.member.member import Member
    from coordinator.member.transport import TopicPartition
    from coordinator.runtime.async_coordinator import AsyncCoordinator
    from coordinator.runtime.coordinator import Coordinator
    from coordinator.runtime.plan_tasks.weight_source import WeightTables
    from coordinator.runtime.responses import HeartbeatAnswer
    from coordinator.runtime.topic_catalog import DictCatalog, FileCatalog
    from coordinator.watcher.watch import Watch, watch

__all__ = [
    "AsyncCoordinator",
    "AsyncMember",
    "AsyncStop",
    "Change",
    "Coordinator",
    "DictCatalog",
    "ExactlyOnceTable",
    "Fenced",
    "FileCatalog",
    "GroupError",
    "HeartbeatAnswer",
    "Member",
    "PartitionsRefusedError",
    "ShownPlan",
    "Stop",
    "TopicPartition",
    "UnavailableError",
    "Watch",
    "WeightTables",
    "watch",
]

_ROOMS = {
    "AsyncCoordinator": "coordinator.runtime.async_coordinator",
    "AsyncMember": "coordinator.member.async_member",
    "AsyncStop": "coordinator.member.application",
    "Change": "coordinator.member.driver",
    "Coordinator": "coordinator.runtime.coordinator",
    "DictCatalog": "coordinator.runtime.topic_catalog",
    "ExactlyOnceTable": "coordinator.member.exactly_once",
    "Fenced": "coordinator.errors",
    "FileCatalog": "coordinator.runtime.topic_catalog",
    "GroupError": "coordinator.errors",
    "HeartbeatAnswer": "coordinator.runtime.responses",
    "Member": "coordinator.member.member",
    "PartitionsRefusedError": "coordinator.errors",
    "ShownPlan": "coordinator.core.plans.planner",
    "Stop": "coordinator.member.application",
    "TopicPartition": "coordinator.member.transport",
    "UnavailableError": "coordinator.errors",
    "Watch": "coordinator.watcher.watch",
    "WeightTables": "coordinator.runtime.plan_tasks.weight_source",
    "watch": "coordinator.watcher.watch",
}

__getattr__ = late_names(__name__, _ROOMS)  # `muster --help` needs none of them
