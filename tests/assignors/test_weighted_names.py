"""The names of the weighted assignor's API: each does what it says, from Arrow and from JSON."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from assignors import GroupSpec, PartitionRanges, SpecError, get_assignor, quality

SPEC = {
    "topics": {"clicks": 4},
    "members": {
        "big": {"subscribed": ["clicks"], "capacity": 2, "rack": "a"},
        "small": {"subscribed": ["clicks"], "rack": "b", "owned": {"clicks": [0, 1, 2, 3]}},
    },
    "weights": {"clicks": [6, 1, 1, 1]},
    "racks": {"clicks": [["b"], ["b"], ["b"], ["b"]]},
    "constraints": [
        {"kind": "pin", "selector": "clicks/3", "value": "big", "reason": "warm cache",
         "hard": True, "until": "2100-01-01"}
    ],
}  # fmt: skip
MEMBERS = pa.table(
    {"member_id": ["big", "small"], "subscribed": [["clicks"]] * 2, "capacity": [2.0, 1.0],
     "rack": ["a", "b"]}
)  # fmt: skip
TOPICS = pa.table({"topic": ["clicks"], "partitions": [4]})
OWNED = pa.table(
    {"member_id": ["small"], "topic": ["clicks"], "first_partition": [0], "partition_count": [4]}
)
PARTITIONS = pa.table(
    {"topic": ["clicks"] * 4, "partition": range(4), "weight": [6.0, 1.0, 1.0, 1.0],
     "racks": [["b"]] * 4}
)  # fmt: skip


def test_arrow_and_json_say_the_same():
    from_json = GroupSpec.from_json(json.dumps(SPEC))
    from_arrow = GroupSpec.from_arrow(
        MEMBERS, TOPICS, OWNED, partitions=PARTITIONS, constraints=SPEC["constraints"]
    )
    assigned = [
        get_assignor("weighted", rack="ignore").assign(it) for it in (from_json, from_arrow)
    ]
    assert isinstance(assigned[0], PartitionRanges)
    assert assigned[0] == assigned[1]
    proof = quality.report(from_json, assigned[0]).certificate
    assert (proof.lower_bound, proof.term, proof.weights_known) == (3.0, "share", 4)


@pytest.mark.parametrize(
    ("options", "big"),
    [
        ({"tolerance": "1%", "max_moves": None, "max_moved_weight": None, "rack": "ignore",
          "improvement": "5%"}, [0, 3]),
        ({"max_moves": 1, "rack": "ignore"}, [3]),  # what a hard rule moves always moves
        ({"max_moved_weight": 1, "rack": "ignore"}, [3]),
        ({"tolerance": "300%", "rack": "ignore"}, [3]),
        ({"improvement": "1000%", "rack": "ignore"}, [0, 3]),  # what is there breaks a rule
    ],
)  # fmt: skip
def test_options_have_the_names_of_the_guide(options, big):
    ranges = get_assignor("weighted", **options).assign(GroupSpec.from_dict(SPEC))
    assert ranges.to_dict()["big"] == {"clicks": big}


def test_racks_are_preferred_required_or_ignored():
    spec = {name: value for name, value in SPEC.items() if name != "constraints"}
    group = GroupSpec.from_dict(spec)
    assert get_assignor("weighted", rack="require").assign(group).to_dict()["big"] == {}
    assert get_assignor("weighted", rack="ignore").assign(group).to_dict()["big"] != {}
    prefer = get_assignor("weighted", rack="prefer").assign(group)
    assert quality.report(group, prefer).certificate.gap < 0.2  # balance comes before racks
    with pytest.raises(SpecError, match="rack is 'sometimes': give one of prefer, require, ignore"):
        get_assignor("weighted", rack="sometimes")


def test_sticky_by_weight_makes_the_moves_that_the_tolerance_asks_for():
    weights = {"clicks": [50, 48, 1, 1]}
    members = {
        "m1": {"subscribed": ["clicks"], "owned": {"clicks": [0, 2, 3]}},
        "m2": {"subscribed": ["clicks"], "owned": {"clicks": [1]}},
    }
    group = GroupSpec.from_dict({"topics": {"clicks": 4}, "members": members, "weights": weights})
    moved = {}
    for name, tolerance in (("weighted", "1%"), ("sticky", "1%"), ("sticky", "5%")):
        ranges = get_assignor(name, tolerance=tolerance).assign(group)
        moved[name, tolerance] = quality.report(group, ranges).moved
    assert moved == {("weighted", "1%"): 0, ("sticky", "1%"): 2, ("sticky", "5%"): 0}
    with pytest.raises(SpecError, match="give tolerance instead of imbalance"):
        get_assignor("sticky", imbalance=1, tolerance="1%")
