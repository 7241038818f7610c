"""A client of classic groups, for tests: its requests, and a coordinator in memory that answers."""

from __future__ import annotations

from itertools import count
from typing import ClassVar

from msgspec.structs import replace

from coordinator.core.classic_events import WAITING, JoinGroup, SyncGroup
from coordinator.core.events import Result
from coordinator.wire.apis.classic_apis import CLASSIC_HANDLERS, HANDLERS
from coordinator.wire.codec import CLASSIC_VERSIONS, VERSIONS, Api, decode, encode
from tests.support.wire_client import read_response, request_frame
from tests.support.wire_side import Side

KNOWN = VERSIONS | CLASSIC_VERSIONS
HANDLED = HANDLERS | CLASSIC_HANDLERS
JOIN = {
    "group_id": "g", "member_id": "m1", "session_timeout": 6_000, "rebalance_timeout": 60_000,
    "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"\0"}],
}  # fmt: skip
SYNC = {
    "group_id": "g", "member_id": "m1", "generation_id": 3, "assignments": (),
    "protocol_type": "consumer", "protocol_name": "range",
}  # fmt: skip
BEAT = {"group_id": "g", "member_id": "m1", "generation_id": 3}
LEAVE = {"group_id": "g", "member_id": "m1", "members": [{"member_id": "m1"}]}
WORDS = {
    Api.JOIN_GROUP: JOIN, Api.SYNC_GROUP: SYNC, Api.HEARTBEAT: BEAT, Api.LEAVE_GROUP: LEAVE,
    Api.DESCRIBE_GROUPS: {"groups": ["g"], "include_authorized_operations": False},
}  # fmt: skip


def request_of(api, version, **words):
    """Return a request of kio's, read here."""
    return decode(request_frame(api, version, 7, **words)[4:], versions=KNOWN)


class Classic(Side):
    """A client of a coordinator in memory that serves members of classic groups."""

    settings: ClassVar = {"group.initial.rebalance.delay.ms": 0}

    def __init__(self, **topics):
        super().__init__(**topics)
        self.numbers = count(1)
        self.waiting = {}

    def say(self, api, version, **words):
        """Ask; of what has to wait, return its number."""
        request = request_of(api, version, **words)
        call = HANDLED[api](request, self.cluster)
        number = next(self.numbers)
        events = [
            replace(event, request_id=number) if isinstance(event, JoinGroup | SyncGroup) else event
            for event in call.events
        ]
        answers = self.processor.run(events)
        if isinstance(answers[0], Result) and answers[0].response is WAITING:
            self.waiting[number] = request, call
            return number
        return read_response(encode(request, call.respond(answers)), api, version)[1]

    def hear(self):
        """Return the answers to those that waited, by number; None if the member no longer waits."""
        found = self.processor.parked.take_answered()
        return {number: self._read(number, answer) for number, answer in found}

    def _read(self, number, answer):
        request, call = self.waiting.pop(number)
        if answer is None:
            return None
        frame = encode(request, call.respond([Result(response=answer)]))
        return read_response(frame, request.api, request.version)[1]
