"""Reads weights again and again, smooths them, and tells the event loop."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec

from assignors import SpecError
from assignors.registry import knows_loads
from coordinator.config.kafka import CLASSIC_ASSIGNOR, OFF
from coordinator.core.events import ReportLoads
from coordinator.core.plans.inputs import take_basis, take_classic_basis
from coordinator.core.plans.note_loads import rules_of, would_pay
from coordinator.core.state.plan_values import UNKNOWN, TopicWeights
from coordinator.core.state.records import LoadsNoted
from coordinator.core.targets.basis import Basis
from coordinator.engines.engine import LOCAL
from coordinator.errors import GroupError
from coordinator.errors.status import Status
from coordinator.runtime.event_loop import EventLoop
from coordinator.runtime.plan_tasks.kafka_weights import GroupPosition, KafkaWeights
from coordinator.runtime.plan_tasks.weight_source import (
    WeightSource,
    WeightTables,
    named_groups,
    read_group_loads,
)

DIGITS = 6
"""Of a smoothed weight: further ones would make it another weight at each look."""
logger = logging.getLogger("muster.coordinator")


@dataclass(slots=True)
class _Smoothed:
    """The weights of a group as of a time."""

    weights: dict[str, tuple[float, ...]]
    at_ms: int


class WeightPoller:
    """Reports the weights of groups to the event loop; one thread runs it.

    Parameters
    ----------
    loop
        What decides.
    source
        What is read at each turn.
    """

    def __init__(self, loop: EventLoop, source: WeightSource | KafkaWeights) -> None:
        self._loop = loop
        self._source = source
        self._smoothed: dict[str, _Smoothed] = {}

    def run(self) -> None:
        """Read the source, and report each group; one that cannot be read holds up no other."""
        try:
            tables = self._read()
            named = named_groups(tables)
        except (SpecError, OSError) as error:
            logger.warning("weights stay as they were: %s", error)
            return
        except GroupError as error:
            logger.info("weights are not read: %s", error.message)  # the coordinator closes
            return
        try:
            found = self._loop.call(lambda: self._find_groups(named)).result()
        except GroupError as error:
            logger.info("weights are not noted: %s", error.message)  # the coordinator closes
            return
        for basis in found:
            try:
                self._report(tables, basis)
            except SpecError as error:
                logger.warning("weights of group %s stay as they were: %s", basis.group_id, error)

    def _read(self) -> WeightTables:
        if not isinstance(self._source, KafkaWeights):
            return self._source()
        return self._source.read(self._loop.call(self._find_positions).result())

    def _find_positions(self) -> dict[str, GroupPosition]:
        """Return where the groups are whose assignor knows weights."""
        offsets = self._loop.processor.state.offsets
        return {
            basis.group_id: GroupPosition(
                {topic.key.name: topic.partitions for topic in basis.input.topics},
                {at: one.offset for at, one in offsets.get(basis.group_id, {}).items()},
            )
            for basis in self._find_groups(set())
        }

    def _find_groups(self, named: set[str]) -> list[Basis]:
        """Return the groups that are named, or whose assignor knows weights."""
        processor = self._loop.processor
        if processor.status is not Status.ACTIVE:
            return []
        found = []
        for group_id, group in processor.state.groups.items():
            if group_id in named or knows_loads(group.assignor):
                basis = take_basis(processor.state, processor.config, group_id, processor.steady())
                mark = group.mark()  # an engine compares the group of now with its plan
                given = replace(basis.input, prepared=mark, restored=mark)
                found.append(replace(basis, input=given))
        found += [
            take_classic_basis(processor.state, processor.config, group)
            for group_id, group in processor.state.classic.items()
            if group_id in named or _weighs(processor.state.settings.get(group_id, {}))
        ]
        gone = self._smoothed.keys() - {basis.group_id for basis in found}
        for group_id in gone:
            del self._smoothed[group_id]
        return found

    def _report(self, tables: WeightTables, basis: Basis) -> None:
        processor = self._loop.processor
        topics = {topic.key.name: topic.partitions for topic in basis.input.topics}
        loads = self._smooth(read_group_loads(tables, basis.group_id, topics), processor.steady())
        before = basis.input.loads
        if before is None and loads == LoadsNoted(basis.group_id):
            return
        drained = () if before is None else before.drained
        now = msgspec.structs.replace(loads, drained=drained)
        same = before is not None and rules_of(before) == rules_of(now)
        if same and before is not None and before.weights == now.weights:
            return
        config = processor.config.weights
        due = before is None or processor.steady() - before.timestamp >= config.interval_ms
        if same and not due:
            return
        pays = not self._leaves(basis, now) and would_pay(basis, now, processor.config)
        self._loop.submit([ReportLoads(now, pays)]).result()

    def _leaves(self, basis: Basis, loads: LoadsNoted) -> bool:
        """Tell whether a target of other weights is known to be the one that there is."""
        asked = replace(basis, input=replace(basis.input, loads=loads))
        return self._loop.target_computations.engine(LOCAL).leaves(asked)

    def _smooth(self, loads: LoadsNoted, now_ms: int) -> LoadsNoted:
        """Return an exponential average of the weights, by the half-life."""
        half_life = self._loop.processor.config.weights.half_life_ms
        before = self._smoothed.get(loads.group_id)
        weights = {one.topic: one.weights for one in loads.weights}
        if before is not None and half_life > 0:
            share = 0.5 ** (max(now_ms - before.at_ms, 0) / half_life)
            weights = {
                topic: _average(before.weights.get(topic, ()), new, share)
                for topic, new in weights.items()
            }
        self._smoothed[loads.group_id] = _Smoothed(weights, now_ms)
        rounded = tuple(
            TopicWeights(topic, tuple(float(f"{one:.{DIGITS}g}") for one in some))
            for topic, some in sorted(weights.items())
        )
        return msgspec.structs.replace(loads, weights=rounded)


def _weighs(settings: Mapping[str, str]) -> bool:
    """Tell whether weights decide who gets what in a classic group."""
    assignor = settings.get(CLASSIC_ASSIGNOR, OFF)
    return assignor != OFF and knows_loads(assignor)


def _average(old: tuple[float, ...], new: tuple[float, ...], share: float) -> tuple[float, ...]:
    """Return new weights with a share of the old ones in them; what was not known takes none."""
    padded = (*old, *[UNKNOWN] * max(len(new) - len(old), 0))
    return tuple(
        now if now < 0 or was < 0 else now + (was - now) * share
        for was, now in zip(padded, new, strict=False)
    )
