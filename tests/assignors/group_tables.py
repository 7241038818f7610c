"""Tables of many groups, made of specs; and the tables of each group alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tests.support import twins

Tables = tuple[pa.Table | None, ...]

_TEXT = pa.string()
MEMBERS = pa.schema(
    [("group_id", _TEXT), ("member_id", _TEXT), ("instance_id", _TEXT), ("rack", _TEXT),
     ("subscribed", pa.list_(_TEXT)), ("capacity", pa.float64()), ("state", _TEXT)]
)  # fmt: skip
TOPICS = pa.schema([("group_id", _TEXT), ("topic", _TEXT), ("partitions", pa.int64())])
OWNED = pa.schema(
    [("group_id", _TEXT), ("member_id", _TEXT), ("topic", _TEXT),
     ("first_partition", pa.int32()), ("partition_count", pa.int32())]
)  # fmt: skip
PARTITIONS = pa.schema(
    [("group_id", _TEXT), ("topic", _TEXT), ("partition", pa.int32()),
     ("weight", pa.float64()), ("racks", pa.list_(_TEXT))]
)  # fmt: skip
RULES = pa.schema([(name, _TEXT) for name in ("group_id", "kind", "selector", "value")])


def tables_of_groups(specs: dict[str, twins.Spec], *, shared: bool = False) -> Tables:
    """Return members, topics, owned, partitions and constraints of all groups, rows mixed.

    With `shared`, all groups have the same topics, and the tables of topics and partitions no
    group ids.
    """
    rows: dict[str, list[dict[str, Any]]] = {}
    counts: dict[str, int] = {}
    for group_id, spec in specs.items():
        for topic, count in spec["topics"].items():
            counts[topic] = max(count, counts.get(topic, 0))
        for kind, found in _rows_of(group_id, spec).items():
            rows.setdefault(kind, []).extend(found)
    topics = pa.Table.from_pylist(rows["topics"][::-1], TOPICS)
    if shared:
        topics = pa.table({"topic": list(counts), "partitions": list(counts.values())})
    weighted = any("weights" in spec or "racks" in spec for spec in specs.values())
    rules = rows["constraints"]
    members = pa.Table.from_pylist(rows["members"][1::2] + rows["members"][::2], MEMBERS)
    if not weighted and not rules:
        members = members.drop_columns(["capacity", "state"])
    return (
        members,
        topics,
        pa.Table.from_pylist(rows["owned"][::-1], OWNED),
        pa.Table.from_pylist(rows["partitions"][::-1], PARTITIONS) if weighted else None,
        pa.Table.from_pylist(rules, RULES) if rules else None,
    )


def _rows_of(group_id: str, spec: twins.Spec) -> dict[str, list[dict[str, Any]]]:
    own = {"group_id": group_id}
    members, owned, partitions = [], [], []
    for member, fields in spec["members"].items():
        kept = {name: value for name, value in fields.items() if name != "owned"}
        members.append(own | {"member_id": member} | kept)
        for topic, numbers in (fields.get("owned") or {}).items():
            owned += [
                own
                | {"member_id": member, "topic": topic, "first_partition": p, "partition_count": 1}
                for p in numbers
            ]
    weights, racks = spec.get("weights") or {}, spec.get("racks") or {}
    for topic, count in spec["topics"].items():
        for at in range(count):
            row = own | {"topic": topic, "partition": at}
            row["weight"] = weights[topic][at] if topic in weights else None
            row["racks"] = racks[topic][at] if topic in racks else None
            partitions.append(row)
    topics = [own | {"topic": t, "partitions": count} for t, count in spec["topics"].items()]
    rules = [own | rule for rule in spec.get("constraints") or []]
    return {
        "members": members, "topics": topics, "owned": owned,
        "partitions": partitions, "constraints": rules,
    }  # fmt: skip


def alone(tables: Tables) -> dict[str, Tables]:
    """Return the tables of each group, as one run a group has them."""
    members = tables[0]
    assert members is not None
    out: dict[str, Tables] = {}
    for group_id in sorted(set(members["group_id"].to_pylist())):
        out[group_id] = tuple(None if it is None else _own(it, group_id) for it in tables)
    return out


def _own(table: pa.Table, group_id: str) -> pa.Table:
    if "group_id" not in table.schema.names:
        return table
    mine = [name == group_id for name in table["group_id"].to_pylist()]
    return table.filter(pa.array(mine)).drop_columns(["group_id"])


def mixed_tables(groups: int) -> Tables:
    """Return groups with weights and capacities, without rules."""
    from tests.assignors import weighted_twins

    specs = {f"g{seed:02}": weighted_twins.random_spec(seed, rules=False) for seed in range(groups)}
    return tables_of_groups(specs)
