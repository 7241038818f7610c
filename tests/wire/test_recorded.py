"""What the Java client and franz-go send, byte for byte, and what Kafka 4.4.0 answers them.

B1: of a member with a pattern, the second heartbeat follows at once. It has to bring the partitions:
otherwise they come one heartbeat interval late, and these clients wait for it.
"""

from __future__ import annotations

import base64
import json
from itertools import groupby, pairwise

import pytest

from coordinator.runtime.topic_catalog import topic_id_of
from coordinator.wire.call import to_uuid
from coordinator.wire.codec import Api
from tests.conftest import ROOT
from tests.support.wire_client import Client, read_response, take_frame
from tests.wire.test_server import served, until

LINES = (ROOT / "tests/golden/wire/kafka-4.4.0.jsonl").read_text().splitlines()
RECORDED = base64.urlsafe_b64decode("BmLH6I_WSiyoAqcCGjrzOg==")
LIVES = {
    key: [tuple(bytes.fromhex(line[name]) for name in ("request", "answer")) for line in lines]
    for key, lines in groupby(
        map(json.loads, LINES), lambda line: (line["client"].split()[0], line["subscribes"])
    )
}


def moved(frame):
    """Return a recorded frame with the topic's id here in place of the one it had there."""
    return frame.replace(RECORDED, to_uuid(topic_id_of("clicks")).bytes)


def shown(frame):
    return read_response(frame, Api.CONSUMER_GROUP_HEARTBEAT, 1)


@pytest.mark.parametrize("life", LIVES.values(), ids=map("-".join, LIVES))
def test_the_heartbeats_of_a_member_are_answered_as_by_kafka(life):
    topics = {"clicks": 4, "orders": 2}
    with served(topics) as (coordinator, address), Client(address) as client:

        def resolved():
            (group,) = coordinator.list_groups()["groups"]
            return coordinator.consumer_group_describe(group["group_id"])[0]["group_epoch"] == 2

        for number, (asked, answered) in enumerate(map(moved, one) for one in life):
            if number == 1:
                until(resolved)  # as it was there, before this client asked again
            client.socket.sendall(asked)
            found = take_frame(client.socket)
            assert found == answered, f"{number}: {shown(found)} is not {shown(answered)}"


def test_every_second_heartbeat_follows_at_once():
    """The recordings hold what they are for: partitions by the second answer, long before 5 s."""
    assert len(LIVES) == 4
    for life in LIVES.values():
        _, second = (shown(answer)[1] for _, answer in life[:2])
        assert second.member_epoch == 2
    at_ms = [json.loads(line)["at_ms"] for line in LINES]
    assert max(two for one, two in pairwise(at_ms) if one == 0) <= 200
