"""The file of what Kafka answered: a line a case, with the versions that are answered alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from coordinator.wire.codec import Api
from tests.conftest import ROOT
from tests.support.wire_cases import Case
from tests.support.wire_cases.classic_cases import classic_members
from tests.support.wire_cases.cluster_cases import cluster_cases
from tests.support.wire_cases.group_cases import group_cases
from tests.support.wire_cases.long_cases import long_cases

GOLDEN = ROOT / "tests/golden/wire/broker-4.4.0.jsonl"


def all_cases() -> Iterator[Case]:
    """Return all cases, in the order in which they are asked."""
    yield from group_cases()
    yield from classic_members()
    yield from cluster_cases()
    yield from long_cases()


def line_of(case: Case, answers: dict[int, object]) -> str:
    """Return the line of a case."""
    known_answers: list[tuple[list[int], object]] = []
    for version, answer in answers.items():
        same = next((versions for versions, known in known_answers if known == answer), None)
        if same is None:
            known_answers.append(([version], answer))
        else:
            same.append(version)
    line = case_fields(case) | {"answers": known_answers}
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False)


def case_fields(case: Case) -> dict[str, object]:
    """Return a case as its lines have it."""
    found: dict[str, object] = {"case": case.name, "api": case.api.name, "asked": case.asked}
    if case.user != "admin":
        found["user"] = case.user
    if case.before:
        found["before"] = [[api.name, version, asked] for api, version, asked in case.before]
    if not case.login:
        found["login"] = False
    return found


def read_golden(lines: Iterable[str]) -> Iterator[tuple[Case, dict[int, object]]]:
    """Return the recorded cases and their answers by version, in the order of the file."""
    for line in map(json.loads, lines):
        answers = {v: answer for versions, answer in line["answers"] for v in versions}
        before = tuple((Api[api], version, asked) for api, version, asked in line.get("before", ()))
        user, login = line.get("user", "admin"), line.get("login", True)
        api = Api[line["api"]]
        yield Case(line["case"], api, line["asked"], user, before, tuple(answers), login), answers
