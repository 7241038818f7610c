"""What a group committed, and one of its members: what is read when something is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_record

from coordinator import Coordinator
from coordinator.config import Config, WeightsConfig
from coordinator.core.state.plan_values import TopicWeights
from coordinator.core.state.records import (
    GroupConfigured,
    LoadsNoted,
    MemberMetadata,
    OffsetCommitted,
    Tombstone,
)
from coordinator.history import frame
from coordinator.web.detail_pages import NAMES_MAX, RANGES_MAX
from tests.support.stories import MINUTE, NOON, Story, stored
from tests.web.browsing import browse, rows_of
from tests.web.test_access import HOSTILE, refuse_inline, secured

__all__ = ["secured"]

LAG = Config(weights=WeightsConfig(source="kafka://here:9092"))


@pytest.fixture(scope="module")
def committed():
    """What is written of a group that commits, one partition long ago."""
    story = Story("billing").topics(orders=4, new=2)
    story.at(-5).join("m1", "orders", "new").commit("m1", {"orders": {0: 7}})
    return story.at(1).commit("m1", {"orders": {1: 1_500, 3: 9}, "new": {0: 3}}).batches


def test_committed_offsets_the_oldest_commit_first(committed, tmp_path):
    client = browse(stored(committed, tmp_path))
    rows = rows_of(client.get("/offsets?id=billing"))
    assert [(row[0], row[1]) for row in rows] == [
        ("orders 0", "7"), ("new 0", "3"), ("orders 1", "1,500"), ("orders 3", "9"),
    ]  # fmt: skip
    assert rows[0][2] == "2026-03-01 11:55:00 UTC"
    page = client.get("/offsets?id=billing").text
    assert "4 partitions have one" in page
    assert "Lag" not in page, "nothing says what it is"
    assert [row[0] for row in rows_of(client.get("/offsets?id=billing&q=NEW"))] == ["new 0"]
    found = client.get("/offsets.json?id=billing&sort=-offset&rows=2").json()
    assert (found["total"], [row["offset"] for row in found["offsets"]]) == (4, [1_500, 9])
    assert found["offsets"][0]["weight"] is None
    before = rows_of(client.get(f"/offsets?id=billing&at_ms={NOON - MINUTE}"))
    assert [row[0] for row in before] == ["orders 0"]
    page = client.get("/group?id=billing").text
    assert "/offsets?id=billing&amp;rows=10" in page


def test_new_commits_are_seen_though_nothing_else_changes(tmp_path):
    """They are no reason to reread a group, but its offsets are read up to the newest row."""
    with Coordinator.open(tmp_path / "store", topics={"orders": 3}) as coordinator:
        client = browse(tmp_path / "store")
        for offset in (1, 2, 3):
            coordinator.offset_commit(group_id="tool", topics={"orders": {0: offset}})
            assert rows_of(client.get("/offsets?id=tool"))[0][:2] == ["orders 0", str(offset)]


def test_the_lag_that_was_noted_is_beside_offsets_that_have_one(committed, tmp_path):
    known = (TopicWeights("orders", (5.0, -1.0, 0.0, 1.5)), TopicWeights("gone", (9.0,)))
    loads = LoadsNoted("billing", known, timestamp=NOON)
    store = stored([*committed, replace(committed[-1], records=[loads])], tmp_path)
    client = browse(store, LAG)
    rows = rows_of(client.get("/offsets?id=billing"))
    dash = "\N{EN DASH}"
    assert [(row[0], row[2]) for row in rows] == [
        ("orders 0", "5"), ("orders 3", "1.5"), ("new 0", dash), ("orders 1", dash),
    ], "what is not known is no lag of 0"  # fmt: skip
    assert "Lag was noted" in client.get("/offsets?id=billing").text
    found = client.get("/offsets.json?id=billing&sort=topic").json()["offsets"]
    assert [row["weight"] for row in found] == [None, 5.0, None, 1.5]


def test_a_group_without_offsets_and_none(tmp_path):
    story = Story("billing").topics(orders=2).join("m1", "orders")
    client = browse(stored(story.batches, tmp_path))
    assert "The group has committed nothing." in client.get("/offsets?id=billing").text
    for path in ("/offsets?id=none", "/offsets.json?id=none", "/member?id=none&member=m1"):
        assert client.get(path).status_code == 404
    assert client.get("/member?id=billing&member=m2").status_code == 404
    assert client.get("/member?id=billing").status_code == 400
    assert client.get("/offsets?id=billing&sort=x").status_code == 400


def test_offsets_alone_are_a_group(tmp_path):
    story = Story("billing").topics(orders=2).join("m1", "orders")
    records = [OffsetCommitted("tool", "orders", "id", 0, 4, commit_timestamp=NOON)]
    store = stored([*story.batches, replace(story.batches[-1], records=records)], tmp_path)
    assert rows_of(browse(store).get("/offsets?id=tool"))[0][:2] == ["orders 0", "4"]


def test_a_member_with_its_subscription_and_settings(tmp_path):
    story = Story("billing").topics(orders=9, new=2)
    story.at(-5).join("m1", "orders", "new", instance_id="one", server_assignor="sticky")
    story.hold_on("m1").at(1).join("m2", "orders")
    client = browse(stored(story.batches, tmp_path))
    page = " ".join(client.get("/member?id=billing&member=m1").text.split())
    for texts in (
        "unrevoked partitions", "waited for", '<dd><bdi class="id">client</bdi></dd>', "localhost", "one", "60,000 ms", "sticky",
        '<li><bdi class="id">new</bdi></li>', "to be given up",
        "/history?id=billing&amp;member=m1",
    ):  # fmt: skip
        assert texts in page, texts
    before = client.get(f"/member?id=billing&member=m1&at_ms={NOON}").text
    assert "to be given up" not in before
    assert "Go to now" in before
    list_of = client.get("/group?id=billing").text
    assert 'href="/member?id=billing&amp;member=m1"' in list_of
    assert client.get(f"/member?id=billing&member=m2&at_ms={NOON}").status_code == 404


def test_the_settings_of_a_group_are_for_those_who_may_see_them(tmp_path, secured):
    story = Story("billing").topics(orders=3).join("m1", "orders")
    texts = {"consumer.session.timeout.ms": "50000", "consumer.assignor.name": "<b>"}
    last = story.batches[-1]
    set_then = replace(last, records=[GroupConfigured("billing", texts)])
    store = stored([*story.batches, set_then], tmp_path / "store")
    page = browse(store).get("/group?id=billing").text
    assert "Settings of this group" in page
    assert "consumer.session.timeout.ms" in page
    assert "<b>" not in page
    page = browse(store, Config(server=secured)).get("/group?id=billing", auth=("ann", "secret"))
    assert (page.status_code, "Settings of" in page.text) == (200, False)
    ended = replace(last, records=[Tombstone(GroupConfigured.kind, "billing")])
    store = stored([*story.batches, set_then, ended], tmp_path / "ended")
    assert "Settings of" not in browse(store).get("/group?id=billing").text


def test_the_software_of_clients_is_shown_where_they_say_it(tmp_path):
    story = Story("billing").topics(orders=3).join("m1", "orders").join("m2", "orders")
    batches = story.batches
    metas = [r for batch in batches for r in batch.records if isinstance(r, MemberMetadata)]
    texts = replace_record(next(r for r in metas if r.member_id == "m1"), client_software="<b> 1.2")
    client = browse(stored([*batches, replace(batches[-1], records=[texts])], tmp_path))
    rows = client.get("/group.json?id=billing&sort=member_id").json()["members"]
    assert [row["client_software"] for row in rows] == ["<b> 1.2", None]
    assert "&lt;b&gt; 1.2" in client.get("/member?id=billing&member=m1").text
    assert "&lt;b&gt; 1.2" in client.get("/group?id=billing").text
    assert len(rows_of(client.get("/group?id=billing&q=1.2"))) == 1
    rows = frame(tmp_path, "members").to_pylist()
    assert {row["member_id"]: row["client_software"] for row in rows} == {
        "m1": "<b> 1.2", "m2": None,
    }  # fmt: skip


def test_a_member_of_very_much_has_a_page_of_a_bounded_size(tmp_path):
    names = [f"topic-{number:04}" for number in range(3 * NAMES_MAX)]
    story = Story("billing").topics(**dict.fromkeys(names, 1)).join("m1", *names)
    page = browse(stored(story.batches, tmp_path)).get("/member?id=billing&member=m1").text
    assert f"and {2 * NAMES_MAX} more topics" in page
    assert f"and {3 * NAMES_MAX - RANGES_MAX} more ranges" in page
    assert page.count("<li>") == NAMES_MAX + 2 * RANGES_MAX + 3


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_and_metadata_are_text(tmp_path, name):
    topic = f"topic {name[:60]}"
    story = Story(name).topics(**{topic: 3}).join(f"m{name}"[:300], topic, instance_id=name)
    records = [OffsetCommitted(name, topic, "id", 0, 4, metadata=f"{name}{'x' * 4_000}")]
    batches = [*story.batches, replace(story.batches[-1], records=records)]
    client = browse(stored(batches, tmp_path))
    member = frame(tmp_path, "members")["member_id"][0].as_py()
    for path, query in (("/offsets", {}), ("/member", {"member": member})):
        answer = client.get(path, params={"id": name} | query)
        assert answer.status_code == 200, answer.text
        refuse_inline(answer.text)
        assert not [one for one in answer.text.replace("\n", "") if not one.isprintable()]
        assert answer.text.count("x") < 1_000
