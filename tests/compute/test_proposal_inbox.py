"""Targets that jobs in processes of their own propose: judged, installed or refused, answered."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from coordinator import Coordinator
from coordinator.compute import proposal_inbox
from coordinator.compute.proposal import Proposal
from coordinator.config import Config, EngineConfig
from coordinator.core import target_builder
from coordinator.core.events import ProposeTarget
from coordinator.core.plans.assignor_options import AssignorOptions
from coordinator.core.records import ProposalJudged, TargetMember, TargetMetadata
from coordinator.history.group_snapshot import GroupSnapshot
from coordinator.status import our_fault
from coordinator.storage import admin_requests
from coordinator.storage.delta_log import read_log
from coordinator.storage.log_scan import LogScan
from coordinator.storage.target_digest import digest_rows
from tests.support.members import AT_ONCE, Members, wait_for
from tests.support.table_engine import rows_of, write_rows

CONFIG = Config(kafka=AT_ONCE, engine=EngineConfig(engine="spark", proposals_ms=20))


@pytest.fixture
def engine(engine):
    """The engine never finishes a computation."""
    engine.let.clear()
    return engine


@pytest.fixture
def opened(tmp_path, engine):
    with Coordinator.open(
        tmp_path, topics={"a": 6, "b": 4}, config=CONFIG, engine=engine
    ) as coordinator:
        yield coordinator


@pytest.fixture
def members(opened):
    members = Members(opened)
    members.join("m1", "m2")
    members.join("m3", topics=("b",))
    wait_for(lambda: opened.group_epochs("g") == [(4, opened.group_epochs("g")[0][1])])
    return members


def computed(store, run_id, spoil=lambda rows: rows):
    """Do as a job does: compute from the store, write the rows, say where they are."""
    snapshot = GroupSnapshot(LogScan.of(store), "g")
    spec = snapshot.spec()
    rows = rows_of(target_builder.run_assignor(spec, AssignorOptions("uniform")), snapshot.topics)
    version = write_rows(store, "g", snapshot.group_epoch, run_id, spoil(rows))
    return Proposal(
        "g", snapshot.group_epoch, snapshot.source.position, run_id, "uniform", version,
        digest_rows(spoil(rows)), spec.member_count, len(spoil(rows)),
    )  # fmt: skip


def verdict(store, run_id):
    found = wait_for(lambda: proposal_inbox.find_verdict(store, run_id, 0)[0])
    wait_for(lambda: run_id not in proposal_inbox.list_proposals(store))
    return found.reason


def records(store, *kinds):
    return [r for batch in read_log(store) for r in batch.records if isinstance(r, kinds)]


@pytest.mark.behaviour("K-48")
def test_a_proposed_target_is_installed_and_served(tmp_path, opened, members, engine):
    proposal_inbox.put_proposal(tmp_path, computed(tmp_path, "run-1"))
    assert verdict(tmp_path, "run-1") == "accepted"
    assert opened.group_epochs("g") == [(4, 4)]
    owned = members.settle()
    assert sorted(len(p) for had in members.owned.values() for p in had.values()) == [3, 3, 4]
    assert {m: len(p) for m, p in owned.items()} == {"m1": 3, "m2": 3, "m3": 0}
    assert engine.cancelled == ["g"] * len(engine.cancelled)
    assert engine.cancelled, "what our own engine computed for it is given up"
    with Coordinator.open(tmp_path, config=CONFIG, engine=engine, takeover="force") as other:
        members.coordinator = other
        assert members.settle() == owned


@pytest.mark.behaviour("K-49")
def test_a_stale_proposal_is_installed_and_the_next_target_computed(
    tmp_path, opened, members, engine
):
    proposal = computed(tmp_path, "run-1")
    members.leave("m1")
    members.join("m4")
    before = len(engine.jobs)
    proposal_inbox.put_proposal(tmp_path, proposal)
    assert verdict(tmp_path, "run-1") == "accepted"
    assert opened.group_epochs("g") == [(6, 4)]
    members.beat()
    wait_for(lambda: len(engine.jobs) > before)  # for who left and who came
    engine.let.set()
    owned = members.settle()
    assert sorted(map(len, owned.values())) == [0, 3, 3]


@pytest.mark.behaviour("K-45")
def test_a_late_proposal_is_refused(tmp_path, opened, members, engine):
    late = computed(tmp_path, "late")
    engine.let.set()
    members.settle()
    installed = records(tmp_path, TargetMetadata)
    proposal_inbox.put_proposal(tmp_path, late)
    assert verdict(tmp_path, "late").startswith("STALE_MEMBER_EPOCH: ")
    assert records(tmp_path, TargetMetadata) == installed


def overlap(rows):
    return pa.concat_tables([rows, rows.slice(0, 1).set_column(0, "member_id", [["m2"]])])


def gap(rows):
    return rows.slice(1)


def unsubscribed(rows):
    members = ["m3" if member == "m1" else member for member in rows["member_id"].to_pylist()]
    return rows.set_column(0, "member_id", [members])


WRONG = {
    "overlap": (overlap, {}, "INVALID_ASSIGNMENT"),
    "gap": (gap, {}, "INVALID_ASSIGNMENT"),
    "unsubscribed member": (unsubscribed, {}, "INVALID_ASSIGNMENT"),
    "rows of another digest": (None, {"digest": 5}, "INVALID_ASSIGNMENT"),
    "more rows than there are": (None, {"ranges": 77}, "INVALID_ASSIGNMENT"),
    "another run's rows": (None, {"targets_version": 0, "ranges": 2}, "INVALID_ASSIGNMENT"),
    "other members": (None, {"members": 2}, "INVALID_ASSIGNMENT"),
    "another epoch": (None, {"group_epoch": 99}, "INVALID_ASSIGNMENT"),
    "a position to come": (None, {"position": 10**6}, "INVALID_ASSIGNMENT"),
    "a version to come": (None, {"targets_version": 99, "ranges": 1}, "INVALID_ASSIGNMENT"),
    "no such group": (None, {"group_id": "nobody"}, "GROUP_ID_NOT_FOUND"),
}


@pytest.mark.behaviour("K-43", "K-47", "S-32")
@pytest.mark.parametrize(("spoil", "other", "code"), WRONG.values(), ids=WRONG)
def test_an_invalid_proposal_is_refused_and_nothing_changes(
    tmp_path, opened, members, spoil, other, code
):
    before = opened.group_epochs("g")
    wrong = computed(tmp_path, "wrong", spoil or (lambda rows: rows))
    proposal_inbox.put_proposal(tmp_path, msgspec.structs.replace(wrong, **other))
    assert verdict(tmp_path, "wrong").startswith(f"{code}: ")
    assert opened.group_epochs("g") == before
    proposal_inbox.put_proposal(tmp_path, computed(tmp_path, "right"))
    assert verdict(tmp_path, "right") == "accepted"


def test_ranges_swapped_after_the_digest_are_refused(tmp_path, opened, members):
    """As many rows, as fair, without gap or overlap: but not what the job computed."""

    def swapped(rows):
        other = {"m1": "m2", "m2": "m1", "m3": "m3"}
        return rows.set_column(0, "member_id", [[other[m] for m in rows["member_id"].to_pylist()]])

    right, wrong = computed(tmp_path, "run"), computed(tmp_path, "swap", swapped)
    proposal = msgspec.structs.replace(wrong, digest=right.digest)
    proposal_inbox.put_proposal(tmp_path, proposal)
    assert "the digest of its rows is" in verdict(tmp_path, "swap")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"{", "cannot be read"), (b"[]", "cannot be read"), (b'{"group_id": "g"}', "missing")],
)
def test_a_malformed_proposal_is_answered(tmp_path, opened, content, said):
    folder = tmp_path / proposal_inbox.FOLDER
    folder.mkdir()
    (folder / "noise.json").write_bytes(content)
    answer = verdict(tmp_path, "noise")
    assert answer.startswith("INVALID_REQUEST: ")
    assert said in answer


def test_proposal_checked_twice_has_the_same_verdict(tmp_path, opened, members):
    """The coordinator died between the verdict and the file."""
    proposal = computed(tmp_path, "run-1")
    proposal_inbox.put_proposal(tmp_path, proposal)
    assert verdict(tmp_path, "run-1") == "accepted"
    proposal_inbox.put_proposal(tmp_path, proposal)
    wait_for(lambda: len(records(tmp_path, ProposalJudged)) == 2)
    assert {r.reason for r in records(tmp_path, ProposalJudged)} == {"accepted"}
    assert [r.computation_id for r in records(tmp_path, TargetMetadata)].count("run-1") == 1


def test_next_coordinator_checks_waiting_proposals(tmp_path, engine):
    with Coordinator.open(tmp_path, topics={"a": 6}, config=CONFIG, engine=engine) as first:
        members = Members(first)
        members.join("m1", "m2")
    proposal_inbox.put_proposal(tmp_path, computed(tmp_path, "run-1"))
    patient = replace(CONFIG, engine=replace(CONFIG.engine, engine="local"))
    with Coordinator.open(tmp_path, topics={"a": 6}, config=patient) as coordinator:
        assert verdict(tmp_path, "run-1") == "accepted"
        members.coordinator = coordinator
        assert sorted(map(len, members.settle().values())) == [3, 3]
    assert not [r for r in records(tmp_path, TargetMember) if r.spans]


# Poison -------------------------------------------------------------------------------------------


def put_raw(store, name, content):
    folder = store / proposal_inbox.FOLDER
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content)


def put_spoilt(store, name, **other):
    """A good proposal but for one field, as plain JSON."""
    fields = msgspec.to_builtins(computed(store, name)) | other
    put_raw(store, f"{name}.json", json.dumps(fields).encode())


POISON = {
    "no text": lambda store: put_raw(store, "a.json", b'{"group_id": "\xff\xfe"}'),
    "a lone surrogate": lambda store: put_spoilt(store, "a", group_id="\ud800"),
    "a version below 0": lambda store: put_spoilt(store, "a", targets_version=-1),
    "a version beyond 64 bits": lambda store: put_spoilt(store, "a", targets_version=2**63),
    "an epoch beyond 32 bits": lambda store: put_spoilt(store, "a", group_epoch=2**62),
    "an epoch below 0": lambda store: put_spoilt(store, "a", group_epoch=-1),
    "a position below 0": lambda store: put_spoilt(store, "a", position=-1),
    "a huge number of ranges": lambda store: put_spoilt(store, "a", ranges=2**70),
    "another type": lambda store: put_spoilt(store, "a", members="3"),
    "an id without end": lambda store: put_spoilt(store, "a", group_id="g" * 40_000),
    "a digest beyond 64 bits": lambda store: put_spoilt(store, "a", digest=2**64),
    "nested without end": lambda store: put_raw(store, "a.json", b"[" * 60_000),
    "a huge file": lambda store: put_raw(store, "a.json", b" " * (1 << 20)),
    "a folder": lambda store: (store / proposal_inbox.FOLDER / "a.json").mkdir(parents=True),
    "a pipe": lambda store: (
        (store / proposal_inbox.FOLDER).mkdir(),
        os.mkfifo(store / proposal_inbox.FOLDER / "a.json"),
    ),
    "a link to nowhere": lambda store: (
        (store / proposal_inbox.FOLDER).mkdir(),
        (store / proposal_inbox.FOLDER / "a.json").symlink_to("/nowhere"),
    ),
    "a name that is no text": lambda store: put_raw(store, os.fsdecode(b"a\xff.json"), b"{}"),
    "a name with an escape": lambda store: put_raw(store, "a\x1b[2J.json", b"{}"),
}


@pytest.mark.parametrize("poison", POISON)
def test_an_undecodable_proposal_is_set_aside_with_the_reason(
    tmp_path, opened, members, poison, caplog
):
    POISON[poison](tmp_path)
    proposal_inbox.put_proposal(tmp_path, computed(tmp_path, "right"))
    assert verdict(tmp_path, "right") == "accepted"
    wait_for(lambda: not list((tmp_path / proposal_inbox.FOLDER).iterdir()))
    (reason,) = (tmp_path / "_set_aside").glob("proposals-*.reason")
    assert reason.read_text().strip()
    assert reason.with_suffix("").exists() or reason.with_suffix("").is_symlink()
    assert "Traceback" not in caplog.text
    assert opened.status == "active"


def test_a_proposal_that_raises_is_set_aside(tmp_path, opened, members, monkeypatch):
    """Any error that no check expects."""
    proposal = computed(tmp_path, "right")
    checked = proposal_inbox._check_proposal

    def breaks(store, proposal):
        return 1 / 0 if proposal.run_id == "bad" else checked(store, proposal)

    monkeypatch.setattr(proposal_inbox, "_check_proposal", breaks)
    proposal_inbox.put_proposal(tmp_path, msgspec.structs.replace(proposal, run_id="bad"))
    proposal_inbox.put_proposal(tmp_path, proposal)
    assert verdict(tmp_path, "right") == "accepted"
    (reason,) = (tmp_path / "_set_aside").glob("proposals-*-bad.json.reason")
    assert "division by zero" in reason.read_text()


def test_a_proposal_without_a_writable_verdict_is_set_aside(tmp_path, opened, members, monkeypatch):
    proposal = computed(tmp_path, "right")
    run = opened._processor.run

    def refuses(events):
        answers = run(events)
        bad = [isinstance(e, ProposeTarget) and e.run_id == "bad" for e in events]
        return [our_fault() if b else a for a, b in zip(answers, bad, strict=True)]

    monkeypatch.setattr(opened._processor, "run", refuses)
    proposal_inbox.put_proposal(tmp_path, msgspec.structs.replace(proposal, run_id="bad"))
    proposal_inbox.put_proposal(tmp_path, proposal)
    assert verdict(tmp_path, "right") == "accepted"
    # The proposal goes first, its reason is written then.
    wait_for(lambda: list((tmp_path / "_set_aside").glob("proposals-*-bad.json.reason")))
    (reason,) = (tmp_path / "_set_aside").glob("proposals-*-bad.json.reason")
    wait_for(lambda: reason.read_text().startswith("UNKNOWN_SERVER_ERROR: "))
    assert proposal_inbox.list_proposals(tmp_path) == []


def test_folder_in_the_inbox_blocks_no_proposal(tmp_path, opened):
    (tmp_path / "requests" / "compact-0.request").mkdir(parents=True)
    request = admin_requests.put_request(tmp_path, admin_requests.COMPACT)
    wait_for(lambda: request not in admin_requests.list_requests(tmp_path, admin_requests.COMPACT))
    (reason,) = (tmp_path / "_set_aside").glob("requests-*.reason")
    assert "no file" in reason.read_text()
