"""What a program imports: a coordinator, members, assignors, views, and the errors to catch.

>>> from muster import Coordinator, Member
>>> with Coordinator.open(None, topics={"clicks": 4}) as coordinator:
...     with Member(coordinator, group_id="billing", topics=["clicks"]) as member:
...         len(member.wait_for_change().owned)
4

Nothing is defined here: each name is imported from its room when it is first asked for, so
`import muster` is quick, starts nothing and needs no JVM.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assignors import quality
    from assignors.errors import SpecError
    from assignors.group_spec import GroupSpec
    from assignors.groups.assign_groups import GroupsAssignment, assign_groups
    from assignors.groups.group_set import GroupSet
    from assignors.incremental.changes import GroupChanges, SubscribedMembers
    from assignors.incremental.planned_group import PlannedGroup
    from assignors.partition_ranges import PartitionRanges, Verdict
    from assignors.registry import Assignor, assignor_names, get_assignor
    from coordinator.config import Config, ConfigError
    from coordinator.config import parse as parse_config
    from coordinator.core.plans.planner import ShownPlan
    from coordinator.errors import (
        ErrorCode,
        Fenced,
        GroupError,
        PartitionsRefusedError,
        UnavailableError,
    )
    from coordinator.extras import MissingExtraError
    from coordinator.history.frames import VIEWS, frame
    from coordinator.member.application import AsyncStop, Stop
    from coordinator.member.async_member import AsyncMember
    from coordinator.member.driver import Change
    from coordinator.member.exactly_once import ExactlyOnceTable
    from coordinator.member.member import Member
    from coordinator.member.transport import TopicPartition
    from coordinator.push.push import Push
    from coordinator.runtime.async_coordinator import AsyncCoordinator
    from coordinator.runtime.coordinator import Coordinator
    from coordinator.runtime.plan_tasks.weight_source import WeightTables
    from coordinator.runtime.responses import Answers, GroupAnswer, HeartbeatAnswer
    from coordinator.runtime.topic_catalog import (
        DeltaCatalog,
        DictCatalog,
        FileCatalog,
        KafkaCatalog,
        TopicCatalog,
    )
    from coordinator.storage.record_log import LogError
    from coordinator.storage.tables.table_io import BusyError
    from coordinator.watcher.watch import Watch, watch
    from spark_jobs.jobs.embedding import embed, embed_node
    from spark_jobs.jobs.foreach_owner import foreach_partition_owner
    from spark_jobs.session import spark_session
    from spark_jobs.sql import views
    from spark_jobs.streams.group_offsets import GroupOffsets
    from spark_jobs.streams.shared_source import OffsetsGoneError, SharedSource, shared_source
    from spark_jobs.streams.starting_offsets import starting_offsets

    __version__: str
    """The version that is installed."""

__all__ = [
    "VIEWS",
    "Answers",
    "Assignor",
    "AsyncCoordinator",
    "AsyncMember",
    "AsyncStop",
    "BusyError",
    "Change",
    "Config",
    "ConfigError",
    "Coordinator",
    "DeltaCatalog",
    "DictCatalog",
    "ErrorCode",
    "ExactlyOnceTable",
    "Fenced",
    "FileCatalog",
    "GroupAnswer",
    "GroupChanges",
    "GroupError",
    "GroupOffsets",
    "GroupSet",
    "GroupSpec",
    "GroupsAssignment",
    "HeartbeatAnswer",
    "KafkaCatalog",
    "LogError",
    "Member",
    "MissingExtraError",
    "OffsetsGoneError",
    "PartitionRanges",
    "PartitionsRefusedError",
    "PlannedGroup",
    "Push",
    "SharedSource",
    "ShownPlan",
    "SpecError",
    "Stop",
    "SubscribedMembers",
    "TopicCatalog",
    "TopicPartition",
    "UnavailableError",
    "Verdict",
    "Watch",
    "WeightTables",
    "__version__",
    "assign_groups",
    "assignor_names",
    "embed",
    "embed_node",
    "foreach_partition_owner",
    "frame",
    "get_assignor",
    "parse_config",
    "quality",
    "shared_source",
    "spark_session",
    "starting_offsets",
    "views",
    "watch",
]

_PLACES = {
    "Answers": "coordinator.runtime.responses:Answers",
    "Assignor": "assignors.registry:Assignor",
    "AsyncCoordinator": "coordinator.runtime.async_coordinator:AsyncCoordinator",
    "AsyncMember": "coordinator.member.async_member:AsyncMember",
    "AsyncStop": "coordinator.member.application:AsyncStop",
    "BusyError": "coordinator.storage.tables.table_io:BusyError",
    "Change": "coordinator.member.driver:Change",
    "Config": "coordinator.config:Config",
    "ConfigError": "coordinator.config:ConfigError",
    "Coordinator": "coordinator.runtime.coordinator:Coordinator",
    "DeltaCatalog": "coordinator.runtime.topic_catalog:DeltaCatalog",
    "DictCatalog": "coordinator.runtime.topic_catalog:DictCatalog",
    "ErrorCode": "coordinator.errors:ErrorCode",
    "ExactlyOnceTable": "coordinator.member.exactly_once:ExactlyOnceTable",
    "Fenced": "coordinator.errors:Fenced",
    "FileCatalog": "coordinator.runtime.topic_catalog:FileCatalog",
    "GroupAnswer": "coordinator.runtime.responses:GroupAnswer",
    "GroupChanges": "assignors.incremental.changes:GroupChanges",
    "GroupError": "coordinator.errors:GroupError",
    "GroupOffsets": "spark_jobs.streams.group_offsets:GroupOffsets",
    "GroupSet": "assignors.groups.group_set:GroupSet",
    "GroupSpec": "assignors.group_spec:GroupSpec",
    "GroupsAssignment": "assignors.groups.assign_groups:GroupsAssignment",
    "HeartbeatAnswer": "coordinator.runtime.responses:HeartbeatAnswer",
    "KafkaCatalog": "coordinator.runtime.topic_catalog:KafkaCatalog",
    "LogError": "coordinator.storage.record_log:LogError",
    "Member": "coordinator.member.member:Member",
    "MissingExtraError": "coordinator.extras:MissingExtraError",
    "OffsetsGoneError": "spark_jobs.streams.shared_source:OffsetsGoneError",
    "PartitionRanges": "assignors.partition_ranges:PartitionRanges",
    "PartitionsRefusedError": "coordinator.errors:PartitionsRefusedError",
    "PlannedGroup": "assignors.incremental.planned_group:PlannedGroup",
    "Push": "coordinator.push.push:Push",
    "SharedSource": "spark_jobs.streams.shared_source:SharedSource",
    "ShownPlan": "coordinator.core.plans.planner:ShownPlan",
    "SpecError": "assignors.errors:SpecError",
    "Stop": "coordinator.member.application:Stop",
    "SubscribedMembers": "assignors.incremental.changes:SubscribedMembers",
    "TopicCatalog": "coordinator.runtime.topic_catalog:TopicCatalog",
    "TopicPartition": "coordinator.member.transport:TopicPartition",
    "UnavailableError": "coordinator.errors:UnavailableError",
    "VIEWS": "coordinator.history.frames:VIEWS",
    "Verdict": "assignors.partition_ranges:Verdict",
    "Watch": "coordinator.watcher.watch:Watch",
    "WeightTables": "coordinator.runtime.plan_tasks.weight_source:WeightTables",
    "assign_groups": "assignors.groups.assign_groups:assign_groups",
    "assignor_names": "assignors.registry:assignor_names",
    "embed": "spark_jobs.jobs.embedding:embed",
    "embed_node": "spark_jobs.jobs.embedding:embed_node",
    "foreach_partition_owner": "spark_jobs.jobs.foreach_owner:foreach_partition_owner",
    "frame": "coordinator.history.frames:frame",
    "get_assignor": "assignors.registry:get_assignor",
    "parse_config": "coordinator.config:parse",
    "quality": "assignors:quality",
    "shared_source": "spark_jobs.streams.shared_source:shared_source",
    "spark_session": "spark_jobs.session:spark_session",
    "starting_offsets": "spark_jobs.streams.starting_offsets:starting_offsets",
    "views": "spark_jobs.sql:views",
    "watch": "coordinator.watcher.watch:watch",
}


def __getattr__(name: str) -> object:  # not `late_names`: `import muster` imports no other package
    """Import a public name when it is first asked for."""
    if name == "__version__":
        return import_module("importlib.metadata").version("muster")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room, _, there = _PLACES[name].partition(":")
    try:
        found = getattr(import_module(room), there, None)
        return import_module(f"{room}.{there}") if found is None else found
    except ImportError as error:
        raise import_module("coordinator.extras").explain(error, f"muster.{name}") from None


def __dir__() -> list[str]:
    """List the public names, for completion in a shell or a notebook."""
    return list(__all__)
