"""How to assign: the assignor and its options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from assignors import Assignor, get_assignor
from coordinator.config import Config


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
    """

    assignor: str
    imbalance: str | None = None
    max_moves: int | None = None
    weighted: Mapping[str, str | float] = field(default_factory=dict)

    @classmethod
    def of_group(cls, assignor: str, settings: Mapping[str, str]) -> Self:
        """Return the options in a group's settings; assignors other than sticky ignore them."""
        if assignor != "sticky":
            return cls(assignor)
        most = settings.get("consumer.assignor.max.moves")
        imbalance = settings.get("consumer.assignor.imbalance")
        return cls(assignor, imbalance, None if most is None else int(most))

    def arguments(self, config: Config) -> dict[str, Any]:
        """Return the assignor's arguments, without those that were not given."""
        out: dict[str, Any] = {}
        if self.imbalance is not None:
            out["imbalance"] = self.imbalance
        if self.max_moves is not None:
            out["max_moves"] = self.max_moves
        out |= self.weighted
        if self.assignor in ("uniform", "sticky"):
            out["exact_edges"] = config.plan.exact_edges
        return out

    def make_assignor(self, config: Config) -> Assignor:
        """Return the assignor, and check its options.

        Raises
        ------
        SpecError
            There is no such assignor, or it refuses an option.
        """
        return get_assignor(self.assignor, **self.arguments(config))
