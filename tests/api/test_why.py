"""Rebalances, waits, the audit and explanations over HTTP: as commands and views show them."""

from __future__ import annotations

import errno
import json
import os

import pytest

from coordinator.core.state.embedded import Subscription, write_subscription
from coordinator.core.state.plan_values import TopicWeights
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberWritten,
    KafkaWatched,
    LoadsNoted,
    TopicChanged,
)
from coordinator.history import frame
from coordinator.history.json_rows import to_json_rows
from coordinator.storage.record_log import Batch
from coordinator.web.errors import explain
from tests.api.asking import BY_NAME, address, ask, list_all, problem_of
from tests.support.processes import run_as_text
from tests.support.stories import NOON, all_stories, stored
from tests.web.browsing import browse
from tests.web.test_plans import ANN, BOB, config_of


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return stored(all_stories(), tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def client(store):
    return browse(store)


@pytest.mark.parametrize(
    ("name", "view"), [("listRebalances", "rebalances"), ("listWaits", "waits")]
)
def test_rows_are_those_of_the_view(client, store, name, view):
    whole = 0
    for group_id in frame(store, "groups")["group_id"].to_pylist():
        rows = to_json_rows(frame(store, view, group_id=group_id))
        assert list_all(client, name, group_id) == list_all(client, name, group_id, limit=1) == rows
        whole += len(rows)
    assert whole >= 3
    problem_of(client.get(address(name, "nobody")), 404)


def test_rebalances_can_be_followed(client, store):
    whole = list_all(client, "listRebalances", "billing")
    assert list_all(client, "listRebalances", "billing", after=whole[0]["position"]) == whole[1:]
    then = list_all(client, "listRebalances", "billing", as_of=whole[1]["position"])
    assert [one["position"] for one in then] == [one["position"] for one in whole[:2]]


def test_the_audit_is_that_of_the_view(client, store):
    rows = to_json_rows(frame(store, "audit"))
    assert list_all(client, "listAudit") == list_all(client, "listAudit", limit=1) == rows
    some = list_all(client, "listAudit", action="login_failed")
    assert some == [row for row in rows if row["action"] == "login_failed"] != []
    assert list_all(client, "listAudit", after=rows[0]["position"]) == rows[1:]
    assert "one of" in problem_of(client.get(address("listAudit", action="x")), 400)


def test_an_explanation_is_that_of_the_command(client, store):
    done = run_as_text("explain", "search", "--store", store, "--partition", "pages/3", "--json")
    row = json.loads(done.stdout)
    found = ask(client, "explainPartition", "search", topic="pages", partition=3)["explained"]
    assert found == row
    assert [one for one in found["candidates"] if one["has"]]
    epoch = found["assignment_epoch"] - 1
    former = ask(client, "explainPartition", "search", topic="pages", partition=3, epoch=epoch)
    assert former["explained"]["assignment_epoch"] == epoch


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({}, 400, "topic is missing"), ({"topic": "pages"}, 400, "partition is missing"),
        ({"topic": "pages", "partition": 99}, 400, "99"),
        ({"topic": "none", "partition": 0}, 400, "none"),
        ({"topic": "pages", "partition": 0, "epoch": 999}, 400, "999"),
        ({"topic": "pages", "partition": 0, "epoch": -1}, 400, "whole number"),
        ({"topic": "pages", "partition": 0, "as_of": 0}, 400, "positions 1 to"),
    ],
)  # fmt: skip
def test_an_odd_question_is_refused(client, given, code, said):
    assert said in problem_of(client.get(address("explainPartition", "search", **given)), code)


def with_acls(folder, text):
    config = config_of(folder)
    (folder / "acls.toml").write_text(text)
    return config


def test_who_may_not_see_all_sees_the_audit_of_its_groups(store, tmp_path):
    client = browse(store, with_acls(tmp_path, ACLS))
    found = list_all(client, "listAudit", auth=BOB)
    assert {row["group_id"] for row in found} == {"archive"}
    assert len(list_all(client, "listAudit", auth=ANN)) > len(found)
    for name in ("listRebalances", "listWaits", "explainPartition"):
        given = {"topic": "pages", "partition": 0} if name == "explainPartition" else {}
        problem_of(client.get(address(name, "search", **given), auth=BOB), 404)
    refused = client.get(
        address("explainPartition", "archive", topic="boxes", partition=0), auth=BOB
    )
    problem_of(refused, 403)


ACLS = """
super_users = ["User:ann"]
[[acls]]
principal = "User:bob"
operations = ["DESCRIBE"]
resource_type = "GROUP"
resource_name = "archive"
"""


def test_a_tag_is_of_the_access_lists_and_not_of_where_they_are(store, tmp_path):
    """Lists that are read again may be where others were; equal ones are the same everywhere."""
    path, acls = address("getGroup", "billing"), ACLS.replace("archive", "billing")
    config = with_acls(tmp_path, acls)
    tag = browse(store, config).get(path, auth=BOB).headers["etag"]
    again = browse(store, config).get(path, auth=BOB, headers={"if-none-match": tag})
    assert again.status_code == 304
    other = with_acls(tmp_path, acls + 'pattern_type = "PREFIXED"\n')
    assert browse(store, other).get(path, auth=BOB).headers["etag"] != tag


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_full_disk_is_named_without_its_paths(code):
    """A decision is left in the store as a file: what is read goes on."""
    found = explain(OSError(code, os.strerror(code), "/var/lib/muster/store/inbox/1.json"))
    assert found == f"The store cannot be written, so nothing was decided: {os.strerror(code)}"


def test_a_plan_of_a_watched_group_has_its_lag_for_weights(tmp_path):
    records = [KafkaWatched("cluster-1", "topic", NOON), TopicChanged("clicks", "id", 3)]
    said = write_subscription(Subscription(1, ["clicks"]))
    members = tuple(ClassicMemberWritten(one, subscription=said) for one in ("m1", "m2"))
    records.append(ClassicGroupWritten("busy", 1, "consumer", "range", "m1", NOON, members))
    records.append(LoadsNoted("busy", (TopicWeights("clicks", (9.0, 1.0, 1.0)),)))
    batches = [Batch(0, NOON, 1, []), Batch(0, NOON, 1, records)]
    client = browse(stored(batches, tmp_path / "store"), config_of(tmp_path))
    answer = client.post(address("makePlan", "busy"), json={"assignor": "weighted"}, auth=ANN)
    assert answer.status_code == 200, answer.text
    summary = answer.json()["summary"]
    assert "Kafka cluster cluster-1" in summary["supposes"]
    assert summary["weights_known"] == 3
    assert summary["inputs"]["weights"].endswith("3 weights, 0 capacities")
    assert BY_NAME["makePlan"].body
