"""What a real Kafka answered to odd requests, asked of Muster: the same, or a difference that is listed."""

from __future__ import annotations

import json

import pytest

from coordinator import Coordinator
from coordinator.config import Config, ServerConfig
from coordinator.config.kafka import kafka_config
from coordinator.wire.codec import Api
from coordinator.wire.sasl import Verifier
from tests.conftest import ROOT
from tests.support.wire_cases import SERVED, SETTINGS, TOPICS, Peer
from tests.support.wire_cases.asker import Asker
from tests.support.wire_cases.golden import GOLDEN, all_cases, read_golden

DIFFERENCES = ROOT / "tests/golden/wire/differences.json"
"""Which cases Muster answers otherwise, and why; the guide tells users the reasons."""
DRAWN = {"member_id", "leader"}
NOT_COMPARED = {"METADATA": "leader_epoch"}
"""A field that Muster fills otherwise wherever it is; the guide gives the reason of this one, too."""
ACLS = """
super_users = ["User:admin"]
[[acls]]
principal = "User:alice"
operations = ["READ", "DELETE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]
resource_type = "GROUP"
resource_name = "team-"
pattern_type = "PREFIXED"
[[acls]]
principal = "User:alice"
operations = ["READ", "WRITE"]
resource_type = "TOPIC"
resource_name = "clicks"
"""


@pytest.fixture(scope="module")
def muster(tmp_path_factory):
    """What Muster answers to the recorded cases: {(API, case): {version: answer}}."""
    folder = tmp_path_factory.mktemp("cases")
    (folder / "acls.toml").write_text(ACLS)
    users = (
        f'{n} = "{Verifier.of("SCRAM-SHA-256", n, iterations=4096)}"\n' for n in ("admin", "alice")
    )
    (folder / "users.toml").write_text("[users]\n" + "".join(users))
    server = ServerConfig(
        listen="127.0.0.1:0", sasl_mechanisms=("PLAIN",), sasl_users=str(folder / "users.toml"),
        acls=str(folder / "acls.toml"), insecure=True,
    )  # fmt: skip
    config = Config(server=server, kafka=kafka_config(SETTINGS))
    with (
        Coordinator.open(None, topics=TOPICS, config=config) as coordinator,
        coordinator.serve() as serving,
    ):
        port = serving.address.rsplit(":", 1)[1]
        asker = Asker(serving.address, Peer({}, {port: "$port"}), patience_s=20)
        topics = asker.ask("admin", Api.METADATA, 12, {"topics": None})
        asker.peer.ids = {one["name"]: one["topic_id"] for one in topics["topics"]}
        asker.peer.words |= {topics["cluster_id"]: "$cluster"}
        yield {
            (case.api.name, case.name): {v: asker.answer(case, v) for v in answers}
            for case, answers in read_golden(GOLDEN.read_text().splitlines())
        }
        asker.close()


@pytest.fixture(scope="module")
def kafka():
    found = read_golden(GOLDEN.read_text().splitlines())
    return {(case.api.name, case.name): answers for case, answers in found}


def plain(answer, but=None):
    """Return an answer as it is compared: lists in any order (Kafka's is a hash's), names that are drawn alike.

    Error messages are for people, and Muster's name the remedy; topics of Kafka's own are none of the cases.
    """
    if isinstance(answer, dict):
        return {
            key: None
            if key == "error_message"
            else "$drawn"
            if key in DRAWN and one
            else plain(one, but)
            for key, one in answer.items()
            if key != but
        }
    if isinstance(answer, list):
        others = [plain(one, but) for one in answer if not str(named(one)).startswith("__")]
        return sorted(others, key=lambda one: json.dumps(one, sort_keys=True))
    return answer


def named(one):
    return (one.get("name") or one.get("resource_name")) if isinstance(one, dict) else None


def differ(key, ours, kafkas):
    but = NOT_COMPARED.get(key[0])
    return plain(ours, but) != plain(kafkas, but)


def differing(kafka, muster):
    return {
        key
        for key, answers in kafka.items()
        if any(differ(key, muster[key][v], one) for v, one in answers.items())
    }


def listed():
    """Return the cases that are known to differ, each as (API, case)."""
    found = json.loads(DIFFERENCES.read_text())
    return [tuple(case.split(": ", 1)) for one in found for case in one["cases"]]


def test_muster_answers_as_kafka_does(kafka, muster):
    """Each case that is answered otherwise is listed, with a reason."""
    unlisted = differing(kafka, muster) - set(listed())
    assert not [
        (*key, v, muster[key][v], one)
        for key in sorted(unlisted)
        for v, one in kafka[key].items()
        if differ(key, muster[key][v], one)
    ][:5]


def test_what_is_listed_still_differs(kafka, muster):
    assert sorted(listed()) == sorted(differing(kafka, muster)), "or it is listed twice"


def test_kafka_was_asked_each_case_in_every_version_that_is_served(kafka):
    asked = {(case.api.name, case.name): case.all_versions() for case in all_cases()}
    assert {key: sorted(answers) for key, answers in kafka.items()} == asked
    for api, (least, most) in SERVED.items():
        recorded = {
            v for (name, _), versions in asked.items() if name == api.name for v in versions
        }
        assert recorded == {*range(least, most + 1)}, api


def test_the_guide_gives_the_reasons(kafka):
    page = " ".join((ROOT / "docs/guide/serving.md").read_text().split())
    assert f" {len(kafka)} odd requests " in page
    for one in json.loads(DIFFERENCES.read_text()):
        assert one["why"] in page
