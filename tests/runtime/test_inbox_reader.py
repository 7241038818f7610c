"""What other processes ask: done and answered, or set aside with the reason; old folders too."""

from __future__ import annotations

import json
import os

import pytest

from assignors import SpecError
from coordinator import Coordinator
from coordinator.config import Config, EngineConfig
from coordinator.core.events import DecidePlan
from coordinator.core.state.records import GroupMetadata
from coordinator.engines.plan_answers import find_answer
from coordinator.errors.status import our_fault
from coordinator.storage.delta_log import read_log
from coordinator.storage.inbox import OLD_FOLDERS, Compact, Inbox
from tests.support.members import AT_ONCE, Members, processor_of, wait_for

CONFIG = Config(kafka=AT_ONCE, engine=EngineConfig(proposals_ms=20))


@pytest.fixture
def opened(tmp_path):
    with Coordinator.open(tmp_path, topics={"a": 6}, config=CONFIG) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        members.settle()
        yield coordinator


def ask_for(plan, request_id, action="apply"):
    return DecidePlan(action, plan.group_id, plan.plan_id, plan, "User:ann", "", request_id)


def answer(store, request_id):
    return wait_for(lambda: find_answer(store, request_id, 0)[0]).reason


def test_a_request_larger_than_a_coordinator_reads_is_refused_to_who_asks(opened, tmp_path):
    plan = opened.plan("g", drain=["m1"]).plan
    with pytest.raises(SpecError, match=r"1 moves of a plan.*consumer\.assignor\.max\.moves"):
        Inbox(tmp_path, bytes_max=500).put(ask_for(plan, "large"))
    assert Inbox(tmp_path).waiting() == []


def put_raw(store, name, content):
    folder = store / "inbox"
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)


def put_fields(store, **fields):
    asked = {"request": "plan", "action": "apply", "group_id": "g", "plan_id": "p"}
    put_raw(store, "a.json", json.dumps(asked | {"request_id": "a"} | fields).encode())


POISON = {
    "no object": lambda store: put_raw(store, "a.json", b"[]"),
    "half of one": lambda store: put_raw(store, "a.json", b"{"),
    "no text": lambda store: put_raw(store, "a.json", b'{"group_id": "\xff\xfe"}'),
    "nested without end": lambda store: put_raw(store, "a.json", b"[" * 60_000),
    "no kind": lambda store: put_raw(store, "a.json", b'{"request_id": "a"}'),
    "an unknown kind": lambda store: put_fields(store, request="dance"),
    "an unknown action": lambda store: put_fields(store, action="dance"),
    "an unknown field": lambda store: put_fields(store, more=1),
    "another type": lambda store: put_fields(store, group_id=3),
    "another name": lambda store: put_fields(store, request_id="b"),
    "a plan that is none": lambda store: put_fields(store, plan={"group_id": "g"}),
    "an id without end": lambda store: put_fields(store, group_id="g" * 40_000),
    "a lone surrogate": lambda store: put_fields(store, group_id="\ud800"),
    "a folder": lambda store: (store / "inbox" / "a.json").mkdir(parents=True),
    "a pipe": lambda store: (
        (store / "inbox").mkdir(),
        os.mkfifo(store / "inbox" / "a.json"),
    ),
    "a link to nowhere": lambda store: (
        (store / "inbox").mkdir(),
        (store / "inbox" / "a.json").symlink_to("/nowhere"),
    ),
    "a name that is no text": lambda store: put_raw(store, os.fsdecode(b"a\xff.json"), b"{}"),
    "a name with an escape": lambda store: put_raw(store, "a\x1b[2J.json", b"{}"),
}


@pytest.mark.parametrize("poison", POISON)
def test_what_is_no_request_is_set_aside_with_the_reason(tmp_path, opened, poison, caplog):
    POISON[poison](tmp_path)
    plan = opened.plan("g", drain=["m1"]).plan
    Inbox(tmp_path).put(ask_for(plan, "right"))
    assert answer(tmp_path, "right") == "accepted"
    wait_for(lambda: not list((tmp_path / "inbox").iterdir()))
    (reason,) = (tmp_path / "_set_aside").glob("inbox-*.reason")
    assert reason.read_text().strip()
    assert reason.with_suffix("").exists() or reason.with_suffix("").is_symlink()
    assert "Traceback" not in caplog.text
    assert opened.status == "active"


def test_a_request_that_is_done_again_has_one_effect(tmp_path, opened):
    """The coordinator died between the answer and the file."""
    asked = ask_for(opened.plan("g", drain=["m1"]).plan, "one")
    for _ in range(2):
        Inbox(tmp_path).put(asked)
        wait_for(lambda: not Inbox(tmp_path).waiting())
    assert answer(tmp_path, "one") == "accepted"
    records = [record for batch in read_log(tmp_path) for record in batch.records]
    epochs = [r.epoch for r in records if isinstance(r, GroupMetadata)]
    assert epochs.count(max(epochs)) == 1


def test_a_request_whose_answer_cannot_be_written_is_set_aside(tmp_path, opened, monkeypatch):
    plan = opened.plan("g", drain=["m1"]).plan
    run = processor_of(opened).run

    def refuses(events, turn):
        answers = run(events, turn)
        bad = [isinstance(e, DecidePlan) and e.request_id == "bad" for e in events]
        return [our_fault() if b else a for a, b in zip(answers, bad, strict=False)]

    monkeypatch.setattr(processor_of(opened), "run", refuses)
    Inbox(tmp_path).put(ask_for(plan, "bad", "reject"))
    Inbox(tmp_path).put(ask_for(plan, "right"))
    wait_for(lambda: list((tmp_path / "_set_aside").glob("inbox-*-bad.json.reason")))
    (reason,) = (tmp_path / "_set_aside").glob("inbox-*-bad.json.reason")
    wait_for(lambda: reason.read_text().startswith("UNKNOWN_SERVER_ERROR: "))
    wait_for(lambda: not Inbox(tmp_path).waiting())


def test_a_log_is_packed_for_who_asks(tmp_path, opened):
    Inbox(tmp_path).put(Compact("compact-1"))
    wait_for(lambda: not Inbox(tmp_path).waiting())
    assert list((tmp_path / "snapshots").glob("**/*.parquet"))


def test_requests_in_the_folders_of_version_0_1_are_answered_at_open(tmp_path):
    """A compaction is done, a plan is decided, and a proposed target is refused by name."""
    with Coordinator.open(tmp_path, topics={"a": 6}, config=CONFIG) as coordinator:
        members = Members(coordinator)
        members.join("m1", "m2")
        members.settle()
        plan = coordinator.plan("g", drain=["m1"]).plan
    Inbox(tmp_path).put(ask_for(plan, "r1"))
    asked = json.loads((tmp_path / "inbox" / "r1.json").read_bytes())
    del asked["request"]
    (tmp_path / "inbox" / "r1.json").unlink()
    proposal = {"group_id": "g", "group_epoch": 4, "position": 9, "run_id": "monday"}
    old = {
        "plans/r1.json": json.dumps(asked),
        "proposals/monday.json": json.dumps(proposal | {"assignor": "uniform", "digest": 1}),
        "requests/compact-1.request": "",
        "requests/other.request": "",
        "plans/junk.json": "{",
    }
    for name, content in old.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    with Coordinator.open(tmp_path, topics={"a": 6}, config=CONFIG) as coordinator:
        assert answer(tmp_path, "r1") == "accepted"
        assert answer(tmp_path, "monday").startswith("INVALID_REQUEST: ")
        folders = [tmp_path / folder for folder in OLD_FOLDERS]
        wait_for(lambda: not any(list(folder.iterdir()) for folder in folders))
        aside = {
            path.name.split("-", 2)[2]: path.read_text()
            for path in (tmp_path / "_set_aside").glob("*.reason")
        }
        assert "run `muster assign` of this version" in aside["monday.json.reason"]
        assert aside.keys() == {
            "monday.json.reason", "other.request.reason", "junk.json.reason"
        }  # fmt: skip
        assert coordinator.status == "active"
        reader = coordinator._background._tasks[-1].run.__self__
        wait_for(lambda: [inbox.folder for inbox in reader._inboxes] == ["inbox"])
