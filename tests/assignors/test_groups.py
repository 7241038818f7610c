"""Many groups in one run: each gets the rows, and the figures, that it gets alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from assignors import GroupSpec, SpecError, get_assignor, quality
from assignors.groups.assign_groups import GROUPS_SCHEMA, assign_groups
from assignors.groups.group_set import GroupSet
from tests.assignors import weighted_twins
from tests.assignors.group_tables import alone, mixed_tables, tables_of_groups
from tests.support import twins

OPTIONS = {
    "range": [{}],
    "uniform": [{}],
    "sticky": [{"imbalance": 1}, {"imbalance": "30%", "max_moves": 2}],
    "weighted": [{}, {"max_moves": 1}],
}


def plain_spec():
    return {"topics": {"t0": 3}, "members": {f"m{n}": {"subscribed": ["t0"]} for n in range(2)}}


def read(tables):
    members, topics, owned, partitions, constraints = tables
    return GroupSet.from_arrow(
        members, topics, owned, partitions=partitions, constraints=constraints
    )


def expected(tables, assignor):
    """Return the rows and the reports of one run a group."""
    rows, reports = [], {}
    for group_id, own in alone(tables).items():
        members, topics, owned, partitions, constraints = own
        group = GroupSpec.from_arrow(
            members, topics, owned, partitions=partitions, constraints=constraints
        )
        ranges = assignor.assign(group)
        rows += [{"group_id": group_id} | row for row in ranges.to_arrow().to_pylist()]
        reports[group_id] = quality.report(group, ranges)
    return rows, reports


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("shared", [False, True])
def test_every_group_gets_what_it_gets_alone(name, shared):
    specs = {f"g{seed:02}": twins.random_spec(seed) for seed in range(60)}

    tables = tables_of_groups(specs, shared=shared)
    for options in OPTIONS[name]:
        assignor = get_assignor(name, **options)
        done = assign_groups(read(tables), assignor)
        rows, reports = expected(tables, assignor)
        assert done.rows.schema == GROUPS_SCHEMA
        assert done.rows.to_pylist() == rows
        check_summary(done.summary, reports)


@pytest.mark.parametrize("name", ["uniform", "weighted"])
def test_weights_and_rules_hold_in_each_group(name):
    """What is refused alone is left out; with weights every group runs by itself."""
    tables = tables_of_groups(good_specs(name, rules=name == "weighted"))
    done = assign_groups(read(tables), get_assignor(name))
    rows, reports = expected(tables, get_assignor(name))
    assert done.rows.to_pylist() == rows
    check_summary(done.summary, reports)


def good_specs(name, rules):
    found = {}
    for seed in range(60):
        spec = weighted_twins.random_spec(seed, rules=rules)
        try:
            get_assignor(name).assign(GroupSpec.from_dict(spec))
        except SpecError:
            continue
        found[f"g{seed:02}"] = spec
    return found


def check_summary(summary, reports):
    assert summary["group_id"].to_pylist() == sorted(reports)
    for row in summary.to_pylist():
        report = reports[row["group_id"]]
        totals = report.totals()
        for name in ("members", "partitions", "moved", "moved_lower_bound", "moved_minimum",
                     "exact", "partial", "orphans", "contested", "ranges", "ranges_max"):  # fmt: skip
            assert row[name] == totals[name], (row["group_id"], name)
        assert (row["load_min"], row["load_max"]) == (report.load_min, report.load_max)
        assert (row["problem"] is None) == report.valid
        if report.certificate is not None and row["makespan"] is not None:
            for name in ("makespan", "lower_bound", "term", "moved_weight", "weights_known"):
                assert row[name] == getattr(report.certificate, name)


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda specs: specs["g07"]["members"]["m0"]["subscribed"].append("none"), "topic 'none'"),
        (lambda specs: specs["g07"]["members"]["m0"].update(owned={"t0": [999]}), "999"),
        (lambda specs: specs["g07"]["topics"].update(t0=-1), "partition count -1"),
    ],
)
def test_one_bad_group_refuses_all_by_name(spoil, says):
    specs = {f"g{seed:02}": plain_spec() for seed in range(11)}
    spoil(specs)
    with pytest.raises(SpecError, match=f"^group 'g07': .*{says}"):
        read(tables_of_groups(specs))


def test_a_rule_that_cannot_hold_names_its_group():
    specs = {name: {"topics": {"a": 2}, "members": {"m": {"subscribed": ["a"]}}} for name in "xy"}
    specs["y"]["constraints"] = [{"kind": "exclude", "selector": "a/1", "value": "m"}]
    groups = read(tables_of_groups(specs))
    with pytest.raises(SpecError, match=r"^group 'y': partition 1 of topic 'a'"):
        assign_groups(groups, get_assignor("weighted"))


def test_assigning_again_moves_nothing_and_order_does_not_matter():
    members, topics, _, partitions, _ = tables = mixed_tables(30)
    done = assign_groups(read(tables), get_assignor("weighted"))
    back = [None if it is None else it.take(pa.array(range(len(it))[::-1])) for it in
            (members, topics, done.rows, partitions, None)]  # fmt: skip
    again = assign_groups(read(back), get_assignor("weighted"))
    assert again.rows.equals(done.rows)
    assert sum(again.summary["moved"].to_pylist()) == 0


def test_owned_must_say_whose_it_is():
    members, topics, owned, *_ = tables_of_groups({"g": plain_spec()})
    with pytest.raises(SpecError, match="owned: column 'group_id' is missing"):
        GroupSet.from_arrow(members, topics, owned.drop_columns(["group_id"]))


def test_no_group_and_groups_without_members():
    empty = pa.table({"group_id": pa.array([], pa.string()), "member_id": pa.array([], pa.string()),
                      "subscribed": pa.array([], pa.list_(pa.string()))})  # fmt: skip
    topics = pa.table({"group_id": ["g"], "topic": ["a"], "partitions": [3]})
    assert (
        len(
            assign_groups(GroupSet.from_arrow(empty, topics.slice(1)), get_assignor("uniform")).rows
        )
        == 0
    )
    done = assign_groups(GroupSet.from_arrow(empty, topics), get_assignor("uniform"))
    assert done.summary.select(["group_id", "members", "partitions"]).to_pylist() == [
        {"group_id": "g", "members": 0, "partitions": 0}
    ]
