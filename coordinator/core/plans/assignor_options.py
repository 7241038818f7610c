"""How to assign: the assignor's name and its options.

Settings of a group and options of a command become an assignor's arguments here and nowhere else,
so every engine, plan and command runs an assignor alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from assignors import Assignor, get_assignor
from assignors.plan import EXACT_EDGES
from coordinator.config import Config
from coordinator.core.plans.approval import is_manual, move_nothing

WEIGHED = ("tolerance", "rack", "improvement")


@dataclass(frozen=True, slots=True)
class AssignorOptions:
    """How to assign: the assignor's name and its options.

    Attributes
    ----------
    imbalance
        For sticky: partitions, or a share such as "5%"; None for its default.
    max_moves
        Of sticky and weighted: the most partitions to take from live owners; None for as many as
        it takes.
    weighted
        Of weighted: its own options by name, without those that were not given.
    exact_edges
        Of uniform and sticky: the setting `plan.exact_edges`.
    waits
        Only what nobody owns is given away, and the rest waits for approval: no target of these
        options is partial.
    """

    assignor: str
    imbalance: str | int | None = None
    max_moves: int | None = None
    weighted: Mapping[str, str | float] = field(default_factory=dict)
    exact_edges: int = EXACT_EDGES
    waits: bool = False

    @classmethod
    def of_group(cls, assignor: str, settings: Mapping[str, str], config: Config) -> Self:
        """Return the options in a group's settings; an assignor ignores those of others."""
        given = {name.removeprefix("consumer.assignor."): value for name, value in settings.items()}
        imbalance = most = None
        weighted: dict[str, str | float] = {}
        if assignor == "sticky":
            said = given.get("imbalance", "0")
            imbalance = said if said.endswith("%") else int(said)
        if assignor in {"sticky", "weighted"} and "max.moves" in given:
            most = int(given["max.moves"])
        if assignor == "weighted":
            weighted = {name: given[name] for name in WEIGHED if name in given}
            if "max.moved.weight" in given:
                weighted["max_moved_weight"] = float(given["max.moved.weight"])
        return cls(assignor, imbalance, most, weighted, config.plan.exact_edges)

    @classmethod
    def of_target(cls, assignor: str, settings: Mapping[str, str], config: Config) -> Self:
        """Return the options of a target that nobody approves."""
        if not is_manual(settings):
            return cls.of_group(assignor, settings, config)
        found = cls.of_group(*move_nothing(assignor, settings), config)
        return cls(
            found.assignor, found.imbalance, found.max_moves, found.weighted, found.exact_edges,
            waits=True,
        )  # fmt: skip

    def arguments(self) -> dict[str, Any]:
        """Return the assignor's arguments, without those that were not given."""
        out: dict[str, Any] = {}
        if self.imbalance is not None:
            out["imbalance"] = self.imbalance
        if self.max_moves is not None:
            out["max_moves"] = self.max_moves
        out |= self.weighted
        if self.assignor in ("uniform", "sticky"):
            out["exact_edges"] = self.exact_edges
        return out

    def make_assignor(self) -> Assignor:
        """Return the assignor, and check its options.

        Raises
        ------
        SpecError
            There is no such assignor, or it refuses an option.
        """
        return get_assignor(self.assignor, **self.arguments())
