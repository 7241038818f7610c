"""How to assign: the assignor's name and its options.

Settings of a group and options of a command become an assignor's arguments here and nowhere else,
so every engine, plan and command runs an assignor alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from assignors import Assignor, get_assignor
from assignors.option_values import EXACT_EDGES, LONG_RANGES
from assignors.registry import options_of
from coordinator.config import Config
from coordinator.core.targets.approval import IMBALANCE, MAX_MOVES, is_manual, move_nothing


def _read_imbalance(text: str) -> str | int:
    return text if text.endswith("%") else int(text)


_SETTINGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "imbalance": (IMBALANCE, _read_imbalance),
    "max_moves": (MAX_MOVES, int),
    "defragment": ("consumer.assignor.defragment", int),
    "max_moved_weight": ("consumer.assignor.max.moved.weight", float),
    "tolerance": ("consumer.assignor.tolerance", str),
    "rack": ("consumer.assignor.rack", str),
    "improvement": ("consumer.assignor.improvement", str),
    "least_share": ("consumer.assignor.least.share", str),
}
"""By option: the setting of a group that gives it, and how its text is read."""


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
        Of weighted: its own options by name, without those that were not given; and `defragment`.
    exact_edges
        Of uniform and sticky: the setting `plan.exact_edges`.
    long_ranges
        Of uniform and sticky: the setting `plan.long_ranges`.
    waits
        Only partitions without an owner are assigned, and the rest waits for approval: no target
        with these options is partial.
    """

    assignor: str
    imbalance: str | int | None = None
    max_moves: int | None = None
    weighted: Mapping[str, str | float] = field(default_factory=dict)
    exact_edges: int = EXACT_EDGES
    long_ranges: int = LONG_RANGES
    waits: bool = False

    @classmethod
    def of_group(cls, assignor: str, settings: Mapping[str, str], config: Config) -> Self:
        """Return the options in a group's settings; an assignor ignores those of others."""
        own = options_of(assignor)
        given = {
            option: read(settings[setting])
            for option, (setting, read) in _SETTINGS.items()
            if option in own and setting in settings
        }
        imbalance = given.pop("imbalance", 0 if "imbalance" in own else None)
        most = given.pop("max_moves", None)
        plan = config.plan
        return cls(assignor, imbalance, most, given, plan.exact_edges, plan.long_ranges)

    @classmethod
    def of_target(cls, assignor: str, settings: Mapping[str, str], config: Config) -> Self:
        """Return the options of a target that needs no approval."""
        if not is_manual(settings):
            return cls.of_group(assignor, settings, config)
        found = cls.of_group(*move_nothing(assignor, settings), config)
        return cls(
            found.assignor, found.imbalance, found.max_moves, found.weighted, found.exact_edges,
            found.long_ranges, waits=True,
        )  # fmt: skip

    def arguments(self) -> dict[str, Any]:
        """Return the assignor's arguments, without those that were not given."""
        out: dict[str, Any] = {}
        if self.imbalance is not None:
            out["imbalance"] = self.imbalance
        if self.max_moves is not None:
            out["max_moves"] = self.max_moves
        out |= self.weighted
        for option in ("exact_edges", "long_ranges"):
            if option in options_of(self.assignor):
                out[option] = getattr(self, option)
        return out

    def make_assignor(self) -> Assignor:
        """Return the assignor, and check its options.

        Raises
        ------
        SpecError
            The assignor does not exist, or refuses an option.
        """
        return get_assignor(self.assignor, **self.arguments())
