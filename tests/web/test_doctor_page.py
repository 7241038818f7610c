"""The page of findings: the same as of the command, by what a viewer may see."""

from __future__ import annotations

import pytest

from coordinator.core.state.records import ClassicGroupWritten, ClassicMemberWritten, TopicChanged
from coordinator.history.findings import examine, to_json
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.storage.record_log import Batch
from tests.support.stories import NOON, stored

from .browsing import LATER, browse, rows_of

NAME = "<b>g</b>\n\x1b&'\"\u202e"


def classic(group_id, topic, members=1):
    names = {"client_id": NAME, "client_host": "/h", "subscribed_topic_names": (topic,)}
    some = [ClassicMemberWritten(f"{NAME}{one}", **names) for one in range(members)]
    written = ClassicGroupWritten(group_id, 1, "consumer", "range", None, NOON, tuple(some))
    return [TopicChanged(topic, f"id of {topic}", 3, version=1), written]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two groups that own nothing of their topics."""
    records = classic(NAME, "secret", 60) + classic("plain", "open")
    batches = [Batch(0, NOON, 1, []), Batch(0, NOON, 1, records)]
    return stored(batches, tmp_path_factory.mktemp("doctor") / "store")


def test_the_page_has_what_the_command_finds(store):
    found = browse(store).get("/doctor.json").json()
    wanted = examine(LogRows(LogReader(store)), LATER)
    assert [one["finding"] for one in found["findings"]] == [one.name for one in wanted]
    for one, other in zip(found["findings"], wanted, strict=True):
        rows = [{"finding": other.name, "level": one["level"]} | row for row in one["rows"]]
        assert (rows, one["total"]) == (to_json(other), len(other.rows))
    assert (found["window"], found["until"]) == ("1h", "2026-03-01T13:00:00.000Z")


def test_names_are_escaped(store):
    page = browse(store).get("/doctor")
    assert page.status_code == 200
    assert "<b>" not in page.text
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    assert rows_of(page)[0][1:3] == ["secret", "0–2"]  # noqa: RUF001 - typography


def test_one_group_one_finding_another_window(store):
    client = browse(store)
    found = client.get("/doctor.json?id=plain&window=7d").json()
    assert {row["group_id"] for one in found["findings"] for row in one["rows"]} == {"plain"}
    found = client.get("/doctor.json?only=classic_groups").json()["findings"]
    assert [(one["finding"], one["level"], one["total"]) for one in found] == [
        ("classic_groups", "note", 2)
    ]
    past = client.get("/doctor.json?at=2").json()
    assert (past["findings"], past["until"]) == ([], "2026-03-01T12:00:00.000Z")
    assert "Nothing was found." in client.get("/doctor?at=2").text


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("id=nobody", 404),
        ("window=1", 400),
        ("window=%3Cb%3E", 400),
        ("only=all", 400),
        ("at=4711", 400),
    ],
)
def test_what_cannot_be_is_refused(store, query, code):
    for path in ("/doctor", "/doctor.json"):
        assert browse(store).get(f"{path}?{query}").status_code == code


def test_pages_of_groups_lead_to_it(store):
    client = browse(store)
    assert 'href="/doctor"' in client.get("/").text
    assert 'href="/doctor?id=plain"' in client.get("/group?id=plain").text
