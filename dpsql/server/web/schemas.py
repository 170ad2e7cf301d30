"""JSON Schemas of the API's requests and responses; they check requests and document the API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from dpsql.errors import UsageError

__all__ = ["ASKED", "DESCRIBED", "EXPLAINED", "GRANTED", "LAST", "PROBLEM", "Schema", "check", "number_in"]

Schema = Mapping[str, object]
_LONGEST_STATEMENT = 16 * 1024
_STATEMENT: Schema = {"type": "string", "minLength": 1, "maxLength": _LONGEST_STATEMENT}
_VALUE: Schema = {"type": ["string", "number", "boolean", "null"]}
_PARAMETERS: Schema = {
    "description": "The values of ? and $1 in their order, or of :name by name.",
    "anyOf": [
        {"type": "array", "items": _VALUE, "maxItems": 2000},
        {"type": "object", "additionalProperties": _VALUE, "maxProperties": 2000},
    ],
}
_IMPLICIT: Schema = {
    "description": "Whether standard SQL over private tables is read as private; without it, as the policy says.",
    "type": "boolean",
}
_AMOUNT: Schema = {
    "description": "A number, or its decimal digits as text.",
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?$"},
    ],
}


def _object(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


ASKED = _object(("sql",), sql=_STATEMENT, parameters=_PARAMETERS, implicit=_IMPLICIT)
DESCRIBED = ASKED
EXPLAINED = _object(
    ("sql",),
    sql=_STATEMENT,
    parameters=_PARAMETERS,
    implicit=_IMPLICIT,
    times={"type": "integer", "minimum": 1, "maximum": 1_000_000},
)
GRANTED = _object(
    ("epsilon", "delta", "note"),
    epsilon=_AMOUNT,
    delta=_AMOUNT,
    note={"type": "string", "minLength": 1, "maxLength": 500},
    period={"type": "string", "minLength": 2, "maxLength": 20},
    periods={"type": "integer", "minimum": 1, "maximum": 100_000},
)
LAST: Schema = {"type": "integer", "minimum": 1, "maximum": 1000}
PROBLEM: Schema = {
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


def check(schema: Schema, value: object) -> None:
    """Raise `UsageError` for a value that a schema does not allow; it names the place, and nothing of the value."""
    wrong = _wrong(schema, value, at="the body")
    if wrong is not None:
        hint = "See /api/openapi.json for what may be sent."
        raise UsageError("request-malformed", f"In {wrong}.", hint=hint)


def number_in(schema: Schema, text: str, *, name: str) -> int:
    """Return the whole number that a parameter of the address spells; raise `UsageError` for another."""
    value = int(text) if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else None
    if value is None or _wrong(schema, value, at=name) is not None:
        hint = f"A whole number from {schema['minimum']} to {schema['maximum']}."
        raise UsageError("request-malformed", f"The parameter {name} cannot be read.", hint=hint)
    return value


def _wrong(schema: Schema, value: object, *, at: str) -> str | None:
    """Return what is wrong, and where; None if nothing is wrong."""
    kinds = schema.get("type")
    if kinds is not None and not any(_TYPES[kind](value) for kind in ([kinds] if isinstance(kinds, str) else kinds)):  # type: ignore[attr-defined]
        return f"{at} is a value of another type"
    for word, fails in _RULES.items():
        if word in schema and fails(schema[word], value):
            return f"{at} stands a value that {word} does not allow"
    branches = schema.get("anyOf")
    if isinstance(branches, list) and all(_wrong(branch, value, at=at) is not None for branch in branches):
        return f"{at} is a value of none of the allowed kinds"
    if isinstance(value, dict):
        return _wrong_member(schema, value, at=at)
    items = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        return next((wrong for item in value if (wrong := _wrong(items, item, at=f"an item of {at}"))), None)
    return None


def _wrong_member(schema: Schema, value: Mapping[str, object], *, at: str) -> str | None:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    assert isinstance(known, Mapping)  # noqa: S101 - the schemas are ours
    for name in schema.get("required", []):  # type: ignore[attr-defined]
        if name not in value:
            return f"{at} there is no {name}"
    for name, member in value.items():
        rule = known.get(name, others)
        if rule is False:
            return f"{at} is an unknown name"
        if isinstance(rule, Mapping):
            wrong = _wrong(rule, member, at=name if name in known else f"a member of {at}")
            if wrong is not None:
                return wrong
    return None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_TYPES: Mapping[str, Callable[[object], bool]] = MappingProxyType(
    {
        "object": lambda value: isinstance(value, dict),
        "array": lambda value: isinstance(value, list),
        "string": lambda value: isinstance(value, str),
        "boolean": lambda value: isinstance(value, bool),
        "integer": lambda value: _is_number(value) and value == value // 1,  # type: ignore[operator]
        "number": _is_number,
        "null": lambda value: value is None,
    }
)
_RULES: Mapping[str, Callable[[object, object], bool]] = MappingProxyType(
    {
        "minLength": lambda rule, value: isinstance(value, str) and len(value) < rule,  # type: ignore[operator]
        "maxLength": lambda rule, value: isinstance(value, str) and len(value) > rule,  # type: ignore[operator]
        "maxItems": lambda rule, value: isinstance(value, list) and len(value) > rule,  # type: ignore[operator]
        "maxProperties": lambda rule, value: isinstance(value, dict) and len(value) > rule,  # type: ignore[operator]
        "minimum": lambda rule, value: _is_number(value) and value < rule,  # type: ignore[operator]
        "maximum": lambda rule, value: _is_number(value) and value > rule,  # type: ignore[operator]
        "exclusiveMinimum": lambda rule, value: _is_number(value) and value <= rule,  # type: ignore[operator]
        "pattern": lambda rule, value: isinstance(value, str) and re.fullmatch(str(rule), value, re.ASCII) is None,
    }
)
