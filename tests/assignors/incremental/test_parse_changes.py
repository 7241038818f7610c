"""Changes as JSON: what is read is what was written, and what is not of the form is refused."""

from __future__ import annotations

import json

import pytest

from assignors import GroupSpec, SpecError, get_assignor, quality
from assignors.incremental.changes import GroupChanges, change_group
from tests.assignors.incremental.changing_groups import ChangingGroup

GROUP = {
    "topics": {"x": 4, "y": 3},
    "members": {
        "a": {"subscribed": ["x", "y"], "owned": {"x": [0, 1, 2, 3]}},
        "b": {"subscribed": ["x", "y"], "owned": {"y": [0, 1, 2]}},
    },
}


def write(changes):
    """Return changes as JSON."""

    def members(some, keys):
        return {
            name: {"subscribed": [*one.subscribed]}
            | {key: one.names(f"{key}s")[at].as_py() for key in keys}
            for one in some
            for at, name in enumerate(one.member_ids.to_pylist())
        }

    return json.dumps(
        {
            "left": list(changes.left),
            "joined": members(changes.joined, ("instance_id", "rack")),
            "resubscribed": members(changes.resubscribed, ()),
            "topics": dict(changes.topics),
            "removed_topics": list(changes.removed_topics),
            "lists": [
                {"before": sorted(before), "after": sorted(after)}
                for before, after in changes.lists
            ],
            "renamed": dict(changes.renamed),
            "weights": dict(changes.weights),
        }
    )


@pytest.mark.parametrize("seed", range(12))
def test_changes_that_were_written_give_the_same_plan(seed):
    group = ChangingGroup(seed, options={"long_ranges": 0}, lists=seed % 3 + 1)
    for draw in (group.draw_topics, group.draw_growth, group.draw_growth):
        changes = draw()
        read = GroupChanges.from_json(write(changes))
        done = group.planned.after(read).planned
        planned = group.follow(changes)
        assert done.assignment() == planned.assignment()
        assert done.group().to_arrow() == planned.group().to_arrow()


def test_what_is_left_out_did_not_change():
    group = GroupSpec.from_dict(GROUP)
    same = change_group(group, group.owned(), GroupChanges.from_dict({}))
    assert same.to_arrow() == group.to_arrow()


def test_the_report_says_whose_partitions_were_free():
    """A member that joins again after it left owned nothing; one that only left is named."""
    group = GroupSpec.from_dict(GROUP)
    both = {"subscribed": ["x", "y"]}
    changes = GroupChanges.from_dict({"left": ["a", "b"], "joined": {"b": both, "c": both}})
    after = change_group(group, group.owned(), changes)
    found = quality.report(after, get_assignor("uniform").assign(after)).to_dict()
    assert found["reasons"] == {"owner left": 4, "nobody owned it": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected one JSON object with what changed, got 0: give one"),
        ("{} {}", "expected one JSON object with what changed, got 2: give one"),
        ("[]", "expected a JSON object with what changed, got a list"),
        ('{"joind": {}}', "changes: unknown field 'joind': the fields are left, joined"),
        ('{"left": "a"}', r"left is 'a', text: expected a list \[member id, …\]"),
        ('{"left": [1]}', "member id 1 is a number: expected text"),
        ('{"left": null}', "left is None, null: expected a list"),
        ('{"left": ["\\ud800"]}', "is not valid Unicode"),
        ('{"left": [], "left": []}', "'left' appears twice in one object"),
        ('{"joined": 5}', "joined is 5, expected an object"),
        ('{"joined": {"c": {}}}', "member 'c': subscribed is missing; give a list of topics"),
        ('{"joined": {"c": {"subscribed": [1]}}}', "topic 1 is a number: expected text"),
        ('{"joined": {"c": {"subscribed": [], "rack": 4}}}', "rack is 4, expected text or null"),
        ('{"joined": {"c": {"subscribed": [], "owned": {}}}}', "unknown field 'owned'"),
        ('{"resubscribed": {"a": {"subscribed": [], "rack": "r"}}}', "unknown field 'rack'"),
        ('{"topics": {"x": -1}}', "topic 'x' has partition count -1"),
        ('{"topics": {"x": true}}', "topic 'x' has partition count True"),
        ('{"topics": {"x": 1}, "removed_topics": ["x"]}', "'x' is in topics and in removed_topics"),
        ('{"lists": [[["x"], ["y"]]]}', "row 0 of lists is .*, expected an object"),
        ('{"lists": [{"before": ["x"]}]}', "row 0 of lists: 'after' is missing"),
        ('{"lists": [{"before": ["x"], "after": "y"}]}', "after of row 0 of lists is 'y', text"),
        ('{"renamed": {"a": 3}}', "member id 3 is a number: expected text"),
        ('{"weights": {"x": [1]}}', r"weights of topic 'x' is \[1\], expected an object"),
        ('{"weights": {"x": {"0": "1"}}}', "partition '0' has '1', text: give a number, or null"),
        ('{"weights": {"x": {"0": true}}}', "partition '0' has True"),
        ('{"weights": {"x": {"00": 1}}}', "partition '00': give the number of a partition"),
        ('{"weights": {"x": {"-1": 1}}}', "partition '-1': give the number of a partition"),
    ],
)
def test_changes_of_another_form_are_refused(text, message):
    with pytest.raises(SpecError, match=message):
        GroupChanges.from_json(text)


def test_weights_are_read_by_partition():
    read = GroupChanges.from_json('{"weights": {"x": {"0": 2, "3": 1.5, "1": null}}}')
    assert read.weights == {"x": {0: 2, 3: 1.5, 1: None}}
    group = GroupSpec.from_dict(GROUP)
    after = change_group(group, group.owned(), read)
    assert after.loads.known == 2
    assert (after.loads.weight * after.loads.weight_unit).tolist()[:4] == [2, 1.75, 1.75, 1.5]
