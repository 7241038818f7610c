"""Access lists as a file, and the rule by which they decide (Kafka's StandardAuthorizer)."""

from __future__ import annotations

import pytest

from coordinator.errors import ConfigError
from coordinator.wire.acls import CLUSTER, OPERATIONS, Operation, Resource, ResourceType, parse_acls
from tests.conftest import ROOT

READ, DESCRIBE, DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE


def entry(principal="User:ann", operations=("READ",), name="g", **words):
    words = {"resource_type": "GROUP", **words, "principal": principal, "resource_name": name}
    lines = [f"{key} = {value!r}" for key, value in words.items()]
    return "\n".join(["[[acls]]", f"operations = {list(operations)!r}", *lines, ""])


def may(text, operation=READ, name="g", principal="User:ann", host="10.0.0.1", kind="GROUP"):
    return parse_acls(text, "x").allows(
        principal, host, operation, Resource(ResourceType[kind], name)
    )


def test_without_a_list_access_is_denied():
    assert not may("")
    assert not may(entry(), principal="User:bob")
    assert not may(entry(), name="gg")
    assert not may(entry(), name="G")
    assert not may(entry(), kind="TOPIC")
    assert not may(entry(), DELETE)
    assert may(entry())


def test_literal_prefixed_and_wildcard_names_match():
    prefixed = entry(name="team-", pattern_type="PREFIXED")
    assert may(prefixed, name="team-")
    assert may(prefixed, name="team-a")
    assert not may(prefixed, name="team")
    assert not may(entry(name="team-"), name="team-a")
    assert may(entry(name="*"), name="team-a")
    assert may(entry(name="*"), name="*")
    assert may(entry(name="*", pattern_type="PREFIXED"), name="*a")
    assert not may(entry(name="*", pattern_type="PREFIXED"), name="a"), "a beginning like another"


def test_deny_wins_over_allow():
    deny = entry(permission="DENY", name="team-", pattern_type="prefixed")
    allow = entry(operations=("all",), name="*")
    for text in (deny + allow, allow + deny):
        assert not may(text, name="team-a")
        assert may(text, name="other")
        assert may(text, DESCRIBE, "team-a"), "to deny READ does not deny DESCRIBE"
    everything = entry("User:*", ("ALL",), "*", permission="DENY")
    assert not may(allow + everything, DESCRIBE)
    assert may("super_users = ['User:ann']\n" + everything)


def test_operations_imply_others():
    for operations, implied in ((("READ",), DESCRIBE), (("DELETE",), DESCRIBE),
                                (("ALTER_CONFIGS",), Operation.DESCRIBE_CONFIGS)):  # fmt: skip
        assert may(entry(operations=operations), implied)
    assert not may(entry(operations=("ALTER_CONFIGS",)), DESCRIBE)
    assert not may(entry(operations=("DESCRIBE",)), READ)
    assert all(may(entry(operations=("ALL",)), one) for one in OPERATIONS[ResourceType.GROUP])


def test_wildcard_principals_and_hosts():
    assert may(entry("User:*"), principal="User:ANONYMOUS")
    assert not may(entry("User:*") + entry(permission="DENY", host="10.0.0.1"))
    assert may(entry(host="10.0.0.1"))
    assert not may(entry(host="10.0.0.2"))
    assert may(entry(host="0:0:0:0:0:0:0:1"), host="::1")


def test_everyone_if_no_acl_found_means_no_list_of_this_resource():
    text = "allow_everyone_if_no_acl_found = true\n" + entry(name="team-", pattern_type="PREFIXED")
    assert may(text, principal="User:bob", name="other")
    assert not may(text, principal="User:bob", name="team-a")
    assert may(text, name="team-a")


def test_the_example_file_is_valid():
    acls = parse_acls((ROOT / "conf/acls.toml").read_text(), "conf/acls.toml")

    def group(principal, operation, name):
        return acls.allows(principal, "::1", operation, Resource(ResourceType.GROUP, name))

    assert group("User:admin", DELETE, "prod-a")
    assert group("User:orders", READ, "orders-1")
    assert not group("User:orders", DELETE, "orders-1")
    assert group("User:operator", DELETE, "orders-1")
    assert not group("User:operator", DELETE, "prod-a")
    assert not group("User:operator", READ, "orders-1")
    assert acls.allows("User:operator", "::1", DESCRIBE, CLUSTER)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[acls", "x: "),
        ("acl = []", "x: Object contains unknown field `acl`"),
        ("acls = 5", "Expected `array`, got `int` - at `$.acls`"),
        ("[[acls]]", "missing required field `principal`"),
        (entry() + "hots = '*'", "unknown field `hots` - at `$.acls[0]`"),
        (entry(["User:ann"]), "Expected `str`, got `array` - at `$.acls[0].principal`"),
        (entry("ann"), "acls[0]: principal is 'ann': give User:name"),
        (entry("Group:ann"), "principal is 'Group:ann': give User:name"),
        (entry("User:"), "give User:name, or User:* for everybody"),
        (entry() + entry(operations=()), "acls[1]: operations is empty: give some of"),
        (entry(operations=("REED",)), "operations is 'REED': give one of READ, DESCRIBE, DELETE"),
        (entry(operations=("WRITE",)), "operations is 'WRITE': give one of READ, DESCRIBE"),
        (entry(name=""), "resource_name is empty"),
        (entry(resource_type="GRUOP"), "resource_type is 'GRUOP': give one of TOPIC, GROUP"),
        (entry(resource_type="CLUSTER", operations=("ALTER",)), "the cluster's is 'kafka-cluster'"),
        (entry(pattern_type="MATCH"), "pattern_type is 'MATCH': give one of LITERAL, PREFIXED"),
        (entry(permission="PERMIT"), "permission is 'PERMIT': give one of ALLOW, DENY"),
        (entry(host="here.example"), "host is 'here.example': give the client's address, or *"),
        ("super_users = ['admin']", "super_users is 'admin': give User:name"),
        ("super_users = ['User:*']", "super_users is 'User:*': name each"),
        ('super_users = ["User\\u001b[2J"]', "super_users is 'User\\x1b[2J': give"),
    ],
)  # fmt: skip
def test_a_file_with_an_error_is_refused_and_says_where(text, message):
    with pytest.raises(ConfigError) as error:
        parse_acls(text, "x")
    assert message in str(error.value)
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("name", ["\x1b[2J", "a\nb", "ü" * 200, "'; DROP TABLE", "*" * 50, "../.."])
def test_hostile_names_are_names(name):
    quoted = "".join(f"\\u{ord(c):04x}" for c in name)
    text = "\n".join(
        ["[[acls]]", 'operations = ["READ"]', f'principal = "User:{quoted}"',
         'resource_type = "GROUP"', f'resource_name = "{quoted}"'],
    )  # fmt: skip
    assert may(text, name=name, principal=f"User:{name}")
    assert not may(text, name=name)


def test_many_lists_decide_fast():
    """By name and by the lengths of beginnings: not by looking at each."""
    text = "".join(
        entry(f"User:u{i}", name=f"team-{i}-", pattern_type="PREFIXED") for i in range(5_000)
    )
    acls = parse_acls(text, "x")
    looked = acls._find_acls(Resource(ResourceType.GROUP, "team-77-a"))
    assert len(list(looked)) == 1
    assert acls.allows("User:u77", "::1", READ, Resource(ResourceType.GROUP, "team-77-a"))
