"""The list of groups, and one group now: what an operator reads there."""

from __future__ import annotations

import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from coordinator import Coordinator
from coordinator.config import Config, WeightsConfig
from coordinator.core.state.groups import GroupState
from coordinator.core.state.plan_values import TopicWeights
from coordinator.core.state.records import LoadsNoted
from coordinator.history import frame
from coordinator.web import group_list
from coordinator.web.activity import Activity, Epochs
from coordinator.web.store_reader import StoreReader
from tests.support.members import join
from tests.support.stories import MINUTE, NOON, Story, many_groups, stored
from tests.web.browsing import browse, five_groups, rows_of


@pytest.fixture(scope="module")
def stories(tmp_path_factory):
    """Six groups, all settled."""
    return stored(five_groups(), tmp_path_factory.mktemp("stories"))


@pytest.fixture(scope="module")
def waiting(tmp_path_factory):
    """m1 does not give up what m2 and m3 are to have."""
    story = Story("billing").topics(orders=9)
    story.at(-5).join("m1", "orders", instance_id="one")
    story.hold_on("m1").at(1).join("m2", "orders").at(1.5).join("m3", "orders")
    return stored(story.batches, tmp_path_factory.mktemp("waiting"))


def test_the_list_of_groups(stories):
    client = browse(stories)
    rows = rows_of(client.get("/?sort=group_id"))
    assert [row[0] for row in rows] == ["alerts", "billing", "ledger", "search", "shipping"]
    assert rows[0][1:] == ["Stable", "2026-03-01 12:00:00 UTC", "", "2", "6", "5", "1", "consumer"]
    by_members = client.get("/groups.json", params={"sort": "-members", "rows": 2, "page": 2})
    assert by_members.json() == by_members.json() | {"total": 5, "page": 2, "pages": 3}
    assert [row["members"] for row in by_members.json()["groups"]] == [1, 1]


def test_every_column_sorts_both_ways_and_pages_part_the_rows(stories):
    client = browse(stories)
    names = client.get("/groups.json").json()["groups"][0]
    for name in names.keys() & {"group_id", "state", "since", "partitions", "rebalances"}:
        for sign in ("", "-"):
            ask = {"sort": sign + name, "rows": 2}
            found = [
                row
                for page in (1, 2, 3)
                for row in client.get("/groups.json", params=ask | {"page": page}).json()["groups"]
            ]
            values = [row[name] for row in found]
            assert values == sorted(values, reverse=bool(sign))
            assert len({row["group_id"] for row in found}) == 5


def test_groups_that_need_an_operator_come_first(tmp_path):
    """What has not settled, the longest first; then what rebalances most."""
    store = many_groups([3, 9], ["batching", "coordinator"], tmp_path)
    client = browse(store)
    rows = client.get("/groups.json?rows=500").json()["groups"]
    assert rows == sorted(rows, key=lambda row: row["group_id"]), "programs read page after page"
    unsettled = {GroupState.RECONCILING.value, GroupState.ASSIGNING.value}
    for row in rows:
        assert row["unsettled_since"] == (row["since"] if row["state"] in unsettled else None)
    wanted = sorted(
        rows,
        key=lambda row: (
            *(row["unsettled_since"] or "9", -row["plans_waiting"], -row["rebalances"]),
            row["group_id"],
        ),
    )
    assert 0 < sum(row["state"] in unsettled for row in rows) < len(rows)
    shown = [row[0] for row in rows_of(client.get("/?rows=500"))]
    assert shown == [row["group_id"] for row in wanted]
    assert "Unsettled groups first" not in client.get("/").text
    assert "Unsettled groups first" in client.get("/?sort=group_id").text


def test_groups_are_filtered_by_text_and_state(stories):
    client = browse(stories)
    assert [row[0] for row in rows_of(client.get("/?q=LL"))] == ["billing"]
    assert rows_of(client.get("/?state=Empty")) == [["No group matches."]]
    assert rows_of(client.get("/?q=(")) == [["No group matches."]]
    assert 'value="(' in client.get("/?q=(").text


def test_who_is_waited_for_and_since_when(waiting):
    client = browse(waiting)
    (row,) = client.get("/groups.json").json()["groups"]
    assert row["state"] == "Reconciling"
    assert (row["waits_for"], row["first_waited_for"]) == (1, "m1")
    assert row["since"] == "2026-03-01T12:01:00.000Z", "m2 came then; since then it has not settled"
    page = client.get("/group?id=billing").text
    assert "Waits for 1 member:" in page
    assert "to give up 4 partitions, and has not" in " ".join(page.split())
    found = client.get("/group.json?id=billing").json()
    members = {row["member_id"]: row for row in found["members"]}
    m1 = members["m1"]
    assert (m1["state"], m1["owned"], m1["pending"], m1["target"], m1["gives"], m1["gets"]) == (
        "unrevoked partitions", 9, 4, 3, 6, 0,
    )  # fmt: skip
    assert (m1["instance_id"], m1["waited"]) == ("one", True)
    assert [(members[name]["owned"], members[name]["gets"]) for name in ("m2", "m3")] == [
        (0, 3)
    ] * 2
    assert found["moving"] == 6
    assert [row[0] for row in rows_of(client.get("/group?id=billing&only=waited"))] == [
        "m1instance one"
    ]


def test_a_group_as_of_a_former_time(waiting):
    client = browse(waiting)
    before = client.get("/group.json", params={"id": "billing", "at_ms": NOON - MINUTE}).json()
    assert [row["member_id"] for row in before["members"]] == ["m1"]
    assert before["state"] == "Stable"
    same = client.get("/group", params={"id": "billing", "at": str(before["position"])})
    assert "Go to now" in same.text
    assert len(rows_of(same)) == 1
    assert client.get("/group?id=billing&at_ms=5").status_code == 400, "before the log"


@pytest.mark.parametrize("seed", range(3))
def test_states_and_counts_are_those_of_the_views(tmp_path, seed):
    """Of any log: the list says of each group what the views do, and its page the same."""
    store = many_groups([3 + seed, 9 + seed], ["batching", "coordinator"], tmp_path)
    client = browse(store)
    rows = client.get("/groups.json?rows=500").json()["groups"]
    known = frame(store, "groups")
    assert [(r["group_id"], r["state"], r["members"]) for r in rows] == [
        (r["group_id"], r["state"], r["members"]) for r in known.to_pylist()
    ]
    unsettled = {GroupState.RECONCILING.value, GroupState.ASSIGNING.value}
    for row in rows:
        found = client.get("/group.json", params={"id": row["group_id"], "rows": 500}).json()
        members = found["members"]
        assert row["partitions"] == found["partitions"] == sum(m["owned"] for m in members)
        assert row["waits_for"] == sum(m["waited"] for m in members)
        if row["waits_for"]:
            assert row["state"] in unsettled
        if row["state"] == GroupState.STABLE.value and found["group_type"] == "consumer":
            assert all(m["owned"] == m["target"] and not m["gets"] for m in members)
        for m in members:
            assert m["owned"] + m["gets"] - m["gives"] == m["target"]


def test_activity_is_the_same_in_one_look_or_in_many(stories):
    """What is read as the log grows is what is read at once."""
    reader = StoreReader(stories)
    whole, steps = reader.activity, Activity()
    last = reader.position
    for position in [*range(1, last, 17), last]:
        look = reader.past(position)
        steps.advance(look.rows(), position)
    ids = pa.array(["alerts", "billing", "ledger", "search", "shipping", "nobody"])
    reached = np.array([1, 3, 2, 1, 9, 0])
    for one, two in (
        (whole.moved_ms(ids), steps.moved_ms(ids)),
        (whole.rebalances(ids, NOON), steps.rebalances(ids, NOON)),
        (whole.unsettled_ms(ids, reached), steps.unsettled_ms(ids, reached)),
    ):
        assert one.tolist() == two.tolist()
    assert [whole.version(i) for i in ids.to_pylist()] == [
        steps.version(i) for i in ids.to_pylist()
    ]


def test_only_what_changes_the_list_has_it_computed_again(tmp_path, monkeypatch):
    """Most new rows are commits of offsets: each had the lists of all shards made again."""
    computed, list_groups = [], group_list.list_groups

    def counted(look, activity):
        computed.append(look.reading.position)
        return list_groups(look, activity)

    monkeypatch.setattr(group_list, "list_groups", counted)
    store = tmp_path / "store"
    client = None

    def shown(times):
        """The groups on the page, after so many computations."""
        nonlocal computed
        rows = client.get("/groups.json").json()["groups"]
        fresh = browse(store).get("/groups.json").json()["groups"]
        assert rows == fresh, "as one who looks for the first time sees it"
        assert len(computed) == times + 1
        computed = []
        return [row["group_id"] for row in rows]

    def commit(coordinator, group_id, at):
        coordinator.offset_commit(group_id=group_id, topics={"a": {0: at}})

    with Coordinator.open(store, topics={"a": 4}) as coordinator:
        join(coordinator, "m1")
        client = browse(store)
        assert shown(1) == ["g"]
        coordinator.offset_commit(
            group_id="g", member_id="m1", member_epoch=2, topics={"a": {0: 5}}
        )
        assert shown(0) == ["g"]
        commit(coordinator, "alone", 1)
        assert shown(1) == ["alone", "g"]
        commit(coordinator, "alone", 2)
        assert shown(0) == ["alone", "g"]
        coordinator.offset_delete(group_id="alone", topics={"a": [0]})
        assert shown(1) == ["g"]
        commit(coordinator, "alone", 3)
        assert shown(1) == ["alone", "g"]
        join(coordinator, "m2")
        assert shown(1) == ["alone", "g"]
    with Coordinator.open(store, topics={"a": 4}):
        assert shown(0) == ["alone", "g"], "a claim"


def test_the_first_epoch_after_one_is_of_the_last_life_of_a_group():
    """A group that was deleted, and created again, counts from 1 on."""
    epochs = Epochs(
        np.array([0, 0, 0, 0, 0, 1, 1]),
        np.array([2, 3, 4, 2, 3, 2, 7]),
        np.array([10, 20, 30, 40, 50, 60, 70]),
    )
    ask = np.array([0, 0, 0, 1, 1, 1])
    found = epochs.first_after(ask, np.array([1, 2, 3, 1, 2, 7]))
    assert found.tolist() == [40, 50, -1, 60, 70, -1]


def test_a_store_that_is_recreated_under_open_pages(tmp_path):
    """Whether it has fewer commits, as many, or more: nothing of the old one is shown."""
    client, before = browse(stored(five_groups(), tmp_path / "store")), ("alerts", 5)
    for name, joins in (("short", 1), ("long", 40), ("other", 40)):
        shutil.rmtree(tmp_path / "store")
        gone = client.get("/groups.json")
        assert (gone.status_code, "cannot be read" in gone.text) == (503, True), before
        story = Story(name).topics(orders=9)
        for number in range(joins):
            story.at(number).join(f"m{number}", "orders")
        stored(story.batches, tmp_path / "store")
        rows = client.get("/groups.json").json()["groups"]
        assert [(row["group_id"], row["members"]) for row in rows] == [(name, joins)]
        assert client.get("/group", params={"id": before[0]}).status_code == 404
        before = (name, joins)


def test_weights_that_were_noted_are_shown_as_what_they_are(tmp_path):
    """A group's lag, where a source knows it, and that of what each member owns."""
    story = Story("billing").topics(orders=4, new=2).join("m1", "orders").join("m2", "orders")
    plain = Story("shipping").topics(parcels=2).join("m1", "parcels")
    known = TopicWeights("orders", (5.0, -1.0, 1.5)), TopicWeights("gone", (9.0,))
    batches = [*story.batches, *plain.batches]
    for weights in ((TopicWeights("orders", (1.0,)),), known):
        loads = LoadsNoted("billing", weights, timestamp=NOON)
        batches.append(replace(batches[-1], records=[loads]))
    store = stored(batches, tmp_path)
    config = Config(weights=WeightsConfig(source="kafka://here:9092"))
    client = browse(store, config)
    rows = {row["group_id"]: row for row in client.get("/groups.json").json()["groups"]}
    assert (rows["billing"]["weight"], rows["shipping"]["weight"]) == (15.5, None)
    assert [row[6] for row in rows_of(client.get("/?sort=-weight"))] == ["15.5", "\N{EN DASH}"]
    found = client.get("/group.json?id=billing").json()
    members = {row["member_id"]: (row["owned"], row["weight"]) for row in found["members"]}
    assert found["weight"] == 15.5
    assert members == {"m1": (2, 5.0), "m2": (2, 1.5)}
    page = client.get("/group?id=billing").text
    assert "<dt>Lag</dt>" in page
    assert "Lag" not in client.get("/group?id=shipping").text
    assert "<dt>Weight</dt>" in browse(store).get("/group?id=billing").text
    rate = replace(config, weights=replace(config.weights, measure="rate"))
    assert "<dt>Rate</dt>" in browse(store, rate).get("/group?id=billing").text
