"""The states of a member on its own side, and what moves it from one to another.

They are those of Kafka 4.4's client (docs/design/behaviours.md, G-170 and G-171). The table is the
only place that says which move there is: `Membership` moves by it, docs/design/member.md draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class ClientState(Enum):
    """What a member is doing, from its own view; the value describes it."""

    UNSUBSCRIBED = "not in a group: it has not subscribed yet, or has left"
    JOINING = "sends a heartbeat with epoch 0"
    STABLE = "owns what it was assigned, and only sends heartbeats"
    RECONCILING = "revokes what it may no longer own, then takes what is new; heartbeats continue"
    ACKNOWLEDGING = "its next heartbeat goes out at once and reports what it owns"
    FENCED = "no longer a member: gives up everything, then rejoins"
    PREPARE_LEAVING = "is about to leave: stops its work, commits, revokes; heartbeats continue"
    LEAVING = "says that it leaves, in its last heartbeats"
    STALE = "has left because its work showed no sign of life; rejoins when it does"
    FATAL = "was refused for good"


class Cause(Enum):
    """Why a member moves to another state."""

    SUBSCRIBED = "subscribed"
    ACCEPTED = "owns what the answer assigns"
    ASSIGNED = "assigned something else"
    RECONCILED = "revoked and taken"
    ACKNOWLEDGED = "heartbeat sent"
    FENCED = "fenced, or silent for too long"
    RELEASED = "owns nothing"
    LEFT = "goodbye heard, or given up"
    EXPIRED = "left without a sign of life"
    RESUMED = "sign of life"
    STALLED = "no sign of life"
    LEAVE = "asked to leave"
    REFUSED = "refused for good"


_S, _C = ClientState, Cause
_IN_GROUP = {
    _C.FENCED: _S.FENCED,
    _C.LEAVE: _S.PREPARE_LEAVING,
    _C.STALLED: _S.PREPARE_LEAVING,
    _C.REFUSED: _S.FATAL,
}
MOVES: Mapping[ClientState, Mapping[Cause, ClientState]] = MappingProxyType(
    {
        _S.UNSUBSCRIBED: {_C.SUBSCRIBED: _S.JOINING},
        _S.JOINING: {_C.ACCEPTED: _S.STABLE, _C.ASSIGNED: _S.RECONCILING, **_IN_GROUP},
        _S.STABLE: {_C.ASSIGNED: _S.RECONCILING, **_IN_GROUP},
        _S.RECONCILING: {_C.RECONCILED: _S.ACKNOWLEDGING, **_IN_GROUP},
        _S.ACKNOWLEDGING: {_C.ACKNOWLEDGED: _S.STABLE, _C.ASSIGNED: _S.RECONCILING, **_IN_GROUP},
        _S.FENCED: {_C.RELEASED: _S.JOINING, _C.LEAVE: _S.UNSUBSCRIBED},
        _S.PREPARE_LEAVING: {
            _C.RELEASED: _S.LEAVING,
            _C.FENCED: _S.UNSUBSCRIBED,
            _C.REFUSED: _S.FATAL,
        },
        _S.LEAVING: {_C.LEFT: _S.UNSUBSCRIBED, _C.EXPIRED: _S.STALE},
        _S.STALE: {_C.RESUMED: _S.JOINING, _C.LEAVE: _S.UNSUBSCRIBED},
        _S.FATAL: {},
    }
)
"""From each state, what leads where. What is not here does not move the member."""

BEATING = frozenset(
    {
        ClientState.JOINING,
        ClientState.STABLE,
        ClientState.RECONCILING,
        ClientState.ACKNOWLEDGING,
        ClientState.PREPARE_LEAVING,
        ClientState.LEAVING,
    }
)
"""The states in which heartbeats are sent."""
ENDED = frozenset({ClientState.UNSUBSCRIBED, ClientState.FATAL})
"""The states that a member which has begun only leaves to start over, or never."""
