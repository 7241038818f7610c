"""What each assignor promises of a group at rest, against an assignment made afresh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, floor
from typing import Any, TypeAlias

from assignors import GroupSpec, get_assignor

Shares: TypeAlias = Mapping[str, Mapping[str, list[int]]]
IMBALANCE = "consumer.assignor.imbalance"


def broken_promises(
    made_by: tuple[str, Mapping[str, str]], spec: Mapping[str, Any], shares: Shares
) -> Iterator[str]:
    """Yield what an assignor promised and did not keep.

    Parameters
    ----------
    made_by
        The assignor, and the group's settings when it worked.
    shares
        What each member owns, by topic; members that own nothing are left out.
    """
    assignor, settings = made_by
    imbalance = settings.get(IMBALANCE, "0")
    fresh_by = "range" if assignor == "range" else "uniform"
    fresh = get_assignor(fresh_by).assign(GroupSpec.from_dict(spec)).to_dict()
    if assignor == "range":
        if {i: share for i, share in fresh.items() if share} != shares:
            yield f"range gives {fresh}, members have {shares}"
        return
    loads = {member_id: _size(shares.get(member_id, {})) for member_id in spec["members"]}
    if assignor != "sticky" or imbalance == "0":
        best = sorted(_size(fresh.get(member_id, {})) for member_id in spec["members"])
        if sorted(loads.values()) != best:
            yield f"{assignor} promises the loads {best}, there are {loads}"
        return
    if len({tuple(m["subscribed"]) for m in spec["members"].values()}) > 1:
        return  # with mixed subscriptions each member has a level of its own
    level = sum(loads.values()) / len(loads)
    more = ceil(level * float(imbalance[:-1]) / 100) if "%" in imbalance else int(imbalance)
    if not all(floor(level) - more <= load <= ceil(level) + more for load in loads.values()):
        yield f"sticky promises {level} with an imbalance of {more}, there are {loads}"


def _size(share: Mapping[str, list[int]]) -> int:
    return sum(map(len, share.values()))
