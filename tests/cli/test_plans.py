"""Plans by commands: shown, applied, refused, approved, rejected, rolled back, planned again."""

from __future__ import annotations

import codecs
import json
import re
import shutil
import threading
import time
from datetime import UTC, datetime

import msgspec
import pytest

from assignors import SpecError
from coordinator import Coordinator
from coordinator.cli.plan_files import read_plan
from coordinator.clock import wall_ms
from coordinator.config import Config, LogConfig, PlansConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.plans.planner import digest_of
from coordinator.core.state.records import PlanMade
from coordinator.history import frame
from coordinator.runtime.ask_coordinator import ask_coordinator

CONFIG = Config(
    log=LogConfig(fsync=False),
    plans=PlansConfig(poll_ms=20),
    kafka=kafka_config(
        {"group.consumer.assignors": ["weighted"], "group.consumer.assignment.interval.ms": 0}
    ),
)
SETTINGS = """
[log]
fsync = false
[plans]
poll_ms = 20
valid_ms = {valid_ms}
[kafka]
"group.consumer.assignors" = ["weighted"]
"group.consumer.assignment.interval.ms" = 0
"""


def open_store(store):
    return Coordinator.open(store, config=CONFIG, topics={"clicks": 6}, takeover="refuse")


def join(coordinator, *members):
    for member in members:
        coordinator.consumer_group_heartbeat(
            group_id="g", member_id=member, member_epoch=0, rebalance_timeout_ms=60_000,
            subscribed_topic_names=["clicks"], topic_partitions={},
        )  # fmt: skip


@pytest.fixture(scope="module")
def lived(tmp_path_factory):
    store = tmp_path_factory.mktemp("lived") / "store"
    with open_store(store) as coordinator:
        join(coordinator, "m1", "m2")
    return store


class Desk:
    """An operator's commands on a store of its own."""

    def __init__(self, run, folder, lived):
        self.folder, self.store, self._run = folder, folder / "store", run
        shutil.copytree(lived, self.store)
        self.configure()

    def configure(self, valid_ms=60_000):
        (self.folder / "muster.toml").write_text(SETTINGS.format(valid_ms=valid_ms))

    def run(self, *words):
        """Return the rows that a command prints; its message if it refuses."""
        given = () if words[0] in ("plans", "explain") else ("--config", "muster.toml")
        done = self._run(*words, "--store", "store", "--json", *given, cwd=self.folder)
        said = done.stderr.decode()
        assert "Traceback" not in said
        if done.returncode:
            assert (done.returncode, done.stdout) == (2, b""), said
            return " ".join(said.split())
        return [json.loads(line) for line in done.stdout.splitlines()]

    def owners(self):
        rows = frame(self.store, "target_assignments").to_pylist()
        counts = dict.fromkeys(("m1", "m2"), 0)
        for row in rows:
            counts[row["member_id"]] = counts.get(row["member_id"], 0) + row["partition_count"]
        return counts

    def plans(self):
        return [
            (row["status"], row["reason"], row["decision_reason"])
            for row in frame(self.store, "plans").to_pylist()
        ]


@pytest.fixture
def desk(muster_here, tmp_path, lived):
    return Desk(muster_here, tmp_path, lived)


def test_a_plan_is_written_shown_and_applied_once(desk):
    *moves, summary = desk.run("plan", "g", "--drain", "m2", "--reason", "disk", "-o", "plan.json")
    assert sum(move["partition_count"] for move in moves) == summary["moved"] == 3
    assert {(move["from_member_id"], move["to_member_id"]) for move in moves} == {("m2", "m1")}
    assert desk.owners() == {"m1": 3, "m2": 3}
    (done,) = desk.run("apply", "plan.json", "--reason", "at night")
    assert done == {
        "group_id": "g", "plan_id": summary["plan_id"], "decision": "applied", "group_epoch": 4,
    }  # fmt: skip
    assert desk.owners() == {"m1": 6, "m2": 0}
    assert "is already applied as epoch 4: a plan applies once" in desk.run("apply", "plan.json")
    assert desk.plans() == [("applied", "disk", "at night")]
    assert list((desk.store / "plans").glob("*.json")) == []


def test_drift_is_refused_by_name_and_a_rebase_shows_the_difference(desk):
    first, _ = desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    with open_store(desk.store) as coordinator:
        join(coordinator, "m3")
    said = desk.run("apply", "plan.json")
    assert "is for another state of group g: members: now m3" in said
    assert "target: was epoch 3" in said
    assert desk.plans() == []
    *rows, summary = desk.run("apply", "plan.json", "--rebase", "-o", "again.json")
    gone = [row for row in rows if row["change"] == "no longer"]
    assert [{**row, "change": None} for row in gone] == [{**first, "change": None}]
    now = [row for row in rows if row["change"] == "now"]
    assert sum(row["partition_count"] for row in now) == summary["moved"] == 2
    assert summary["drains"] == ["m2"]
    assert desk.run("apply", "again.json")[0]["decision"] == "applied"
    assert "m3" in desk.owners()
    assert desk.owners()["m2"] == 0


def test_a_plan_expires(desk):
    desk.configure(valid_ms=1)
    *_, summary = desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    expires = datetime.fromisoformat(summary["expires_at"]).replace(tzinfo=UTC)
    while wall_ms() <= expires.timestamp() * 1000 + 1:
        time.sleep(0.001)
    assert re.search(r"expired \d+ s ago: plan again", desk.run("apply", "plan.json"))
    assert desk.owners() == {"m1": 3, "m2": 3}


def test_plans_wait_and_are_approved_or_rejected(desk):
    ids = []
    for reason in ("first", "second"):
        name = f"{reason}.json"
        *_, summary = desk.run("plan", "g", "--drain", "m2", "--reason", reason, "-o", name)
        ids.append(summary["plan_id"])
        (done,) = desk.run("apply", name, "--propose")
        assert done["decision"] == "waiting"
    assert desk.owners() == {"m1": 3, "m2": 3}
    waiting = desk.run("plans", "g", "--status", "waiting")
    assert [row["plan_id"] for row in waiting] == ids
    (done,) = desk.run("reject", "g", ids[0], "--reason", "too early")
    assert done == {"group_id": "g", "plan_id": ids[0], "decision": "rejected"}
    assert "is already rejected: a plan applies once" in desk.run("approve", "g", ids[0])
    (done,) = desk.run("approve", "g", ids[1])
    assert (done["decision"], done["group_epoch"]) == ("applied", 4)
    assert desk.owners() == {"m1": 6, "m2": 0}
    assert "is already applied as epoch 4" in desk.run("reject", "g", ids[1])
    assert f"no plan '{'0' * 16}' of group g is waiting; waiting are none" in desk.run(
        "approve", "g", "0" * 16
    )
    assert desk.plans() == [("rejected", "first", "too early"), ("applied", "second", "")]
    assert desk.run("plans", "g", "--status", "waiting") == []


def test_a_rollback_goes_back_to_a_former_target(desk):
    desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    former = frame(desk.store, "target_assignments").drop_columns("assignment_epoch")
    desk.run("apply", "plan.json")
    desk.run("plan", "g", "--undrain", "m2", "-o", "plan.json")
    desk.run("apply", "plan.json")
    desk.run("rollback", "g", "--to", "3", "-o", "back.json")
    desk.run("apply", "back.json")
    now = frame(desk.store, "target_assignments").drop_columns("assignment_epoch")
    assert now.sort_by("first_partition").equals(former.sort_by("first_partition"))
    assert desk.plans()[-1] == ("applied", "rollback to epoch 3", "")
    assert "no target of epoch 99" in desk.run("rollback", "g", "--to", "99")


def test_explain_names_the_plan_that_gave_a_partition(desk):
    (move, _) = desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    (done,) = desk.run("apply", "plan.json")
    partition = f"clicks/{move['first_partition']}"
    (now,) = desk.run("explain", "g", "--partition", partition)
    assert (now["owner"], now["previous_owner"], now["decided_by"]) == ("m1", "m2", "plan")
    assert now["decision"] == f"plan {done['plan_id']} gave it to m1"
    (then,) = desk.run("explain", "g", "--partition", partition, "--epoch", "3")
    assert (then["owner"], then["decided_by"]) == ("m2", "makespan")
    for odd, why in (("clicks/6", "no partition 6"), ("clicks", "clicks"), ("x/0", "x")):
        assert why in desk.run("explain", "g", "--partition", odd)


def test_the_coordinator_that_is_live_answers(desk):
    desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    with open_store(desk.store) as coordinator:
        (done,) = desk.run("apply", "plan.json")
        assert coordinator.group_epochs("g")[0][1] == done["group_epoch"] == 4
        assert "is already applied" in desk.run("apply", "plan.json")


def test_of_two_who_apply_one_plan_at_a_time_one_is_refused(desk):
    desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    made = read_plan(desk.folder / "plan.json")
    said = []

    def ask():
        try:
            said.append(ask_coordinator(desk.store, CONFIG, "apply", "g", made.plan_id, made))
        except SpecError as error:
            said.append(str(error)[:40])

    with open_store(desk.store):
        both = [threading.Thread(target=ask) for _ in range(2)]
        for one in both:
            one.start()
        for one in both:
            one.join()
    assert sorted(said, key=str) == [4, f"plan {made.plan_id} is already applied"]
    assert desk.plans() == [("applied", "", "")]


def edited(desk, name="plan.json", again=True, **fields):
    """Change a plan's file by hand; `again`: the digest too."""
    path = desk.folder / name
    made = msgspec.structs.replace(msgspec.json.decode(path.read_bytes(), type=PlanMade), **fields)
    if again:
        made = msgspec.structs.replace(made, plan_digest=digest_of(made))
    path.write_bytes(msgspec.json.encode(made))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "plan.json is not a plan"),
        (b"{", "plan.json is not a plan"),
        (b"[]", "is not a plan: Expected `object`"),
        (b'{"group_id": 5}', "is not a plan"),
        (b"[" * 100_000, "is not a plan"),
        (b"\xff\xfe", "is not a plan"),
        (None, "plan.json cannot be read: No such file"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(desk, text, said):
    if text is not None:
        (desk.folder / "plan.json").write_bytes(text)
    assert said in desk.run("apply", "plan.json")
    assert said in desk.run("apply", "plan.json", "--rebase")


def test_a_plan_that_says_more_than_plans_do_is_refused(desk):
    """Who wrote it meant something by it."""
    desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    path = desk.folder / "plan.json"
    made = msgspec.json.decode(path.read_bytes())
    for more in ({"max_moves": 0}, {"moves": [made["moves"][0] | {"but_not": "m3"}]}):
        path.write_bytes(msgspec.json.encode(made | more))
        assert (
            f"it has an unknown field '{'but_not' if 'moves' in more else 'max_moves'}'"
            in desk.run("apply", "plan.json")
        )
    assert desk.owners() == {"m1": 3, "m2": 3}


def test_a_plan_that_an_editor_saved_with_a_byte_order_mark_is_read(desk):
    desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    path = desk.folder / "plan.json"
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    desk.run("apply", "plan.json")
    assert desk.owners() == {"m1": 6, "m2": 0}


def test_a_plan_that_was_edited_is_refused(desk):
    made = desk.run("plan", "g", "--drain", "m2", "-o", "plan.json")
    path = desk.folder / "plan.json"
    shown = msgspec.json.decode(path.read_bytes(), type=PlanMade)
    turned = [
        msgspec.structs.replace(move, from_member_id="m1", to_member_id="m2")
        for move in shown.moves
    ]
    nowhere = [msgspec.structs.replace(move, to_member_id="nobody") for move in shown.moves]
    beyond = [msgspec.structs.replace(move, first_partition=99) for move in shown.moves]
    far = [msgspec.structs.replace(move, partition_count=2**31 - 1) for move in shown.moves]
    for fields, again, said in (
        ({"moves": ()}, False, "is not what was shown"),
        ({"moves": tuple(turned)}, True, "cannot be applied"),
        ({"moves": tuple(nowhere)}, True, "cannot be applied"),
        ({"moves": tuple(beyond)}, True, "cannot be applied"),
        ({"moves": tuple(beyond) * 2}, True, "cannot be applied"),
        ({"moves": tuple(far)}, True, "cannot be applied"),
        ({"drains": ("nobody",)}, True, "not a member"),
        ({"group_id": "other"}, True, "Consumer group other not found"),
        ({"plan_id": ""}, True, "the plan is ''"),
        ({"inputs": {}}, True, "is for another state"),
        ({"moves": tuple(shown.moves) * 2}, True, "cannot be applied"),
        ({"expires_ms": 2**62}, False, "is not what was shown"),
        ({"expires_ms": 2**62, "timestamp": shown.timestamp - 86_400_000}, True, "expired"),
        ({"expires_ms": 2**62, "timestamp": shown.timestamp + 2**40}, True, "from now"),
    ):
        path.write_bytes(msgspec.json.encode(shown))
        edited(desk, again=again, **fields)
        assert said in desk.run("apply", "plan.json"), fields
    assert desk.owners() == {"m1": 3, "m2": 3}
    assert desk.plans() == []
    assert made[-1]["moved"] == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plan", "none"), "none"),
        (("plan", "g", "--drain", "m9"), "drain m9: not a member; the group has m1, m2"),
        (("plan", "g", "--undrain", "m1"), "undrain m1: it is not drained; drained are none"),
        (("plan", "g", "--without", "m1", "--without", "m2"), "group 'g' has no member left"),
        (("plan", "g", "--add", "-1"), "add is -1: give 1 to 100000 members"),
        (("plan", "g", "--assignor", "best"), "best"),
        (("plan", "g", "--setting", "x"), "--setting is 'x': give name=value"),
        (("plan", "g", "--max-moves", "-3"), "consumer.assignor.max.moves"),
        (("plan", "g", "--drain", "m1", "--drain", "m2"), "cannot be on any member"),
        (("plan", "g", "-o", "no/such/folder.json"), "cannot be written"),
        (("rollback", "none", "--to", "1"), "none"),
        (("rollback", "g", "--to", "-1"), "no target of epoch -1"),
        (("rollback", "g", "--to", "9" * 30), "no target of epoch 9999"),
        (("rollback", "g", "--to", "-" + "9" * 30), "no target of epoch -9999"),
        (("approve", "g", "\x1b[2J"), "is waiting; waiting are none"),
        (("reject", "none", "0"), "none"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(desk, words, said):
    before = frame(desk.store, "log").num_rows
    refusal = desk.run(*words)
    assert said in refusal
    assert "\x1b[2J" not in refusal
    kinds = frame(desk.store, "log")["kind"].to_pylist()[before:]
    assert set(kinds) <= {"claim", "proposal"}  # that it was asked is in the log, and the answer


def test_suppositions_are_shown_and_not_applied(desk):
    *_, summary = desk.run("plan", "g", "--add", "1", "-o", "plan.json")
    assert (summary["members"], summary["supposes"]) == (3, "with 1 more member")
    assert "supposes a group with 1 more member: it can only be shown" in desk.run(
        "apply", "plan.json"
    )
    assert "goes with --rebase" in desk.run("apply", "plan.json", "-o", "other.json")
