"""The page /api/docs: the OpenAPI document as HTML that needs no script."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import Response

from dpsql.server.web.render import page

__all__ = ["render_api_page"]

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
