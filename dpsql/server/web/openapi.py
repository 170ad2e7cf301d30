"""The OpenAPI document of the API, from the declarations that check its requests, and its page without a script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any

from starlette.responses import Response

from dpsql.server.messages import LAST, describe_messages
from dpsql.server.web.api import ARROW, CSV, OPERATIONS, RECEIPT, Operation
from dpsql.server.web.requests import page

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


_EXAMPLES: Mapping[str, object] = {
    "Statement": {"sql": "SELECT country FROM reads GROUP BY country TOP 10 PRIVATE"},
    "Explanation": {"sql": "SELECT country FROM reads GROUP BY country TOP 10 PRIVATE", "times": 5},
    "TokenTerms": {"scopes": ["read", "query"]},
    "Grant": {"epsilon": 2, "delta": "1e-6", "note": "agreed on 12 May"},
}
_KINDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}
_SCALARS = {"string", "number", "boolean", "null"}
Json = Mapping[str, Any]


def render_api_page(document: Json) -> Response:
    """Return the page of an OpenAPI document."""
    schemas = document["components"]["schemas"]
    operations = [
        _describe(path, method, raw=raw, schemas=schemas)
        for path, methods in document["paths"].items()
        for method, raw in methods.items()
    ]
    problems = next(iter(operations))["problems"]
    given = {"info": document["info"], "operations": operations, "problems": problems}
    response = page("api.html", given)
    response.headers["cache-control"] = "max-age=3600"
    return response


def _describe(path: str, method: str, *, raw: Json, schemas: Json) -> dict[str, Any]:
    """Return an operation as the template shows it."""
    body = raw.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    name = "" if body is None else body["$ref"].rpartition("/")[2]
    answers = {status: one for status, one in raw["responses"].items() if status.startswith("2")}
    (status, answer), *_ = answers.items()
    scope = next((named["token"][0] for named in raw.get("security", []) if named.get("token")), "")
    return {
        "id": raw["operationId"],
        "method": method.upper(),
        "path": path,
        "summary": raw["summary"],
        "scope": scope,
        "curators_only": "curator" in raw["tags"],
        "parameters": [
            {"name": one["name"], "type": _spell(one["schema"]), "words": one["schema"].get("description", "")}
            for one in raw.get("parameters", [])
        ],
        "members": list(_members(schemas[name])) if name else [],
        "is_body_optional": not raw.get("requestBody", {"required": True})["required"],
        "example": _write_example(path, method.upper(), body=_EXAMPLES.get(name)),
        "status": status,
        "types": list(answer.get("content", {})),
        "problems": {code: one["description"] for code, one in raw["responses"].items() if code not in answers},
    }


def _members(schema: Json) -> Iterator[dict[str, Any]]:
    for name, member in schema["properties"].items():
        required = name in schema.get("required", [])
        yield {"name": name, "type": _spell(member), "words": member.get("description", ""), "required": required}


def _spell(schema: Json) -> str:
    """Return the values that a schema allows in words."""
    if "enum" in schema:
        return ", ".join(map(str, schema["enum"]))
    branches = schema.get("anyOf")
    if branches is not None:
        if {branch.get("type") for branch in branches} >= _SCALARS:
            return "text, numbers, true, false or null"
        return " or ".join(dict.fromkeys(_spell(branch) for branch in branches if branch.get("type") != "null"))
    kind = "integer" if schema.get("multipleOf") == 1 else schema["type"]
    if kind == "array":
        return f"list of {_spell(schema['items'])}"
    if kind == "object":
        return f"object of {_spell(schema['additionalProperties'])}"
    low, high = (schema.get(key) for key in ("minimum", "maximum"))
    most = schema.get("maxLength")
    if low is not None and high is not None:
        return f"{_KINDS[kind]} from {low:,.0f} to {high:,.0f}"
    return _KINDS[kind] if most is None else f"{_KINDS[kind]} of at most {most:,} characters"


def _write_example(path: str, method: str, *, body: object) -> str:
    sent = "" if body is None else f" \\\n  -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    verb = "" if method == "GET" or body is not None else f" -X {method}"
    return f"curl -u NAME{verb} $SERVER{path}{sent}"
