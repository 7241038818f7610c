"""The OpenAPI document, and the page that shows the API."""

from __future__ import annotations

import json
import re
from http import HTTPStatus

import pytest

from coordinator.api.openapi import make_document
from coordinator.api.operations import BASE, OPERATIONS
from coordinator.api.problems import KINDS, MEANINGS, Kind
from coordinator.history.findings import SCHEMAS
from coordinator.history.view_schemas import VIEW_SCHEMAS
from coordinator.web.api.routes import HANDLERS, SHOWN
from tests.api.asking import address, problem_of
from tests.conftest import ROOT
from tests.support.stories import Story, stored
from tests.web.browsing import browse

PAGE = ROOT / "docs/reference/http.md"


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    story = Story().topics(orders=1).join("m", "orders")
    return browse(stored(story.batches, tmp_path_factory.mktemp("store")))


def walk(value):
    yield value
    for one in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from walk(one)


def test_the_document_is_served_and_whole(client):
    answer = client.get(address("getDocument"))
    document = answer.json()
    assert document == json.loads(json.dumps(make_document()))
    assert document["openapi"] == "3.1.0"
    names = document["components"]["schemas"]
    references = {one["$ref"] for one in walk(document) if isinstance(one, dict) and "$ref" in one}
    assert {one.removeprefix("#/components/schemas/") for one in references} <= set(names)
    ids = [op["operationId"] for path in document["paths"].values() for op in path.values()]
    assert sorted(ids) == sorted(one.name for one in OPERATIONS)
    for path, methods in document["paths"].items():
        for method in methods.values():
            named = [one["name"] for one in method["parameters"] if one["in"] == "path"]
            assert named == re.findall(r"\{(\w+)\}", path)
            assert all(
                one.get("description") or one["in"] == "path" for one in method["parameters"]
            )
    again = client.get(address("getDocument"), headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


def test_schemas_have_the_columns_of_views_and_findings():
    schemas = make_document()["components"]["schemas"]
    for name, view in (("Groups", "groups"), ("Members", "members"), ("Plans", "plans"),
                       ("AssignmentHistory", "assignment_history"), ("Events", "events")):  # fmt: skip
        assert list(schemas[name]["properties"]) == VIEW_SCHEMAS[view].names
        assert set(schemas[name]["required"]) == set(VIEW_SCHEMAS[view].names)
    items = schemas["FindingsPage"]["properties"]["items"]["items"]
    assert set(items["discriminator"]["mapping"]) == set(SCHEMAS)


def test_each_operation_is_answered_and_each_problem_is_known():
    reading = {one.name for one in OPERATIONS if one.body is None}
    assert set(HANDLERS) == reading
    assert {one.name for one in OPERATIONS} - reading >= SHOWN
    assert set(MEANINGS) == set(Kind) == set(KINDS.values())
    assert {status for one in OPERATIONS for status in one.problems} <= set(KINDS)
    assert len({(one.method, one.path) for one in OPERATIONS}) == len(OPERATIONS)


def test_the_page_shows_paths_that_there_are(client):
    for path in re.findall(r"http://127\.0\.0\.1:8080(/\S+)'", PAGE.read_text()):
        answer = client.get(path)
        assert answer.status_code in {HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}
        assert "There is no '/api" not in answer.text
        if answer.status_code == HTTPStatus.BAD_REQUEST:
            assert "parameter" not in problem_of(answer, 400)
    shown = json.loads(re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)[1])
    assert set(shown["items"][0]) <= set(VIEW_SCHEMAS["assignment_history"].names)
    assert address("getDocument") == f"{BASE}/openapi.json"
