"""What findings there are: their columns, how bad each is, and from when on something is one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from assignors import SpecError
from coordinator.history.view_schemas import INT, LONG, RANGES, REAL, TEXT, TEXTS, TIME

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


UNITS_MS = {"s": 1_000, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
LENGTH = re.compile(r"([0-9]{1,7})([smhd])\Z")
LENGTH_MAX_MS = 100 * 365 * DAY_MS


def parse_length(option: str, text: str) -> int:
    """Return a length of time, such as 90s, 15m, 1h or 7d, in milliseconds.

    Raises
    ------
    SpecError
        It is not a time.
    """
    found = LENGTH.match(text)
    length = int(found[1]) * UNITS_MS[found[2]] if found else 0
    if not 0 < length <= LENGTH_MAX_MS:
        raise SpecError(f"{option} is {text!r}: give a time such as 90s, 15m, 1h or 7d")
    return length


class Level(StrEnum):
    """How bad a finding is."""

    PROBLEM = "problem"
    NOTE = "note"
    """Something that may be meant to be so."""


@dataclass(frozen=True, slots=True)
class Limits:
    """From when on something is a finding.

    Attributes
    ----------
    window_ms
        How far back to look for what happened.
    patience_ms
        How long members may take to settle, and a partition may be without an owner.
    rebalances
        How many an hour are not too many.
    flaps
        How often a member comes back, or a partition changes its owner, that flaps.
    skew
        How many times its share the most loaded member may have.
    expires_ms
        How long before they expire offsets are reported.
    retention_ms
        How long offsets are kept that no member needs.
    """

    window_ms: int = HOUR_MS
    patience_ms: int = MINUTE_MS
    rebalances: int = 10
    flaps: int = 4
    skew: float = 1.5
    expires_ms: int = DAY_MS
    retention_ms: int = 7 * DAY_MS


_CLIENT = {"instance_id": TEXT, "client_id": TEXT, "client_host": TEXT}
# fmt: off
_FINDINGS = {
    "unreadable_groups": (
        Level.PROBLEM, "Groups of the Kafka cluster that cannot be read",
        {"partition": INT, "offset": LONG, "reason": TEXT},
    ),
    "unowned_partitions": (
        Level.PROBLEM, "Partitions that no member owns",
        {**RANGES, "state": TEXT, "since": TIME},
    ),
    "slow_rebalances": (
        Level.PROBLEM, "Rebalances that took, or take, long",
        {"group_epoch": INT, "last_epoch": INT, "epochs": LONG, "reason": TEXT,
         "began_at": TIME, "settled_at": TIME, "seconds": REAL, "waits_for": LONG,
         "waited_for": TEXTS},
    ),
    "ownership_gaps": (
        Level.PROBLEM, "Partitions that no member owned for a time",
        {**RANGES, "gaps": LONG, "seconds": REAL, "last_gap_at": TIME, "last_gap_until": TIME,
         "reason_codes": TEXTS},
    ),
    "flapping_members": (
        Level.PROBLEM, "Members that leave and come back",
        {**_CLIENT, "member_id": TEXT, "returns": LONG, "members": LONG, "last_at": TIME},
    ),
    "flapping_partitions": (
        Level.PROBLEM, "Partitions that change their owner again and again",
        {**RANGES, "moves": LONG, "last_at": TIME, "member_id": TEXT},
    ),
    "frequent_rebalances": (
        Level.PROBLEM, "Groups that rebalance often",
        {"rebalances": LONG, "an_hour": REAL, "members": LONG, "reason": TEXT,
         "reason_count": LONG, "member_id": TEXT, "client_id": TEXT, "client_host": TEXT},
    ),
    "expiring_offsets": (
        Level.PROBLEM, "Groups without members whose offsets expire soon",
        {"offsets": LONG, "all_offsets": LONG, "expires_at": TIME},
    ),
    "skew": (
        Level.PROBLEM, "Groups in which one member has much more than its share",
        {"measure": TEXT, "members": LONG, "member_id": TEXT, "most": REAL, "least": REAL,
         "share": REAL},
    ),
    "idle_members": (
        Level.NOTE, "Groups with members that own nothing",
        {"idle": LONG, "members": LONG, "partitions": LONG, "member_ids": TEXTS},
    ),
    "classic_groups": (
        Level.NOTE, "Groups of consumers on the classic protocol",
        {"state": TEXT, "generation": INT, "members": LONG},
    ),
}
# fmt: on
SCHEMAS = {
    name: pa.schema({"group_id": TEXT} | columns) for name, (_, _, columns) in _FINDINGS.items()
}
"""The columns of each finding's rows; the findings are in the order in which they are shown."""
LEVELS = {name: level for name, (level, _, _) in _FINDINGS.items()}
TITLES = {name: title for name, (_, title, _) in _FINDINGS.items()}
