"""Requests about very many things are answered in pieces exactly as they are whole."""

from __future__ import annotations

import pytest

from coordinator.core.events import OffsetCommit
from coordinator.errors.status import Status
from coordinator.wire.acls import parse_acls
from coordinator.wire.authorization import authorize_request
from coordinator.wire.codec import Api, decode, decode_body
from coordinator.wire.split_requests import LISTS, PIECE_GROUPS, PIECE_ITEMS, split_request
from tests.support.wire_client import request_frame
from tests.support.wire_side import Side, encode_response

COUNT = 2 * PIECE_ITEMS + 50
SOME = """
[[acls]]
principal = "User:ANONYMOUS"
operations = ["DESCRIBE"]
resource_type = "GROUP"
resource_name = "group-1"
pattern_type = "PREFIXED"
"""
NAMES = [f"group-{number}" for number in range(COUNT)]
ALTERED = [
    {"resource_type": 32 if number % 3 else 2, "resource_name": name, "configs": []}
    for number, name in enumerate(NAMES)
]
REQUESTS = {
    Api.OFFSET_FETCH: (9, {
        "groups": [
            {"group_id": name, "topics": None, "member_id": None, "member_epoch": -1}
            for name in NAMES
        ],
    }),
    Api.FIND_COORDINATOR: (4, {"coordinator_keys": NAMES}),
    Api.DESCRIBE_GROUPS: (5, {"groups": NAMES, "include_authorized_operations": False}),
    Api.DESCRIBE_CONFIGS: (4, {
        "resources": [
            {"resource_type": 32 if n % 3 else 2, "resource_name": name, "configuration_keys": None}
            for n, name in enumerate(NAMES)
        ],
    }),
    Api.ALTER_CONFIGS: (2, {"resources": ALTERED, "validate_only": True}),
    Api.DELETE_GROUPS: (2, {"groups_names": NAMES}),
    Api.INCREMENTAL_ALTER_CONFIGS: (1, {"resources": ALTERED, "validate_only": True}),
    Api.CONSUMER_GROUP_DESCRIBE: (1, {
        "group_ids": [*NAMES, "g"], "include_authorized_operations": False,
    }),
}  # fmt: skip


def test_every_list_request_can_be_split():
    assert REQUESTS.keys() == LISTS.keys()


@pytest.mark.parametrize("api", REQUESTS)
def test_a_split_request_has_the_same_answer(api):
    version, fields = REQUESTS[api]
    side = Side(clicks=4)
    side.join("m1", "clicks")

    def request():
        found = decode(request_frame(api, version, 7, **fields)[4:])
        if found.unread:
            decode_body(found)
        return found

    whole = request()
    call = authorize_request(whole, side.cluster)
    expected = encode_response(whole, call, side.processor.run(call.events))
    pieces = split_request(request())
    count = 0
    while (part := pieces.next()) is not None:
        call = authorize_request(part, side.cluster)
        assert len(call.events) <= PIECE_ITEMS
        pieces.add(call, side.processor.run(call.events))
        count += 1
    assert count == 3
    assert pieces.frame() == expected


def test_a_short_request_is_not_split():
    few = decode(request_frame(Api.DELETE_GROUPS, 2, groups_names=NAMES[:PIECE_ITEMS])[4:])
    assert split_request(few) is None
    every = decode(request_frame(Api.DELETE_GROUPS, 2, groups_names=[])[4:])
    assert split_request(every) is None


@pytest.mark.parametrize("groups", [0, 1, PIECE_GROUPS, 2 * PIECE_GROUPS + 7])
@pytest.mark.parametrize("who", ["anyone", "a user"])
def test_a_split_list_of_groups_is_complete(groups, who):
    side = Side(clicks=4)
    names = [f"group-{number}" for number in range(groups)]
    side.processor.run([OffsetCommit(name, "", -1, {"clicks": {0: (1, "")}}) for name in names])
    side.join("m1", "clicks")
    if who == "a user":
        side.acls = parse_acls(SOME, "acls.toml")
    asked = decode(request_frame(Api.LIST_GROUPS, 5, 1)[4:])
    call = authorize_request(asked, side.cluster)
    whole = encode_response(asked, call, side.processor.run(call.events))
    pieces = split_request(asked)
    pieces.begin(side.processor.run(pieces.before))
    while (part := pieces.next()) is not None:
        assert len(part.group_ids) <= PIECE_GROUPS
        call = authorize_request(part, side.cluster)
        pieces.add(call, side.processor.run(call.events))
    assert pieces.frame() == whole


def test_a_list_of_groups_is_refused_as_a_whole():
    side = Side(clicks=4)
    side.processor.status = Status.FENCED
    asked = decode(request_frame(Api.LIST_GROUPS, 5, 1)[4:])
    call = authorize_request(asked, side.cluster)
    whole = encode_response(asked, call, side.processor.run(call.events))
    pieces = split_request(asked)
    pieces.begin(side.processor.run(pieces.before))
    call = authorize_request(pieces.next(), side.cluster)
    pieces.add(call, side.processor.run(call.events))
    assert pieces.next() is None
    assert pieces.frame() == whole
