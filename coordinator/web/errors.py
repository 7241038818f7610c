"""What a page cannot show, each with the status of its response."""

from __future__ import annotations

from assignors import SpecError

NAMED_MAX = 255


class QueryError(SpecError):
    """An address says something that cannot be: status 400."""


class NoGroupError(SpecError):
    """There is no such group, or who asks may not see it: status 404, the same for both."""

    def __init__(self, group_id: str) -> None:
        named = group_id if len(group_id) <= NAMED_MAX else group_id[:NAMED_MAX] + "…"
        super().__init__(f"There is no group {named!r} here, or you may not see it.")
