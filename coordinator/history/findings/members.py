"""Findings about members that leave and come back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs
from coordinator.history.classic_views import CLIENT
from coordinator.history.findings.facts import Facts
from coordinator.history.findings.lives import Lives
from coordinator.history.findings.times import to_times
from coordinator.history.keyed_rows import (
    combine_chunks,
    count_runs,
    encode_keys,
    pick,
    to_mask,
)


def find_flapping_members(facts: Facts) -> pa.Table:
    """Return the members that came back in the window as often as the limit, after they went.

    Several members that look the same, such as those of one client id and host, flap when
    they came back so often each.
    """
    lives = facts.lives
    who = _identify(lives)
    size = int(who.max(initial=-1)) + 1
    here = np.where(lives.came, 1, -1)
    at_once = np.zeros(size, np.int64)
    np.maximum.at(at_once, who, count_runs(who, here))
    recent = np.flatnonzero(lives.at_ms >= facts.begin_ms)
    line, came = who[recent], lives.came[recent]
    # A newcomer has not come back: these are as many as came beyond all that went before.
    beyond = np.zeros(size, np.int64)
    np.maximum.at(beyond, line, count_runs(line, here[recent]))
    returns = np.bincount(line[came], minlength=size) - beyond
    last = np.full(size, -1)
    last[line[came]] = recent[came]
    there = facts.place_of(lives.rows["group_id"]) >= 0
    flaps = (returns >= facts.limits.flaps * np.maximum(at_once, 1)) & np.append(there, False)[last]
    found = np.flatnonzero(flaps)
    names = ("group_id", *CLIENT, "member_id")
    columns = {name: pick(lives.rows[name], last[found]) for name in names}
    columns |= {"returns": pa.array(returns[found]), "members": pa.array(at_once[found])}
    return pa.table(columns | {"last_at": to_times(lives.at_ms[last[found]])})


def _identify(lives: Lives) -> Longs:
    """Return a code of who each member is: it may come back under another member id.

    A static member is its instance; one that came back under its own id is that id; any other is
    its client id and host, where it has any.
    """
    rows = {name: combine_chunks(lives.rows[name]) for name in lives.rows.column_names}
    group, nothing = rows["group_id"], pa.scalar(None, pa.string())
    member = encode_keys(group, rows["member_id"])
    again = np.bincount(member, lives.came)[member] > 1 if len(member) else member > 0
    filled = [pc.fill_null(rows[name], "") for name in ("client_id", "client_host")]
    nameless = to_mask(pc.equal(pc.binary_join_element_wise(*filled, ""), ""))
    static = pc.is_valid(rows["instance_id"])
    own = pc.and_(pa.array(again | nameless), pc.invert(static))
    client = pc.or_(own, static)
    return encode_keys(
        group,
        rows["instance_id"],
        pc.if_else(own, rows["member_id"], nothing),
        *(pc.if_else(client, nothing, rows[name]) for name in ("client_id", "client_host")),
    )
