"""Assignors by name: the four of this room, and those that users add by an entry point.

An assignor declares itself: its class has its name, whether it knows loads, which of its options
the settings of a group give, and where its twin on Spark is, as text, since nothing here imports
Spark. A new one is a file here, and a line in `_KINDS` with its import.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from importlib.metadata import entry_points
from typing import NoReturn, Protocol, runtime_checkable

from assignors.errors import SpecError
from assignors.group_spec import GroupSpec
from assignors.option_values import EXACT_EDGES, LONG_RANGES
from assignors.partition_ranges import PartitionRanges
from assignors.range import RangeAssignor
from assignors.sticky import StickyAssignor
from assignors.uniform import UniformAssignor
from assignors.weighted.assignor import WeightedAssignor
from assignors.weighted.problem import PREFER

ENTRY_POINTS = "muster.assignors"


def _make_sticky(
    imbalance: int | str = 0,
    max_moves: int | None = None,
    exact_edges: int = EXACT_EDGES,
    long_ranges: int = LONG_RANGES,
    defragment: int = 0,
    *,
    tolerance: str | None = None,
    max_moved_weight: float | None = None,
    rack: str | None = None,
    improvement: str | None = None,
    least_share: str | None = None,
) -> StickyAssignor | WeightedAssignor:
    """Return sticky, or, with an option of weighted, sticky by weight.

    By weight, all moves that the tolerance asks for are made, and no others: weighted, but with an
    improvement of 0% unless another is given.
    """
    if (tolerance, max_moved_weight, rack, improvement, least_share) == (None,) * 5:
        return StickyAssignor(imbalance, max_moves, exact_edges, long_ranges, defragment)
    if imbalance != 0:
        raise SpecError(
            f"imbalance {imbalance!r} counts partitions, and the other options weigh them: "
            "give tolerance instead of imbalance"
        )
    return WeightedAssignor(
        tolerance or "1%", max_moves, max_moved_weight, rack or PREFER, improvement or "0%",
        least_share or "0%",
    )  # fmt: skip


_KINDS: tuple[type[Assignor], ...] = (
    RangeAssignor,
    UniformAssignor,
    StickyAssignor,
    WeightedAssignor,
)
_DECLARED = {str(kind.name): kind for kind in _KINDS}
BUILT_IN = tuple(_DECLARED)
"""The names of those of this room."""
_BUILT_IN: dict[str, Callable[..., Assignor]] = {**_DECLARED, StickyAssignor.name: _make_sticky}


@runtime_checkable
class Assignor(Protocol):
    """An assignor: a name, and a pure function of a group.

    Users add their own by the entry point group `muster.assignors`: name = callable that takes the
    assignor's options as keywords and returns the assignor. It may declare, as attributes of the
    callable, what the four of this room declare: `knows_loads` (True), whether it gets weights,
    capacities and constraints; `options` (none), those that settings give; and `spark_twin` (None),
    the import path `module:name` of its twin (`spark_jobs.assignors.dispatch`).
    """

    @property
    def name(self) -> str:
        """The name by which groups ask for it."""

    def assign(self, group: GroupSpec) -> PartitionRanges:
        """Return who owns what.

        Parameters
        ----------
        group
            Members with their subscriptions, topics, and what members own.

        Returns
        -------
        PartitionRanges
            Each partition of a subscribed topic once, in the order (member, topic, first
            partition); ranges that touch are one.

        Raises
        ------
        SpecError
            The group has what this assignor does not know, or cannot be assigned.
        """


def assignor_names() -> list[str]:
    """Return the names of all assignors, built in and installed, sorted."""
    added = {point.name for point in entry_points(group=ENTRY_POINTS)}
    return sorted(_BUILT_IN.keys() | added)


def knows_loads(name: str) -> bool:
    """Tell whether an assignor gets weights, capacities and constraints.

    One that cannot be imported here, but could where a log was written, counts as one that does.
    """
    return bool(getattr(_find_declared(name), "knows_loads", True))


def options_of(name: str) -> tuple[str, ...]:
    """Return the options of an assignor that the settings of a group or coordinator give."""
    return tuple(getattr(_find_declared(name), "options", ()))


def spark_twin_of(name: str) -> str | None:
    """Return the import path of an assignor's twin on Spark; None if it runs in process only."""
    found = getattr(_find_declared(name), "spark_twin", None)
    return None if found is None else str(found)


def require_spark_twin(name: str) -> str:
    """Return the import path of an assignor's twin on Spark.

    Raises
    ------
    SpecError
        It has none.
    """
    twin = spark_twin_of(name)
    if twin is None:
        raise SpecError(f"assignor {name!r} does not run on Spark: use --engine local")
    return twin


def find_keeper(*, loads: bool) -> str:
    """Return the assignor of this room that can keep owners in place: it takes `max_moves`."""
    return next(
        name for name in BUILT_IN if "max_moves" in options_of(name) and knows_loads(name) == loads
    )


@lru_cache(maxsize=64)
def _find_declared(name: str) -> object:
    """Return what declares an assignor; None for one that is not installed, or not importable."""
    try:
        return _DECLARED.get(name) or _find_added(name)
    except ImportError:  # raised where it is to assign: `get_assignor`
        return None


def _find_added(name: str) -> Callable[..., Assignor] | None:
    """Return what makes an assignor that users added, by its name."""
    for point in entry_points(group=ENTRY_POINTS):
        if point.name == name:
            found: Callable[..., Assignor] = point.load()
            return found
    return None


def get_assignor(name: str, **options: object) -> Assignor:
    """Return an assignor by name.

    Parameters
    ----------
    name
        "range", "uniform", "sticky", "weighted", or the name of an entry point in
        `muster.assignors`.
    options
        The assignor's own: sticky takes imbalance and max_moves, weighted `WeightedAssignor`'s.
        Sticky with options of weighted keeps as much weight in place as the tolerance allows.

    Returns
    -------
    Assignor
        Its `assign` takes a `GroupSpec`. It keeps no state: one serves any number of groups.

    Raises
    ------
    SpecError
        No assignor has this name (the known ones are listed), or it does not take these options.
    """
    make = _BUILT_IN.get(name) or _find_added(name)
    if make is None:
        known = ", ".join(assignor_names())
        raise SpecError(f"unknown assignor {name!r}: give one of {known}")
    for option in options:
        if not _takes(make, option):
            _refuse_option(name, option)
    try:
        return make(**options)
    except TypeError as error:
        given = ", ".join(options) or "no options"
        raise SpecError(f"assignor {name!r} cannot be created with {given}: {error}") from None


def _takes(make: Callable[..., Assignor], option: str) -> bool:
    """Tell whether a callable has a keyword; what has no signature is asked by calling it."""
    names = _list_keywords(make)
    return names is None or option in names


@lru_cache(maxsize=64)  # a signature takes 100 us, as much as a tenth of a small group's target
def _list_keywords(make: Callable[..., Assignor]) -> frozenset[str] | None:
    """Return the keywords that a callable has; None where it takes any, or has no signature."""
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:
        return None
    open_ended = any(it.kind is it.VAR_KEYWORD for it in parameters.values())
    return None if open_ended else frozenset(parameters)


def _refuse_option(name: str, option: str) -> NoReturn:
    others = [other for other, make in _BUILT_IN.items() if _takes(make, option)]
    remedy = f", or use {' or '.join(others)}" if others else ""
    raise SpecError(f"assignor {name!r} has no option {option!r}: omit it{remedy}")
