"""Users of a coordinator with access lists: what refuses a commit, and what is said of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import spark_jobs
from coordinator import GroupError
from tests.clients.test_access import ACLS
from tests.wire.test_server import served


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acls")
    users, acls = folder / "users.toml", folder / "acls.toml"
    users.write_text("[users]\nalice = 'a'\nbob = 'b'\n")
    acls.write_text(ACLS)
    login = {"sasl_mechanisms": ("SCRAM-SHA-256",), "sasl_users": str(users), "acls": str(acls)}
    with served({"clicks": 4, "secrets": 2}, **login) as (_, found):
        yield found


def login(user, password=""):
    return ("SCRAM-SHA-256", user, password or user[0])


def commit(address, group, user, password="", patience_s=20, **ends):
    """Let a listener hear of a batch; return it, closed."""
    offsets = spark_jobs.GroupOffsets(address, group, login=login(user, password))
    source = SimpleNamespace(description="KafkaV2[Subscribe[x]]", endOffset=json.dumps(ends))
    progress = SimpleNamespace(runId="r", name=None, sources=[source])
    try:
        offsets.onQueryProgress(SimpleNamespace(progress=progress))
        offsets.flush(patience_s)
    finally:
        offsets.close(0.1)
    return offsets


def test_who_may_commits_and_finds_it_again(address):
    done = commit(address, "orders-1", "alice", clicks={"0": 5})
    assert (done.committed, done.failures) == (1, 0)
    found = spark_jobs.starting_offsets(address, "orders-1", "clicks", login=login("bob"))
    assert json.loads(found)["clicks"]["0"] == 5


def test_a_group_that_may_not_be_committed_to(address, caplog):
    refused = commit(address, "orders-1", "bob", clicks={"0": 5})
    assert (refused.committed, refused.failures) == (0, 1)
    assert "allow READ on the group" in caplog.text


def test_a_group_that_may_not_be_seen(address, caplog):
    refused = commit(address, "private", "alice", patience_s=1, clicks={"0": 5})
    assert refused.committed == 0
    assert refused.failures >= 1
    assert "allow READ on the group, trying again" in caplog.text


def test_a_topic_that_may_not_be_read_holds_up_no_other(address, caplog):
    refused = commit(address, "orders-2", "alice", clicks={"1": 7}, secrets={"0": 1})
    assert (refused.committed, refused.failures) == (1, 1)
    assert "allow READ on the topic" in caplog.text


def test_a_wrong_password_is_said_and_tried_again(address, caplog):
    refused = commit(address, "orders-3", "alice", "wrong", patience_s=1, clicks={"0": 5})
    assert refused.committed == 0
    assert refused.failures >= 1
    assert "the login is refused" in caplog.text


def test_offsets_that_may_not_be_read_are_an_error(address):
    with pytest.raises(GroupError, match="offsets of group private cannot be read"):
        spark_jobs.starting_offsets(address, "private", "clicks", login=login("alice"))
    with pytest.raises((GroupError, ValueError), match="secrets"):
        spark_jobs.starting_offsets(address, "orders-1", "secrets", login=login("alice"))
    with pytest.raises(GroupError, match="the login is refused"):
        spark_jobs.starting_offsets(address, "orders-1", "clicks", login=login("alice", "wrong"))
