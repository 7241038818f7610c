"""Who deleted or altered what, failed logins and denials: records of the log."""

from __future__ import annotations

from coordinator import Coordinator
from coordinator.core.state.records import Audited
from coordinator.storage.record_log import MemoryLog
from coordinator.wire.acls import CLUSTER, Operation, Resource, ResourceType
from coordinator.wire.codec import Api
from coordinator.wire.refusal_audit import DIFFERENT_MAX, RefusalCounter
from coordinator.wire.session import Session
from tests.support.members import log_of
from tests.wire.test_access import logged_in
from tests.wire.test_authorization import side_of
from tests.wire.test_server import served, until


def audited(log):
    found = [record for batch in log.replay() for record in batch.records]
    return [record for record in found if isinstance(record, Audited)]


def ask_all(side):
    side.ask(Api.OFFSET_DELETE, 0, group_id="team-a", topics=[
        {"name": "hidden", "partitions": [{"partition_index": 0}, {"partition_index": 1}]},
    ])  # fmt: skip
    side.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, group_id="team-a", member_id="mteam-a",
             member_epoch=-1, topic_partitions=None, rebalance_timeout=-1)  # fmt: skip
    side.ask(Api.DELETE_GROUPS, 2, groups_names=["team-a", "nowhere"])
    change = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}
    group = {"resource_type": 32, "resource_name": "team-b", "configs": [change]}
    for validate_only in (True, False):
        side.ask(Api.INCREMENTAL_ALTER_CONFIGS, 1, resources=[group], validate_only=validate_only)


def test_deletions_and_alterations_are_logged_with_their_principal():
    side = side_of("admin")
    ask_all(side)
    by = {"owner": "User:admin", "client_id": "test", "client_host": "10.0.0.1"}
    assert audited(side.processor.log) == [
        Audited("team-a", "offsets_deleted", **by, settings={"hidden": "0"}),
        Audited("team-a", "group_deleted", **by),
        Audited("team-b", "group_config_altered", **by,
                settings={"consumer.session.timeout.ms": "50000"}),
    ]  # fmt: skip
    before = side.processor.state
    side.processor.reload()
    assert side.processor.state.groups.keys() == before.groups.keys()


def test_an_embedding_program_is_named_in_the_audit():
    log = MemoryLog()
    log.claim("test", "", 0)
    with Coordinator.open(None, log=log) as coordinator:
        coordinator.alter_group_config("g", {"consumer.session.timeout.ms": 50_000})
        coordinator.offset_commit(group_id="g", topics={"t": {0: 1}})
        coordinator.delete_groups("g")
        found = audited(log)
    assert [(one.reason, one.owner) for one in found] == [
        ("group_config_altered", "process"), ("group_deleted", "process"),
    ]  # fmt: skip


def test_a_request_that_changes_nothing_is_not_audited():
    side = side_of("alice")
    side.ask(Api.DELETE_GROUPS, 2, groups_names=["mine", "nowhere", "team-a"])
    side.ask(Api.LIST_GROUPS, 4)
    side.beat("m", 0)
    assert audited(side.processor.log) == []


def test_denials_are_counted_by_who_and_what():
    refusals = RefusalCounter()
    session = Session("User:ann", "10.0.0.1", client_id="tool")
    for _ in range(7):
        refusals.note_denial(session, Operation.DELETE, Resource(ResourceType.GROUP, "g"))
    refusals.note_denial(session, Operation.ALTER_CONFIGS, CLUSTER)
    refusals.note_login("User:bob", session)
    by = {"client_id": "tool", "client_host": "10.0.0.1"}
    assert refusals.take() == [
        Audited("g", "authorization_denied", "User:ann", **by, settings={
            "count": "7", "operation": "DELETE", "resource_type": "GROUP", "resource_name": "g"}),
        Audited("", "authorization_denied", "User:ann", **by, settings={
            "count": "1", "operation": "ALTER_CONFIGS", "resource_type": "CLUSTER",
            "resource_name": "kafka-cluster"}),
        Audited("", "login_failed", "User:bob", **by, settings={"count": "1"}),
    ]  # fmt: skip
    assert refusals.take() == []


def test_audit_records_of_strangers_are_bounded():
    refusals, long = RefusalCounter(), "x" * 30_000
    session = Session(f"User:{long}", "10.0.0.1", client_id=long)
    for number in range(10_000):
        refusals.note_login(f"User:{number}{long}", session)
        refusals.note_denial(
            session, Operation.READ, Resource(ResourceType.GROUP, f"{number}{long}")
        )
    found = refusals.take()
    assert len(found) <= DIFFERENT_MAX + 2
    assert sum(int(one.settings["count"]) for one in found) == 20_000
    assert sum(len(str(one)) for one in found) < 50_000


def test_listing_all_logs_no_denial():
    """A list of all groups or topics, or what may be done with one, is no attempt at them."""
    side = side_of("alice")
    noted = []
    side.cluster = side.cluster_with(note_denial=lambda *what: noted.append(what[1:]))
    side.ask(Api.LIST_GROUPS, 4)
    side.ask(Api.METADATA, 12, topics=None, include_topic_authorized_operations=True,
             allow_auto_topic_creation=False)  # fmt: skip
    side.ask(Api.OFFSET_FETCH, 7, group_id="mine", topics=None)
    side.ask(Api.CONSUMER_GROUP_DESCRIBE, 0, group_ids=["mine"], include_authorized_operations=True)
    assert noted == []
    side.ask(Api.DELETE_GROUPS, 2, groups_names=["other"])
    assert noted == [(Operation.DELETE, Resource(ResourceType.GROUP, "other"))]


def test_failed_logins_and_denials_come_into_the_log(tmp_path):
    users, acls = tmp_path / "users.toml", tmp_path / "acls.toml"
    users.write_text("[users]\nann = 'secret'\n")
    acls.write_text("")
    login = {"sasl_mechanisms": ("PLAIN",), "sasl_users": str(users), "acls": str(acls)}
    with served(**login, audit_ms=1) as (coordinator, address):
        for _ in range(3):
            logged_in(address, "eve", "guess").socket.close()
        with logged_in(address) as client:
            client.ask(Api.DELETE_GROUPS, 2, groups_names=["g"])
            log = log_of(coordinator)
            until(lambda: len({one.reason for one in audited(log)}) == 2)
    found = {(one.reason, one.owner, one.client_host) for one in audited(log)}
    assert found == {
        ("login_failed", "User:eve", "127.0.0.1"),
        ("authorization_denied", "User:ann", "127.0.0.1"),
    }
    failed = [one for one in audited(log) if one.reason == "login_failed"]
    assert sum(int(one.settings["count"]) for one in failed) == 3
    assert "secret" not in str(audited(log))
    assert "guess" not in str(audited(log))
