"""Split large requests into small ones, so that they do not delay heartbeats.

Each piece is answered like a request of its own, and its answer is bytes before the next piece is
asked: so others have their turn in between, and nothing large is kept that Python's collector would
look through while all wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from coordinator.core.events import Answer, Event, ListGroupIds
from coordinator.errors import GroupError
from coordinator.wire.call import Call
from coordinator.wire.codec import Api, EncodedList, Request, Values, append_parts, encode

PIECE_ITEMS, PIECE_GROUPS = 100, 1_000
"""Elements, and groups of a list, that are answered in about two milliseconds."""
LISTS: dict[Api, tuple[str, str]] = {
    Api.OFFSET_FETCH: ("groups", "groups"),
    Api.FIND_COORDINATOR: ("coordinator_keys", "coordinators"),
    Api.DESCRIBE_GROUPS: ("groups", "groups"),
    Api.DESCRIBE_CONFIGS: ("resources", "results"),
    Api.ALTER_CONFIGS: ("resources", "responses"),
    Api.DELETE_GROUPS: ("groups_names", "results"),
    Api.INCREMENTAL_ALTER_CONFIGS: ("resources", "responses"),
    Api.CONSUMER_GROUP_DESCRIBE: ("group_ids", "groups"),
}
"""The list of a request whose elements are answered each alone, and that of their answers."""


class SplitRequest:
    """A request answered in pieces, and its answer so far.

    Attributes
    ----------
    before
        What has to be asked before the first piece, for `begin`.
    """

    before: Sequence[Event] = ()

    def __init__(self, request: Request) -> None:
        self.request = request
        self._asked, self._answered = LISTS.get(request.api, ("", "groups"))
        self._items: Sequence[Any] = getattr(request.body, self._asked, ())
        self._at = 0
        self._values: Values = {}
        self._written = EncodedList()

    def begin(self, answers: Sequence[Answer]) -> None:
        """Take the answers to what was asked before."""

    def next(self) -> Request | None:
        """Return the next piece; None after the last."""
        if self._at >= len(self._items):
            return None
        items = self._items[self._at : self._at + PIECE_ITEMS]
        self._at += PIECE_ITEMS
        return self.request.with_items(self._asked, items)

    def add(self, call: Call, answers: Sequence[Answer]) -> None:
        """Write the answer to the piece that was asked last."""
        self._values = call.respond(answers)
        found = self._values[self._answered]
        assert isinstance(found, Sequence)
        append_parts(self.request, self._answered, found, self._written)

    def frame(self) -> bytes:
        """Return the whole answer."""
        return encode(self.request, {**self._values, self._answered: self._written})


class SplitGroupList(SplitRequest):
    """ListGroups: the ids of all groups first, then the groups piece by piece."""

    before = (ListGroupIds(),)

    def begin(self, answers: Sequence[Answer]) -> None:
        """Take the ids of all groups; after an error none, so that one piece is refused too."""
        (answer,) = answers
        if not isinstance(answer, GroupError):
            found: Any = answer.response
            self._items = found

    def next(self) -> Request | None:
        """Return the next piece, at least one."""
        if self._at and self._at >= len(self._items):
            return None
        items = self._items[self._at : self._at + PIECE_GROUPS]
        self._at += PIECE_GROUPS
        return replace(self.request, group_ids=items)


def split_request(request: Request) -> SplitRequest | None:
    """Split a request that is too large to answer at once; None for others."""
    if request.api is Api.LIST_GROUPS:
        return SplitGroupList(request)
    if request.api not in LISTS:
        return None
    items = getattr(request.body, LISTS[request.api][0], None) or ()
    return SplitRequest(request) if len(items) > PIECE_ITEMS else None
