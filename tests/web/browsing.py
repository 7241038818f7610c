"""The pages of a store, asked in this process: no sockets, no browser."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser

from starlette.testclient import TestClient

from coordinator.config import Config
from coordinator.web.access import WebAccess
from coordinator.web.app import make_app
from coordinator.web.guard import Site
from coordinator.web.live import Hub
from coordinator.web.pages import Pages
from coordinator.web.plan_decider import PlanDecider
from coordinator.web.shards_reader import open_reader
from coordinator.web.weights import name_weights
from tests.support.stories import NOON, alerts, billing, ledger, search, shipping

FIVE = (alerts, billing, ledger, search, shipping)
"""Stories of groups that end settled."""
HERE = "127.0.0.1:8080"
LATER = NOON + 3_600_000


def browse(store, config=None, listen=HERE, now_ms=LATER):
    """Return a client of the pages of a store."""
    config = config or Config()
    weight = name_weights(config.weights)
    pages = Pages(open_reader(store, config), "store", lambda: now_ms, weight=weight)
    site = Site(
        pages, WebAccess(config, listen), ThreadPoolExecutor(1), Hub(pages.reader.count_changes, 10),
        PlanDecider(str(store), config.lease), config=config,
    )  # fmt: skip
    return TestClient(make_app(site), base_url=f"http://{HERE}")


def five_groups():
    """Return what the stories wrote, one after the other, as one log."""
    return [batch for story in FIVE for batch in story().batches]


class Tables(HTMLParser):
    """The rows of a page's tables, each as the texts of its cells."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.tags, self._cell = [], [], None
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "tr":
            self.rows.append([])
        elif tag in {"td", "th"}:
            self._cell = ""

    def handle_endtag(self, tag):
        if tag in {"td", "th"} and self._cell is not None:
            self.rows[-1].append(re.sub(r"\s+", " ", self._cell).strip())
            self._cell = None

    def handle_data(self, data):
        if self._cell is not None:
            self._cell += data


def rows_of(response):
    """Return the rows of the tables of a page, without their heads."""
    assert response.status_code == 200, response.text
    return Tables(response.text).rows[1:]
