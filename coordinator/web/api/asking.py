"""One request of the API and its answer, before it is HTTP again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import pyarrow as pa

from coordinator.api.operations import Operation
from coordinator.api.paging import cut_page
from coordinator.api.parameters import read_limit
from coordinator.config import Config
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import AsOf, parse_as_of
from coordinator.web.access import Viewer
from coordinator.web.errors import NoGroupError
from coordinator.web.pages import Pages, Values, head
from coordinator.web.store_reader import Look

SAFE = "/%!$&'()*+,;=:@~-._"
"""What stays as it is in the path of a link: it was encoded when it was sent."""
MUSTER = version("muster")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request.

    Attributes
    ----------
    path
        As it was sent.
    names
        Of what the path names.
    given
        The parameters of the query.
    body
        What was sent, of the operation's shape.
    """

    operation: Operation
    pages: Pages
    viewer: Viewer
    path: bytes
    names: Mapping[str, str]
    given: Mapping[str, str]
    config: Config = field(default_factory=Config)
    body: Any = None

    @property
    def group_id(self) -> str:
        """The group that the path names.

        Raises
        ------
        NoGroupError
            The viewer may not see it.
        """
        group_id = self.names["group"]
        if not self.viewer.sees(group_id):
            raise NoGroupError(group_id)
        return group_id

    @property
    def as_of(self) -> AsOf:
        """The position or time that is asked for; None is now."""
        text = self.given.get("as_of")
        return None if text is None else parse_as_of(text, "as_of")

    def look(self) -> Look:
        """Return a look at the group of the path, as of when it is asked for."""
        return self.pages.look_as_of(self.group_id, self.as_of)

    def page(
        self, rows: pa.Table, order: Sequence[str], more: Mapping[str, str] | None = None
    ) -> Values:
        """Return the items of a page, and where it goes on: with more parameters, if any."""
        page, cursor = cut_page(rows, order, self.given.get("cursor"), read_limit(self.given))
        found: Values = {"items": to_json_rows(page)}
        if cursor is not None:
            query = urlencode({**self.given, **(more or {}), "cursor": cursor})
            found["next"] = f"{quote(self.path, SAFE)}?{query}"
        return found

    def make_tag(self, stamp: Hashable) -> str:
        """Return the entity tag of an answer.

        It is another one for another viewer, and under other access lists. It is weak: as long as
        nothing has changed, the position in an answer does not count.
        """
        acls = self.viewer.access.acls
        who = (self.viewer.principal, self.viewer.host, None if acls is None else acls.digest)
        all_of_it = (MUSTER, self.path, sorted(self.given.items()), who, stamp)
        digest = hashlib.blake2b(repr(all_of_it).encode("utf-8", "replace"), digest_size=12)
        return f'W/"{digest.hexdigest()}"'


@dataclass(frozen=True, slots=True)
class Answer:
    """What an operation answers.

    Attributes
    ----------
    stamp
        Another one as soon as the values may be others.
    make
        Makes the values; not called for who has them already.
    """

    stamp: Hashable
    make: Callable[[], Values]


Handler: TypeAlias = Callable[[Ask], Answer]


def stamp_of(look: Look, group_id: str | None = None) -> tuple[str, int]:
    """Return what tells a look from later ones: of a group, from those that show it otherwise."""
    return look.reading.table_id, look.version(group_id)


def tell_head(ask: Ask, *looks: Look) -> Values:
    """Return as of when an answer is."""
    return head(ask.pages.base(*looks))
