"""What one conversation remembers of the heartbeats in it.

- Of each member, whether the last answer brought partitions (apis/heartbeat_api.py says why).
- Of the last request that its client is likely to repeat word for word, the event that it means,
  and the access lists that allow it: neither is worked out again for the next one.
"""

from __future__ import annotations

from typing import TypeAlias

from coordinator.core.classic_events import ClassicHeartbeat
from coordinator.core.events import JOIN, Heartbeat, HeartbeatResponse
from coordinator.wire.acls import Acls

MEMBERS_REMEMBERED_MAX = 10_000
"""Members of one conversation that are remembered; others get their assignment again."""

Beat: TypeAlias = Heartbeat | ClassicHeartbeat

NO_BODY = object()
"""The body of no request: those that are not read yet have None."""


class Conversation:
    """The memory of one connection; bodies of requests are distinguished by identity.

    Parameters
    ----------
    members_max
        How many members are remembered at most.
    """

    __slots__ = ("_allowed_by", "_body", "_brought_partitions", "_event", "_members_max")

    def __init__(self, members_max: int = MEMBERS_REMEMBERED_MAX) -> None:
        self._members_max = members_max
        self._brought_partitions: dict[tuple[str, str], bool] = {}
        self._body: object = NO_BODY
        self._event: Beat | None = None
        self._allowed_by: Acls | None = None

    def __len__(self) -> int:
        """How many members are remembered."""
        return len(self._brought_partitions)

    # Members -------------------------------------------------------------------------------------

    def has_brought(self, group_id: str, member_id: str) -> bool | None:
        """Whether the last answer to a member brought partitions; None: it has had none here."""
        return self._brought_partitions.get((group_id, member_id))

    def note_answer(self, group_id: str, response: HeartbeatResponse) -> None:
        """Remember whether a member has just been given partitions."""
        members = self._brought_partitions
        key = group_id, response.member_id or ""
        if response.member_epoch < JOIN:
            members.pop(key, None)
        else:
            members[key] = bool(response.assignment)
            if len(members) > self._members_max:
                del members[next(iter(members))]

    # The request that may come again -------------------------------------------------------------

    def expect_again(self, body: object) -> None:
        """Remember from now on what is worked out of this body, and nothing of another."""
        self._body, self._event, self._allowed_by = body, None, None

    def event_of(self, body: object) -> Beat | None:
        """Return the event that a body means, where that is remembered."""
        return self._event if body is self._body else None

    def note_event(self, body: object, event: Beat) -> None:
        """Remember what a body means, if it may come again."""
        if body is self._body:
            self._event = event

    def is_allowed(self, body: object, acls: Acls) -> bool:
        """Whether these access lists are known to allow the whole request."""
        return body is self._body and acls is self._allowed_by

    def note_allowed(self, body: object, acls: Acls | None) -> None:
        """Remember that the access lists allow the whole request, if it may come again."""
        if body is self._body:
            self._allowed_by = acls
