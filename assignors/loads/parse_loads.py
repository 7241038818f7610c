"""Read weights, capacities, racks and rules from tables or JSON, and resolve them for a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from assignors.arrays import Bools, Longs, label_lists, offsets_of, sort_lists
from assignors.errors import SpecError
from assignors.loads.constraints import (
    COLOCATE,
    PIN,
    ConstraintRow,
    Names,
    parse_constraints,
    resolve_constraints,
)
from assignors.loads.load_spec import (
    ACTIVE,
    STATES,
    Constraint,
    Floats,
    LoadSpec,
    fill_medians,
    quantise_capacities,
    quantise_weights,
)
from assignors.parse import show
from assignors.parse_tables import (
    LIST_TESTS,
    get_column,
    get_integers,
    get_strings,
    refuse_unknown_columns,
)

PARTITIONS_COLUMNS = (
    "topic", "partition", "weight", "move_cost", "racks", "colocate", "pinned_to",
)  # fmt: skip
NUMBER_MAX = 2.0**62
"""Greatest weight, capacity or cost."""
CAPACITY_MIN = 1e-18
"""Least capacity: loads are divided by it."""


@dataclass(frozen=True, slots=True, eq=False)
class RawLoads:
    """What was given, checked for its form; None where nothing was.

    Attributes
    ----------
    capacity, state, process
        One row per member, in the order given.
    weight, move_cost
        float64 (partitions,) on the line; NaN where unknown.
    rack_set, rack_sets
        As in `LoadSpec`.
    named
        The columns `colocate` and `pinned_to`: kind, places on the line, and a name for each.
    """

    capacity: Floats | None = None
    state: pa.StringArray | None = None
    process: pa.StringArray | None = None
    weight: Floats | None = None
    move_cost: Floats | None = None
    rack_set: Longs | None = None
    rack_sets: tuple[tuple[str, ...], ...] = ()
    named: tuple[tuple[str, Longs, pa.StringArray], ...] = ()
    constraints: tuple[ConstraintRow, ...] = ()
    as_of_ms: int | None = None

    @property
    def restricts(self) -> bool:
        """Whether some member may own nothing, or a rule says what may be where."""
        idle = self.state is not None and bool(pc.any(pc.not_equal(self.state, ACTIVE)).as_py())
        return idle or bool(self.constraints) or bool(self.named)

    def of_members(self, rows: Longs) -> RawLoads:
        """Return the same with some rows of members, in their order."""
        at = pa.array(rows)
        return replace(
            self,
            capacity=None if self.capacity is None else self.capacity[rows],
            state=None if self.state is None else self.state.take(at),
            process=None if self.process is None else self.process.take(at),
        )


def _with(raw: RawLoads, name: str, values: Any) -> RawLoads:  # noqa: ANN401 - a column
    """Return what was given with one more column."""
    return replace(raw, **{name: values})


def parse_load_tables(
    members: pa.Table | pa.RecordBatch,
    topics: pa.StringArray,
    counts: Longs,
    partitions: pa.Table | pa.RecordBatch | None,
    constraints: object,
    as_of_ms: int | None,
    *,
    topic_of: Longs | None = None,
) -> RawLoads | None:
    """Read the columns of docs/reference/formats.md#tables; None without any.

    Parameters
    ----------
    topic_of
        The topic of each row of partitions, as an index; None: looked up by name.

    Raises
    ------
    SpecError
        Names the table, the value and the remedy.
    """
    raw = RawLoads(as_of_ms=as_of_ms)
    if "capacity" in members.schema.names:
        capacity = _get_numbers(members, "members", "capacity", least=CAPACITY_MIN)
        raw = replace(raw, capacity=np.where(np.isnan(capacity), 1.0, capacity))
    for name in ("state", "process"):
        if name in members.schema.names:
            text = get_strings(members, "members", name, optional=True)
            raw = _with(raw, name, text)
    _refuse_states(raw.state, members["member_id"])
    if partitions is not None:
        raw = _parse_partitions(raw, partitions, topics, counts, topic_of)
    if constraints is not None:
        raw = replace(raw, constraints=tuple(parse_constraints(constraints)))
    given = (raw.capacity, raw.state, raw.process, partitions, constraints)
    return None if all(one is None for one in given) else raw


def _refuse_states(state: pa.StringArray | None, ids: Any) -> None:  # noqa: ANN401 - chunked or not
    if state is None:
        return
    strange = pc.invert(pc.or_kleene(pc.is_null(state), pc.is_in(state, pa.array(STATES))))
    if pc.any(strange).as_py():
        row = int(np.flatnonzero(np.asarray(strange))[0])
        raise SpecError(
            f"member {ids[row].as_py()!r} has state {state[row].as_py()!r}: "
            f"give one of {', '.join(STATES)}"
        )


def _get_numbers(
    table: pa.Table | pa.RecordBatch, where: str, name: str, *, least: float = 0.0
) -> Floats:
    """Read a column of numbers from `least` on, NaN for null."""
    column = get_column(table, where, name, "double")
    number = pt.is_floating(column.type) or pt.is_integer(column.type)
    if not (number or pt.is_decimal(column.type) or pt.is_null(column.type)):
        raise SpecError(f"{where}: column {name!r} is {column.type}, expected a number")
    values = column.cast(pa.float64(), safe=False).to_numpy()
    if not column.null_count and len(values):  # NaN is neither above nor below
        low, high = values.min(), values.max()
        if low >= least and high <= NUMBER_MAX:
            return np.asarray(values)
    given = np.asarray(pc.is_valid(column))
    values = np.where(given, values, np.nan)
    bad = np.flatnonzero(given & ~((values >= least) & (values <= NUMBER_MAX)))
    if len(bad):
        row = int(bad[0])
        keys = [key for key in ("member_id", "topic", "partition") if key in table.schema.names]
        who = ", ".join(f"{key} {table[key][row].as_py()!r}" for key in keys)
        _refuse_number(f"{where}: {who}", name, float(values[row]), least)
    return values


def _refuse_number(where: str, name: str, value: object, least: float) -> None:
    raise SpecError(
        f"{where} has {name} {show(value)}: give a number from {least:g} on, below 2^62"
    )


def _parse_partitions(
    raw: RawLoads,
    table: pa.Table | pa.RecordBatch,
    topics: pa.StringArray,
    counts: Longs,
    topic_of: Longs | None,
) -> RawLoads:
    names = get_strings(table, "partitions", "topic")
    number = get_integers(table, "partitions", "partition")
    refuse_unknown_columns(table.schema.names, PARTITIONS_COLUMNS, "partitions")
    place = _find_places(names, number, topics, counts, topic_of)
    total = int(counts.sum())
    for name in ("weight", "move_cost"):
        if name in table.schema.names:
            values = np.full(total, np.nan)
            values[place] = _get_numbers(table, "partitions", name)
            raw = _with(raw, name, values)
    if "racks" in table.schema.names:
        column = get_column(table, "partitions", "racks", "list<string>")
        if not any(test(column.type) for test in LIST_TESTS):
            raise SpecError(f"partitions: column 'racks' is {column.type}, expected list<string>")
        lists = column.cast(pa.large_list(pa.string())).combine_chunks()
        lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0), dtype=np.int64)
        raw = _with_racks(raw, place, lengths, lists.flatten(), total)
    for kind, name in ((COLOCATE, "colocate"), (PIN, "pinned_to")):
        if name in table.schema.names:
            text = get_strings(table, "partitions", name, optional=True)
            given = np.flatnonzero(np.asarray(pc.is_valid(text)))
            found = (kind, place[given], text.take(pa.array(given)))
            raw = replace(raw, named=(*raw.named, found))
    return raw


def _find_places(
    names: pa.StringArray,
    number: Longs,
    topics: pa.StringArray,
    counts: Longs,
    topic_of: Longs | None,
) -> Longs:
    """Return the places of partitions on the line; refuse what is not there, or there twice."""
    if topic_of is None:
        at = pc.index_in(names, value_set=topics)
        if at.null_count:
            row = int(np.flatnonzero(np.asarray(pc.is_null(at)))[0])
            raise SpecError(
                f"partitions: topic {names[row].as_py()!r} is not in topics: "
                "add it, or leave its partitions out"
            )
        topic_of = np.asarray(at, dtype=np.int64)
    topic = topic_of
    outside = np.flatnonzero((number < 0) | (number >= counts[topic]))
    if len(outside):
        row = int(outside[0])
        raise SpecError(
            f"partitions: topic {names[row].as_py()!r} has no partition {int(number[row])}, "
            f"it has {int(counts[topic[row]])}: correct the partition or the count"
        )
    place = offsets_of(counts)[topic] + number
    if (place[1:] > place[:-1]).all():  # as most tables are
        return place
    order = np.argsort(place, kind="stable")
    again = np.flatnonzero(np.diff(place[order]) == 0)
    if len(again):
        row = int(order[again[0]])
        raise SpecError(
            f"partitions: partition {int(number[row])} of topic {names[row].as_py()!r} "
            "appears twice: give each partition one row"
        )
    return place


def _with_racks(
    raw: RawLoads, place: Longs, lengths: Longs, flat: pa.StringArray, total: int
) -> RawLoads:
    """Number the sets of racks; an empty set is unknown."""
    names = pc.unique(flat.drop_null())
    names = names.take(pc.sort_indices(names))
    if flat.null_count:
        raise SpecError("partitions: column 'racks' lists a null: give names of racks")
    codes = np.asarray(pc.index_in(flat, value_set=names), dtype=np.int64)
    offsets, values = sort_lists(offsets_of(lengths), codes, max(len(names), 1))
    labels, heads = label_lists(offsets, values)
    words = names.to_pylist()
    sets = tuple(
        tuple(words[code] for code in values[offsets[head] : offsets[head + 1]]) for head in heads
    )
    rack_set = np.full(total, -1, dtype=np.int64)
    rack_set[place] = np.where(np.diff(offsets) > 0, labels, -1)
    return replace(raw, rack_set=rack_set, rack_sets=sets)


def parse_load_fields(
    spec: Mapping[str, Any], topics: pa.StringArray, counts: Longs, as_of_ms: int | None
) -> RawLoads | None:
    """Read the fields of docs/reference/formats.md#assignment-spec; None without any.

    Raises
    ------
    SpecError
        Names the field, the value and the remedy.
    """
    members = spec["members"]
    raw, given = RawLoads(as_of_ms=as_of_ms), False
    if any("capacity" in fields for fields in members.values()):
        values = [_check_capacity(member, fields) for member, fields in members.items()]
        raw, given = replace(raw, capacity=np.array(values, dtype=np.float64)), True
    for name in ("state", "process"):
        if any(fields.get(name) is not None for fields in members.values()):
            texts = [
                _check_text(member, name, fields.get(name)) for member, fields in members.items()
            ]
            raw, given = _with(raw, name, pa.array(texts, pa.string())), True
    _refuse_states(raw.state, pa.array(list(members), pa.string()))
    for field, name in (("weights", "weight"), ("move_costs", "move_cost")):
        if spec.get(field) is not None:
            numbers = _parse_number_lists(spec[field], field, topics, counts)
            raw, given = _with(raw, name, numbers), True
    if spec.get("racks") is not None:
        raw, given = _parse_rack_lists(raw, spec["racks"], topics, counts), True
    if spec.get("constraints") is not None:
        rows = tuple(parse_constraints(spec["constraints"]))
        raw, given = replace(raw, constraints=rows), True
    return raw if given else None


def _check_capacity(member: str, fields: Mapping[str, Any]) -> float:
    value = fields.get("capacity")
    if value is None:
        return 1.0
    if not _is_number(value) or not CAPACITY_MIN <= value <= NUMBER_MAX:
        _refuse_number(f"member {member!r}", "capacity", value, CAPACITY_MIN)
    return float(value)


def _check_text(member: str, name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise SpecError(f"member {member!r}: {name} is {show(value)}, expected text or null")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _lists_by_topic(
    value: object, field: str, topics: pa.StringArray, counts: Longs
) -> list[tuple[str, int, Sequence[Any]]]:
    """Return topic, its place on the line, and its list, one value per partition."""
    if not isinstance(value, Mapping):
        raise SpecError(f"{field} is {show(value)}, expected an object {{topic: [value, …]}}")
    at = {name: place for place, name in enumerate(topics.to_pylist())}
    start = offsets_of(counts)
    out: list[tuple[str, int, Sequence[Any]]] = []
    for topic, values in value.items():
        if topic not in at:
            raise SpecError(f"{field}: topic {show(topic)} is not in topics: add it, or drop it")
        if not isinstance(values, list | tuple) or len(values) != counts[at[topic]]:
            found = len(values) if isinstance(values, list | tuple) else show(values)
            raise SpecError(
                f"{field} of topic {topic!r}: found {found}; "
                f"give a list of {int(counts[at[topic]])}, one for each partition, null if unknown"
            )
        out.append((topic, int(start[at[topic]]), values))
    return out


def _parse_number_lists(value: object, field: str, topics: pa.StringArray, counts: Longs) -> Floats:
    out = np.full(int(counts.sum()), np.nan)
    for topic, start, values in _lists_by_topic(value, field, topics, counts):
        for at, one in enumerate(values):
            if one is not None and (not _is_number(one) or not 0 <= one <= NUMBER_MAX):
                _refuse_number(f"partition {at} of topic {topic!r}", field, one, 0.0)
        numbers = [np.nan if one is None else float(one) for one in values]
        out[start : start + len(values)] = numbers
    return out


def _parse_rack_lists(
    raw: RawLoads, value: object, topics: pa.StringArray, counts: Longs
) -> RawLoads:
    place: list[int] = []
    lengths: list[int] = []
    flat: list[str] = []
    for topic, start, lists in _lists_by_topic(value, "racks", topics, counts):
        for at, racks in enumerate(lists):
            if not isinstance(racks, list | tuple) or set(map(type, racks)) - {str}:
                raise SpecError(
                    f"racks of partition {at} of topic {topic!r}: found {show(racks)}; "
                    "give a list of names, [] if unknown"
                )
            place.append(start + at)
            lengths.append(len(racks))
            flat.extend(racks)
    return _with_racks(
        raw, np.array(place, dtype=np.int64), np.array(lengths, dtype=np.int64),
        pa.array(flat, pa.string()), int(counts.sum()),
    )  # fmt: skip


def resolve_loads(
    raw: RawLoads,
    order: Longs,
    member_ids: pa.StringArray,
    instance_ids: pa.StringArray,
    topics: pa.StringArray,
    counts: Longs,
    subscribed: Bools,
) -> LoadSpec:
    """Return what was given as integer columns, members in member order.

    Parameters
    ----------
    order
        Permutation of the rows given to member order.
    member_ids, instance_ids
        In member order.
    subscribed
        bool (topics,): a topic without subscribers weighs nothing.

    Raises
    ------
    SpecError
        Capacities differ too much.
    """
    total, start = int(counts.sum()), offsets_of(counts)
    raw = raw.of_members(order)
    capacity = np.ones(len(order)) if raw.capacity is None else raw.capacity
    active = np.ones(len(order), dtype=np.bool_)
    if raw.state is not None:
        active = np.asarray(pc.fill_null(pc.equal(raw.state, ACTIVE), fill_value=True))
    weight, known = find_weights(raw, start, subscribed)
    cost = weight if raw.move_cost is None else np.where(
        np.isnan(raw.move_cost), weight, raw.move_cost
    )  # fmt: skip
    units, unit = quantise_weights(weight)
    sizes, size_unit = quantise_capacities(capacity, member_ids.to_pylist())
    process = pa.nulls(len(order), pa.string()) if raw.process is None else raw.process
    constraints: tuple[Constraint, ...] = ()
    idle: tuple[str, ...] = ()
    if raw.constraints or raw.named:
        names = Names.of(topics, start, member_ids, instance_ids, process)
        constraints, idle = resolve_constraints(raw.constraints, names, raw.as_of_ms)
        constraints += _resolve_named(raw.named, names)
    return LoadSpec(
        capacity=sizes,
        capacity_unit=size_unit,
        active=active,
        weight=units,
        weight_unit=unit,
        move_cost=units if raw.move_cost is None else quantise_weights(cost, like=unit)[0],
        known=known,
        rack_set=np.full(total, -1) if raw.rack_set is None else raw.rack_set,
        rack_sets=raw.rack_sets,
        constraints=constraints,
        idle=idle,
        given=raw,
    )


def find_weights(raw: RawLoads, start: Longs, subscribed: Bools) -> tuple[Floats, int]:
    """Return all weights, (partitions,), and how many were given.

    Parameters
    ----------
    start
        int64 (topics + 1,): where each topic begins on the line.
    """
    total = int(start[-1])
    weight, known = np.ones(total), total
    if raw.weight is not None:
        known = total - int(np.count_nonzero(np.isnan(raw.weight)))
    if subscribed.all():
        return (weight if raw.weight is None else fill_medians(raw.weight, start)[0]), known
    wanted = np.repeat(subscribed, np.diff(start))
    if raw.weight is not None:
        weight, _ = fill_medians(np.where(wanted, raw.weight, np.nan), start)
    return np.where(wanted, weight, 0.0), known


def _resolve_named(
    named: Sequence[tuple[str, Longs, pa.StringArray]], names: Names
) -> tuple[Constraint, ...]:
    """Return the columns `colocate` and `pinned_to` as rules."""
    out: list[Constraint] = []
    none = np.zeros(0, dtype=np.int64)
    for kind, place, text in named:
        words = pc.unique(text)
        at = np.asarray(pc.index_in(text, value_set=words), dtype=np.int64)
        if kind == COLOCATE:
            label = -1 - at  # apart from the labels of rules
            order = np.argsort(place)
            first, count = _find_runs(place[order])
            out.append(
                Constraint(kind, "column colocate", None, True, first, count, label[order], none)
            )
            continue
        order = np.lexsort((place, at))
        ends = np.searchsorted(at[order], np.arange(len(words) + 1))
        for code, word in enumerate(words.to_pylist()):
            members = names.members.get(word)
            if members is not None:
                name, own = f"pinned_to {word}", place[order[ends[code] : ends[code + 1]]]
                first, count = _find_runs(own)
                out.append(Constraint(kind, name, None, True, first, count, none, members))
    return tuple(out)


def _find_runs(place: Longs) -> tuple[Longs, Longs]:
    """Return ascending places as runs."""
    begin = np.flatnonzero(np.diff(place, prepend=-2) != 1)
    return place[begin], np.diff(begin, append=len(place))
