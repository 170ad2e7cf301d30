"""The OpenAPI document of the API, written from the declarations that its requests are checked by."""

from __future__ import annotations

from importlib.metadata import version

from dpsql.server.messages import LAST, describe_messages
from dpsql.server.web.api import ARROW, CSV, OPERATIONS, RECEIPT, Operation

__all__ = ["PREFIX", "document"]

PREFIX = "/api/v1"
_PROBLEMS = {
    "400": "The request cannot be read.",
    "401": "No user is logged in.",
    "403": "This user may not do this.",
    "408": "The body did not come in time.",
    "409": "The budget that is left does not cover the worst case, or a grant would lower the total; nothing was done.",
    "413": "The body is too long.",
    "415": "The body has another type.",
    "422": "The statement is not answered, or what was given cannot be used; nothing was charged.",
    "429": "Too many requests.",
    "500": "The server could not answer; where a query may have been charged, the reason says so.",
    "503": "The server is stopping, or its ledger cannot be used.",
}
_MADE = {"token": "201", "grant": "201", "endToken": "204"}
_PROBLEM = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "reason": {"type": "string"},
        "hint": {"type": "string"},
        "place": {
            "anyOf": [
                {"type": ["string", "null"]},
                {
                    "type": "object",
                    "properties": {
                        "line": {"type": "integer"},
                        "column": {"type": "integer"},
                        "fragment": {"type": "string"},
                    },
                },
            ]
        },
    },
    "required": ["type", "title", "status", "detail", "code", "reason", "hint", "place"],
}


def document() -> dict[str, object]:
    """Return the document, of version 3.1."""
    kinds = {operation.body for operation in OPERATIONS if operation.body is not None}
    (last,), _ = describe_messages(LAST)
    _, named = describe_messages(*kinds)
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _operation(operation, last)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "dpsql",
            "version": version("dpsql"),
            "description": "Private top-k analytics in SQL: every answer is within the policy's total guarantee.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {
                "password": {"type": "http", "scheme": "basic"},
                "token": {"type": "http", "scheme": "bearer"},
            },
            "schemas": {"Problem": _PROBLEM, **dict(sorted(named.items()))},
            "responses": {"Problem": _problem("What went wrong.")},
        },
        "security": [{"password": []}, {"token": []}],
    }


def _operation(operation: Operation, last: object) -> dict[str, object]:
    made = _MADE.get(operation.name, "200")
    told: dict[str, object] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": ["curator" if operation.curators_only else "analyst"],
        "responses": {
            made: _success_response(operation),
            **{status: _problem(words) for status, words in _PROBLEMS.items()},
        },
    }
    if operation.scope is not None:
        told["security"] = [{"password": []}, {"token": [operation.scope]}]
    if operation.has_last:
        told["parameters"] = [{"name": "last", "in": "query", "required": False, "schema": last}]
    if operation.body is not None:
        schema = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        told["requestBody"] = {
            "required": not operation.is_body_optional,
            "content": {"application/json": {"schema": schema}},
        }
    return told


def _success_response(operation: Operation) -> dict[str, object]:
    if operation.name == "endToken":
        return {"description": "The token has ended."}
    content: dict[str, object] = {"application/json": {"schema": {"type": "object"}}}
    response: dict[str, object] = {"description": "The answer.", "content": content}
    if operation.name == "query":
        content[CSV] = {"schema": {"type": "string"}}
        content[ARROW] = {"schema": {"type": "string", "contentMediaType": ARROW}}
        words = "The receipt of an answer in CSV, as JSON."
        response["headers"] = {RECEIPT: {"description": words, "schema": {"type": "string"}}}
    return response


def _problem(words: str) -> dict[str, object]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": words, "content": {"application/problem+json": {"schema": schema}}}
