"""`muster trace` answers as Kafka 4.4.0 did, file by file (design § 7.2)."""

from __future__ import annotations

import json

import pytest
from conftest import GOLDEN
from traces import comparable

from coordinator.trace import Trace

FILES = sorted((GOLDEN / "traces").glob("*.jsonl"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_answers_as_kafka(file):
    trace = Trace(records=not file.stem.startswith("walk"))
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        case = json.loads(line)
        found, wanted = comparable(trace.run(case["op"])), comparable(case["answer"])
        assert found == wanted, f"{file.name}, line {number}: {case['op']}"
    trace.close()
