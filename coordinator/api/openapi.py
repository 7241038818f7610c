"""The OpenAPI document of the API: made of its operations and of the structs of its answers."""

from __future__ import annotations

import inspect
import re
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from coordinator.api.operations import BASE, OPERATIONS, Operation
from coordinator.api.problems import KINDS, MEANINGS, MEDIA_TYPE, PREFIX, Problem

REFERENCE = "#/components/schemas/{name}"
SECURITY: list[dict[str, list[str]]] = [{"basic": []}, {"bearer": []}, {}]
ABOUT = """\
Groups, who owns what as of any time and why, plans, and what is wrong, of a store of Muster's. Each
row is one of a view, as SQL and the commands show it. Fields may be added to answers; none goes
away, or gets another meaning, under this version of the path. Times are UTC."""


@cache
def make_document() -> dict[str, Any]:
    """Return the document, as JSON values."""
    shapes = [Problem, *(one.answer for one in OPERATIONS)]
    shapes += [one.body for one in OPERATIONS if one.body is not None]
    found, components = msgspec.json.schema_components(shapes, ref_template=REFERENCE)
    schemas = dict(zip(map(id, shapes), found, strict=True))
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(BASE + one.path, {})[one.method.lower()] = _describe(one, schemas)
    document = {
        "openapi": "3.1.0",
        "info": {"title": "Muster", "version": version("muster"), "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
        "security": SECURITY,
    }
    return _tidy(document)  # type: ignore[no-any-return]


def _describe(operation: Operation, schemas: dict[int, Any]) -> dict[str, Any]:
    """Return what the document says of an operation."""
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"\{(\w+)\}", operation.path)
    ]
    parameters += [
        {"name": one.name, "in": "query", "description": one.doc, "schema": one.schema}
        for one in operation.parameters
    ]
    answer: dict[str, Any] = {
        "description": "The answer.",
        "content": {"application/json": {"schema": schemas[id(operation.answer)]}},
    }
    responses: dict[str, Any] = {"200": answer}
    if operation.body is None:
        parameters.append(
            {"name": "If-None-Match", "in": "header", "schema": {"type": "string"},
             "description": "The `ETag` of an answer that you have."}
        )  # fmt: skip
        answer["headers"] = {"ETag": {"schema": {"type": "string"}}}
        responses["304"] = {"description": "The answer that you have still holds."}
    problem = {"content": {MEDIA_TYPE: {"schema": schemas[id(Problem)]}}}
    responses |= {
        str(int(status)): {"description": _explain(status)} | problem
        for status in operation.problems
    }
    found = {
        "operationId": operation.name, "summary": operation.doc, "parameters": parameters,
        "responses": responses,
    }  # fmt: skip
    if operation.body is not None:
        schema = schemas[id(operation.body)]
        found["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return found


def _explain(status: HTTPStatus) -> str:
    kind = KINDS[status]
    return f"`{PREFIX}{kind}`: {MEANINGS[kind]}"


def _tidy(value: Any) -> Any:  # noqa: ANN401 - JSON
    """Return values as JSON has them: lists for tuples, docstrings without indents."""
    if isinstance(value, dict):
        return {name: _tidy(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_tidy(one) for one in value]
    return inspect.cleandoc(value) if isinstance(value, str) else value
