"""Which brokers a node can join: those that serve what it sends. `apis.json` says what each serves."""

from __future__ import annotations

import json

import pytest

from coordinator.kraft.links import SENT
from coordinator.wire.codec import Api
from tests.conftest import ROOT
from tests.support.processes import run_as_text

from .fake_kafka import FakeKafka

SERVED = json.loads((ROOT / "tests/golden/kraft/apis.json").read_text())
TOO_OLD = {"3.8.1": {Api.FETCH, Api.DESCRIBE_QUORUM, Api.FETCH_SNAPSHOT}}
NOT_ASKED = {Api.SASL_HANDSHAKE}
"""Controllers without logins leave it out of their list."""


def lacks(served):
    """What a node sends, and brokers and controllers of a version do not serve."""
    found = {}
    for api, (least, most) in SENT.items():
        low, high, _ = served.get(str(int(api)), (1, 0, ()))
        if max(least, low) > min(most, high):
            found[api] = least, most
    return found.keys() - NOT_ASKED


@pytest.mark.parametrize("version", SERVED)
def test_brokers_from_3_9_on_serve_what_a_node_sends(version):
    assert lacks(SERVED[version]) == TOO_OLD.get(version, set())


def test_a_check_says_what_brokers_are_too_old(tmp_path):
    """Before anything is changed; exit code 2, as of bad input."""
    listed = [
        {"api_key": int(api), "min_version": least, "max_version": most}
        for api, (least, most, _) in SERVED["3.8.1"].items()
    ]
    answer = {Api.API_VERSIONS: lambda _: {"error_code": 0, "api_keys": listed}}
    with FakeKafka(answer) as kafka:
        where = f"kafka://127.0.0.1:{kafka.place[1]}"
        done = run_as_text("node", "check", "--cluster", where, "--store", tmp_path / "store")
    assert done.returncode == 2
    assert "does not serve the versions of DESCRIBE_QUORUM" in done.stderr
    assert "it needs Kafka 3.9 or later" in done.stderr
