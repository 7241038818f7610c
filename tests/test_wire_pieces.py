"""Requests about very many things are answered in pieces exactly as they are whole."""

from __future__ import annotations

import pytest
from wire_client import request_frame
from wire_side import Side

from coordinator.wire.authorization import call_of
from coordinator.wire.codec import Api, decode, read_body
from coordinator.wire.pieces import LISTS, PIECE, pieces_of
from coordinator.wire.requests import frame_of

COUNT = 2 * PIECE + 50
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


def test_every_such_request_is_known():
    assert REQUESTS.keys() == LISTS.keys()


@pytest.mark.parametrize("api", REQUESTS)
def test_pieces_are_answered_as_the_whole(api):
    version, fields = REQUESTS[api]
    side = Side(clicks=4)
    side.join("m1", "clicks")

    def request():
        found = decode(request_frame(api, version, 7, **fields)[4:])
        if found.unread:
            read_body(found)
        return found

    whole = request()
    call = call_of(whole, side.cluster)
    expected = frame_of(whole, call, side.runner.run(call.events))
    pieces = pieces_of(request())
    count = 0
    while (part := pieces.next()) is not None:
        call = call_of(part, side.cluster)
        assert len(call.events) <= PIECE
        pieces.add(call, side.runner.run(call.events))
        count += 1
    assert count == 3
    assert pieces.frame() == expected


def test_a_request_about_few_things_is_not_cut():
    few = decode(request_frame(Api.DELETE_GROUPS, 2, groups_names=NAMES[:PIECE])[4:])
    assert pieces_of(few) is None
    every = decode(request_frame(Api.DELETE_GROUPS, 2, groups_names=[])[4:])
    assert pieces_of(every) is None
