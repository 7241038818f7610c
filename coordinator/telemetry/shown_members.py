"""The members of one rebalance that its trace shows: those that others waited for longest.

A group may have a million members, a trace may not: a bounded number is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coordinator.telemetry.trace_values import Moment, RebalanceTrace, SpanValue, Value

KEPT = 8
"""How many times as many as are shown are kept while a rebalance goes on."""
MOMENTS_MAX = 50
"""Of a member: one that is asked again and again has as many, and the last of them."""


@dataclass(slots=True)
class ShownMember:
    """What a member has done since the rebalance began.

    Attributes
    ----------
    begin_ms, last_ms
        When its span begins, and when it was last heard of; None: not since the rebalance began.
    gives_up_ms
        Since when it has to give partitions up; None: it has not.
    behind
        Whether it was behind the target when it was last heard of.
    targets_seen
        How many targets of the rebalance had come then.
    waited_ms
        For how long others waited for it.
    done_ms
        When it had everything, or was gone; None: it goes on.
    """

    begin_ms: int
    last_ms: int | None = None
    gives_up_ms: int | None = None
    behind: bool = False
    targets_seen: int = 0
    waited_ms: int = 0
    done_ms: int | None = None
    attributes: dict[str, Value] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)

    def note(self, at_ms: int, name: str, **attributes: Value) -> None:
        """Add an event to its span."""
        if len(self.moments) >= MOMENTS_MAX:
            del self.moments[-1]
        named = {f"muster.{key}": value for key, value in attributes.items()}
        self.moments.append(Moment(at_ms, name, named))

    def note_once(self, at_ms: int, name: str) -> None:
        """Add an event, unless it is the last one."""
        if not self.moments or self.moments[-1].name != name:
            self.note(at_ms, name)

    def wait(self, ms: int) -> None:
        """Note for how long others waited for it, if that is longer than before."""
        self.waited_ms = max(self.waited_ms, ms)


class ShownMembers:
    """The members of a rebalance.

    Parameters
    ----------
    most
        How many are shown.

    Attributes
    ----------
    longest
        For how long others waited for the one that they waited for longest, and its id; None: they
        waited for no one. It counts all members, kept or not.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[str, ShownMember] = {}
        self.longest: tuple[int, str] | None = None

    def get(self, member_id: str) -> ShownMember | None:
        """Return a member that is kept."""
        return self._kept.get(member_id)

    def keep(self, member_id: str, begin_ms: int) -> ShownMember:
        """Return a member, which is kept from now on where there is room."""
        found = self._kept.get(member_id)
        if found is not None:
            return found
        if len(self._kept) >= self._most * KEPT:
            self._make_room()
        found = ShownMember(begin_ms)
        if len(self._kept) < self._most * KEPT:
            self._kept[member_id] = found
        return found

    @property
    def room(self) -> int:
        """How many more may be kept without looking for room."""
        return self._most * KEPT - len(self._kept)

    def waited(self, member_id: str, ms: int) -> None:
        """Note for how long others waited for a member."""
        if ms > 0 and (self.longest is None or ms > self.longest[0]):
            self.longest = ms, member_id

    def spans(self, end_ms: int) -> list[SpanValue]:
        """Return the spans of those that others waited for longest."""
        order = sorted(self._kept.items(), key=lambda one: (-one[1].waited_ms, one[0]))
        return [_show(name, member, end_ms) for name, member in order[: self._most]]

    def _make_room(self) -> None:
        """Drop those that are done and were waited for least, half of them."""
        done = [
            (one.waited_ms, name) for name, one in self._kept.items() if one.done_ms is not None
        ]
        done.sort()
        for _, name in done[: (len(done) + 1) // 2]:
            del self._kept[name]

    def show(
        self, begin_ms: int, end_ms: int, values: dict[str, Value], phases: Sequence[SpanValue]
    ) -> RebalanceTrace:
        """Return the trace of the rebalance, with its own attributes and phases."""
        spans = self.spans(end_ms)
        if self.longest is not None:
            waited_ms, who = self.longest
            values |= {"muster.waited_for": who, "muster.waited_ms": waited_ms}
        values["muster.members_shown"] = len(spans)
        root = SpanValue("rebalance", begin_ms, max(begin_ms, end_ms), values)
        return RebalanceTrace(root, (*phases, *spans))


def _show(member_id: str, member: ShownMember, end_ms: int) -> SpanValue:
    """Return the span of a member, which goes on until the end of all if it is not done."""
    values: dict[str, Value] = {
        "muster.member.id": member_id,
        "muster.waited_ms": member.waited_ms,
    }
    until_ms = end_ms if member.done_ms is None else member.done_ms
    return SpanValue(
        "member",
        member.begin_ms,
        max(member.begin_ms, until_ms),
        values | member.attributes,
        tuple(member.moments),
    )
