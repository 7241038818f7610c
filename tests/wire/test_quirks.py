"""What single clients need is written in one place, and heeded somewhere."""

from __future__ import annotations

import re

from coordinator.wire import quirks
from tests.conftest import ROOT

CLIENTS = re.compile(
    r"librdkafka|java client|java's|kafka-clients|kafka-python|aiokafka|sarama|franz-go|kafka-go|kcat",
    re.IGNORECASE,
)
WIRE = ROOT / "coordinator/wire"
OWN = WIRE / "quirks.py"
UNDISCUSSED = {"NEEDS_PRODUCE", "NEEDS_METADATA_12", "FORGETS_LOST_ANSWERS"}
"""Quirks of which no issue is known: of a new one, look for it first."""


def test_quirks_are_in_one_file():
    others = [file for file in WIRE.rglob("*.py") if file != OWN]
    assert [file.name for file in others if CLIENTS.search(file.read_text())] == []


def test_every_quirk_says_whose_it_is_and_where_it_is_known():
    found = {name: one for name, one in vars(quirks).items() if isinstance(one, quirks.Quirk)}
    assert len(found) >= 8
    assert {name for name, one in found.items() if one.issue is None} <= UNDISCUSSED
    for one in found.values():
        assert CLIENTS.search(one.client)
        assert re.match(r"(confluentinc/librdkafka|apache/kafka) \S+\.(c|h|java) \w+", one.source)
        assert re.search(r"[0-9]\.[0-9x]", one.versions)
        assert one.issue is None or re.fullmatch(
            r"https://(github\.com|issues\.apache\.org)/.+[0-9]", one.issue
        )


def test_what_is_defined_beside_a_quirk_is_used():
    text = "".join(file.read_text() for file in WIRE.rglob("*.py") if file != OWN)
    ours = re.findall(
        r"^(?:def )?([A-Za-z_0-9]+)(?: = \(| = ErrorCode|\()", OWN.read_text(), re.MULTILINE
    )
    assert len(ours) >= 6
    assert [name for name in ours if f"quirks.{name}" not in text] == []
