"""The plan: how many partitions each class and type keeps, loses and gets.

See docs/design/algorithm.md#fewest-moves and #imbalance.

It is solved on classes, topic classes and types, never on members or partitions, and the same way
for both engines: who owns what it asks of an `OwnershipSource`, which knows all members, or for a
group in blocks how many own alike.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np

from assignors.arrays import PARTITIONS_MAX, Bools, Longs, offsets_of, sum_by
from assignors.compressed_problem import (
    Cells,
    CompressedProblem,
    Leaves,
    find_leaves,
    refine_leaves,
)
from assignors.network_flow import ArcBlocks
from assignors.option_values import EXACT_EDGES
from assignors.water_level import Histogram, count_drops_needed

ABOVE_ALL = 2 * PARTITIONS_MAX
"""A load that no member has: with `above` at it, no member becomes a type."""


@dataclass(frozen=True, slots=True)
class CompressedOwnership:
    """What members of flow cells own within their cell, compressed.

    A *node* stands for the members of one type (all own alike), or for all members of a class with
    a load in (low, above], taken together.

    Attributes
    ----------
    below
        Per pair of the problem: owned by members whose load is at most low.
    node_class, node_members, node_base, node_extra
        Per node: its class, members, and how much of what they own fits under low and up to high.
    typed
        Per node: whether it is one type. Types are numbered by (class, first member).
    node_entries
        Node n's entries are node_entries[n]:node_entries[n + 1].
    entry_topic, entry_owned
        Per entry: the topic class, and partitions of it that one member of the type owns (or all
        members of the class together).
    """

    below: Longs
    node_class: Longs
    node_members: Longs
    node_base: Longs
    node_extra: Longs
    typed: Bools
    node_entries: Longs
    entry_topic: Longs
    entry_owned: Longs

    @property
    def entry_node(self) -> Longs:
        """The node of each entry."""
        return np.repeat(np.arange(len(self.node_class)), np.diff(self.node_entries))

    @property
    def entry_total(self) -> Longs:
        """Partitions owned per entry, by all members of the node."""
        times = np.where(self.typed, self.node_members, 1)
        return self.entry_owned * times[self.entry_node]


class OwnershipSource(Protocol):
    """Who owns what, as the plan asks for it."""

    def loads(self, cells: Cells) -> Histogram:
        """Count members by class and by load within their cell."""

    def crossing(self, cells: Cells) -> int:
        """Count owned partitions whose topic lies in another cell than the owner."""

    def compress(self, cells: Cells, above: Longs, entries_max: int) -> CompressedOwnership | None:
        """Compress flow cells; members with a load over `above` (per class) become types.

        None when the types have more than `entries_max` entries.
        """


@dataclass(frozen=True, slots=True)
class Flows:
    """A solved plan of the flow cells.

    Attributes
    ----------
    held
        What it was solved on.
    kept_below
        Per pair: what members at or below low keep.
    kept
        Per entry of `held`: what its node keeps, all members together.
    new
        Per pair: partitions of the pool of the topic class that go to the class.
    """

    held: CompressedOwnership
    kept_below: Longs
    kept: Longs
    new: Longs

    @property
    def dropped(self) -> int:
        """Partitions that change hands within flow cells."""
        return int(self.held.below.sum() - self.kept_below.sum()) + int(
            self.held.entry_total.sum() - self.kept.sum()
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What an assignment must look like, before it is decided which member gets which partition.

    Attributes
    ----------
    cells
        Parts and bounds.
    loads
        Members by load within their cell.
    drops
        (C,) for classes alone in their cell: partitions to be given up.
    flows
        The flow cells, None without any.
    moved
        Owned partitions that change hands: the minimum when `exact`, else a lower bound of it.
    exact
        Whether every type was solved for itself.
    """

    cells: Cells
    loads: Histogram
    drops: Longs
    flows: Flows | None
    moved: int
    exact: bool


def count_class_partitions(cells: Cells) -> Longs:
    """Return per class that is alone in its cell the partitions it must take, else 0."""
    problem = cells.problem
    alone = cells.alone[cells.of_class[problem.pair_class]]
    return sum_by(
        problem.pair_class[alone], problem.partitions[problem.pair_topic[alone]], len(problem.size)
    )


def solve_plan(
    cells: Cells, owned: OwnershipSource, exact_edges: int = EXACT_EDGES, *, lazy: bool = False
) -> Plan:
    """Find the fewest moves within the cells and bounds given.

    Parameters
    ----------
    lazy
        Try first without types for members between low and high, and make types only of classes
        that the flow then takes something from: exact as well, and smaller where bounds are wide.
    """
    loads, crossing = owned.loads(cells), owned.crossing(cells)
    alone = cells.alone[cells.of_class]
    needed = count_drops_needed(loads, cells.low, cells.high, count_class_partitions(cells))
    drops = np.where(alone, needed, 0)
    moved = crossing + int(drops.sum())
    if alone.all():
        return Plan(cells, loads, drops, None, moved, exact=True)
    above = np.where(lazy, cells.high, cells.low)
    entries_max = max(exact_edges - len(cells.problem.pair_class), 0)
    while True:
        held = owned.compress(cells, above, entries_max)
        if held is None:
            held = owned.compress(cells, np.full_like(above, ABOVE_ALL), entries_max)
            assert held is not None, "without types there is nothing to refuse"
            flows = _solve_flows(cells, held)
            exact = len(_find_cut_classes(flows)) == 0
            return Plan(cells, loads, drops, flows, moved + flows.dropped, exact)
        flows = _solve_flows(cells, held)
        cut = _find_cut_classes(flows)
        if not len(cut):
            return Plan(cells, loads, drops, flows, moved + flows.dropped, exact=True)
        above[cut] = cells.low[cut]


def plan_uniform_cells(problem: CompressedProblem) -> Cells:
    """Return the leaves, every member within floor and ceiling of its leaf."""
    found = find_leaves(problem)
    floor, ceiling = found.floor, found.ceiling
    at = found.of_class
    return Cells.of(problem, at, found.of_topics, floor[at], ceiling[at])


def solve_sticky_plan(
    problem: CompressedProblem,
    imbalance: int | Fraction,
    owned: OwnershipSource,
    exact_edges: int = EXACT_EDGES,
) -> Plan:
    """Find the fewest moves with every load within `imbalance` of its level.

    Where classes compete, the plan is solved again with the tightest bounds that cost no more
    moves: among the assignments with the fewest moves it is as fair as such bounds make it.
    """
    if imbalance == 0:
        return solve_plan(plan_uniform_cells(problem), owned, exact_edges)
    loose = _LooseBounds.of(problem, imbalance)
    widest = loose.widest
    best = solve_plan(loose.cells(widest), owned, exact_edges, lazy=True)
    if best.flows is None or not best.exact:
        return best
    low, high = 0, widest  # low: not known to do; high: costs no more than `best`
    while low < high:
        middle = (low + high) // 2
        plan = solve_plan(loose.cells(middle), owned, exact_edges, lazy=middle > 0)
        if plan.exact and plan.moved == best.moved:
            best, high = plan, middle
        else:
            low = middle + 1
    return best


def bound_equal_loads(partitions: int, members: int, imbalance: int | Fraction) -> tuple[int, int]:
    """Return the bounds of every load when all subscriptions are equal: one leaf, one class."""
    floor, extras = divmod(partitions, members)
    wide = imbalance if isinstance(imbalance, int) else math.ceil(imbalance * partitions / members)
    wide = min(wide, PARTITIONS_MAX)
    return max(floor - wide, 0), min(floor + (extras > 0) + wide, PARTITIONS_MAX)


@dataclass(frozen=True, slots=True)
class _LooseBounds:
    """Bounds around the levels: cells are what is connected, or the leaves at tolerance 0."""

    problem: CompressedProblem
    parts: Leaves
    levels: Leaves
    tolerance: Longs

    @classmethod
    def of(cls, problem: CompressedProblem, imbalance: int | Fraction) -> _LooseBounds:
        levels = refine_leaves(problem, find_leaves(problem))
        parts = Leaves.connected(problem, problem.pair_topic, problem.pair_class)
        tolerance = np.full(len(problem.size), imbalance if isinstance(imbalance, int) else 0)
        if isinstance(imbalance, Fraction):
            share = [  # Python integers: a leaf's partitions × the fraction may pass 2⁶³
                -(-int(p) * imbalance.numerator // (imbalance.denominator * max(int(n), 1)))
                for p, n in zip(levels.partitions, levels.members, strict=True)
            ]
            tolerance = np.array(share, dtype=np.int64)[levels.of_class]
        return cls(problem, parts, levels, np.minimum(tolerance, PARTITIONS_MAX))

    @property
    def widest(self) -> int:
        competing = self.parts.classes[self.parts.of_class] > 1
        return int(self.tolerance[competing].max(initial=0))

    def cells(self, most: int) -> Cells:
        """Return bounds with the tolerance of competing classes limited to `most`."""
        levels, competing = self.levels, self.parts.classes[self.parts.of_class] > 1
        wide = np.where(competing, np.minimum(self.tolerance, most), self.tolerance)
        floor, ceiling = levels.floor[levels.of_class], levels.ceiling[levels.of_class]
        part = self.levels if most == 0 else self.parts
        return Cells.of(
            self.problem,
            part.of_class,
            part.of_topics,
            np.maximum(floor - wide, 0),
            np.minimum(ceiling + wide, PARTITIONS_MAX),
        )


def _find_cut_classes(flows: Flows) -> Longs:
    """Return the classes whose untyped node loses something: they need types."""
    held = flows.held
    cut = flows.kept < held.entry_total
    node = held.entry_node[cut]
    return np.unique(held.node_class[node[~held.typed[node]]])


def _solve_flows(cells: Cells, held: CompressedOwnership) -> Flows:
    """Solve the flow of docs/design/algorithm.md#fewest-moves for all flow cells at once."""
    problem = cells.problem
    competing = ~cells.alone
    pairs = np.flatnonzero(competing[cells.of_class[problem.pair_class]])
    own = pairs[held.below[pairs] > 0]
    topics = np.flatnonzero(competing[cells.of_topics])
    classes = np.flatnonzero(competing[cells.of_class])
    node = np.arange(len(held.node_class))
    nodes = _Nodes.of(len(problem.partitions), len(problem.size), len(node), cells)
    under_low = problem.size * cells.low
    low_to_high = problem.size * (cells.high - cells.low)
    above_low = _count_above_low(cells, under_low)
    total = int(problem.partitions[topics].sum())

    arcs = ArcBlocks()
    arcs.add("partitions", 0, nodes.topic + topics, problem.partitions[topics])
    # What stays with its owner costs nothing.
    arcs.add(
        "kept below",
        nodes.topic + problem.pair_topic[own],
        nodes.base + problem.pair_class[own],
        held.below[own],
    )
    arcs.add("kept", nodes.topic + held.entry_topic, nodes.held + held.entry_node, held.entry_total)
    arcs.add("kept, to low", nodes.held + node, nodes.base + held.node_class, held.node_base)
    arcs.add("kept, to high", nodes.held + node, nodes.extra + held.node_class, held.node_extra)
    # What comes from the pool costs one per partition.
    arcs.add(
        "new",
        nodes.topic + problem.pair_topic[pairs],
        nodes.new + problem.pair_class[pairs],
        problem.partitions[problem.pair_topic[pairs]],
        cost=1,
    )
    arcs.add("new, to the class", nodes.new + classes, nodes.base + classes, total)
    # Each class gets low a member, and together the classes of a cell what is above that.
    arcs.add("low", nodes.base + classes, nodes.sink, under_low[classes])
    arcs.add("over low", nodes.base + classes, nodes.extra + classes, low_to_high[classes])
    arcs.add(
        "to high",
        nodes.extra + classes,
        nodes.cell + cells.of_class[classes],
        low_to_high[classes],
    )
    arcs.add(
        "above low of the cell",
        nodes.cell + np.flatnonzero(competing),
        nodes.sink,
        above_low[competing],
    )
    flow = arcs.find_cheapest_flow(nodes.sink + 1, 0, nodes.sink, total)

    kept_below, new = np.zeros_like(held.below), np.zeros_like(held.below)
    kept_below[own] = flow["kept below"]
    new[pairs] = flow["new"]
    return Flows(held, kept_below, flow["kept"], new)


def _count_above_low(cells: Cells, under_low: Longs) -> Longs:
    """Return per cell its partitions beyond what its members have at low."""
    count = len(cells.alone)
    amount = sum_by(cells.of_topics, cells.problem.partitions, count)
    return amount - sum_by(cells.of_class, under_low, count)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Where each kind of node starts in the network; 0 is the source."""

    topic: int
    held: int
    base: int
    extra: int
    new: int
    cell: int
    sink: int

    @classmethod
    def of(cls, topics: int, classes: int, held: int, cells: Cells) -> _Nodes:
        counts = [1, topics, held, classes, classes, classes, len(cells.alone)]
        _, topic, held_at, base, extra, new, cell, sink = offsets_of(np.array(counts)).tolist()
        return cls(topic, held_at, base, extra, new, cell, sink)
