"""A computer outside the coordinator, that prepares and installs (K-38…K-50)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assignors import GroupSpec, get_assignor
from coordinator.core.events import Answer, InstallAssignment, PrepareAssignment
from coordinator.errors import ErrorCode, GroupError

if TYPE_CHECKING:
    from .node import Node
    from .world import World

ASSIGNOR = "uniform"
REFUSALS = {
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
"""Errors that a correct computation may get."""


class Computer:
    """Computes assignments of groups, late, twice or wrongly."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = world.chance

    def begins(self, *key: object) -> None:
        """Begin a computation for some group."""
        self.compute(self._chance.pick(self._world.groups, "group", *key), *key)

    def compute(self, group_id: str, *key: object) -> None:
        """Ask for a group's input, compute, and install."""
        name = "-".join(map(str, key))

        def prepared(answer: Answer, _node: Node) -> None:
            if not isinstance(answer, GroupError):
                self._computed(group_id, answer.response, *key)

        self._world.ask(
            PrepareAssignment(group_id, f"computed-{name}"), "prepare", *key, reply=prepared
        )

    def _computed(self, group_id: str, given: Any, *key: object) -> None:
        chance = self._chance
        spec = GroupSpec.from_arrow(given["members"], given["topics"], given["owned"])
        ranges = get_assignor(ASSIGNOR).assign(spec).to_arrow()
        epoch, wrong = given["group_epoch"], False
        if chance.happens("installed wrong", *key) and ranges.num_rows:
            wrong = True
            ranges = _spoilt(ranges, chance.between(0, 2, "how wrong", *key))
        install = InstallAssignment(group_id, given["computation_id"], epoch, ranges, ASSIGNOR)
        wait = chance.between(1, 100, "computes", *key)
        if chance.happens("installed late", *key):
            wait = chance.between(100, 10_000, "how late", *key)
        self._install(wait, install, *key, wrong=wrong)
        if chance.happens("installed twice", *key):
            self._install(wait + 50, install, "again", *key, wrong=wrong)

    def _install(self, wait: int, install: InstallAssignment, *key: object, wrong: bool) -> None:
        def installed(answer: Answer, _node: Node) -> None:
            if not isinstance(answer, GroupError):
                if wrong:
                    self._world.checker.fail("an assignment that is none was installed")
            elif answer.code is ErrorCode.INVALID_ASSIGNMENT:
                if not wrong:
                    self._world.checker.fail(f"a right assignment is refused: {answer.message}")
            elif answer.code not in REFUSALS:
                self._world.checker.fail(f"an installation is refused: {answer.message}")

        def send() -> None:
            self._world.ask(install, "install", *key, reply=installed)

        self._world.schedule.after(wait, send)


def _spoilt(ranges: pa.Table, way: int) -> pa.Table:
    """Leave a row out, give one twice, or name a member that is not there."""
    if way == 0:
        return ranges.slice(1)
    if way == 1:
        return pa.concat_tables([ranges, ranges.slice(0, 1)])
    rows = ranges.to_pylist()
    rows[0]["member_id"] = "nobody"
    return pa.Table.from_pylist(rows, schema=ranges.schema)
