"""Requests of the JSON API and arguments of MCP's tools, as types that msgspec checks and describes; and their tables.

Whole numbers are floats that are multiples of 1: JSON has one type of numbers, and msgspec's int refuses 30.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

import msgspec
from msgspec import Meta

from dpsql.answer_json import encode_value
from dpsql.errors import UsageError
from dpsql.report.free_answers import columns_table, tables_table
from dpsql.server.users import Scope

if TYPE_CHECKING:
    import pyarrow as pa

    from dpsql.session import Session


_MAX_REASON = 200  # characters; msgspec repeats the names of unknown members
_MAX_STATEMENT = 16 * 1024
MAX_NOTE = 500  # characters of the note of a grant
Message = TypeVar("Message")
Value = str | int | float | bool | None
Amount = Annotated[
    Annotated[float, Meta(gt=0)]
    | Annotated[str, Meta(pattern=r"^[0-9]{1,30}(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?$", max_length=70)],
    Meta(description="A number, or its decimal digits as text."),
]
Parameters = Annotated[
    Annotated[list[Value], Meta(max_length=2000)] | Annotated[dict[str, Value], Meta(max_length=2000)],
    Meta(description="The values of ? and $1 in their order, or of :name by name."),
]
LAST = Annotated[int, Meta(ge=1, le=1000, description="The number of latest entries to return.")]
Planned = Annotated[float, Meta(ge=1, le=1_000_000, multiple_of=1, description="How many such queries are planned.")]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No arguments."""


class Statement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A statement with its parameters."""

    sql: Annotated[str, Meta(min_length=1, max_length=_MAX_STATEMENT, description="One SQL statement.")]
    parameters: Parameters = []
    implicit: Annotated[
        bool | None,
        Meta(description="Whether standard SQL over private tables is read as private; by default as the policy says."),
    ] = None


class Query(Statement, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A statement to run, and the form of its answer."""

    quote_formulas: Annotated[
        bool, Meta(description="Of an answer in CSV: put ' before text that a spreadsheet would compute.")
    ] = False


class Explanation(Statement, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A statement whose price is wanted, for a planned number of times."""

    times: Planned = 1


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A total to which the budget is raised."""

    epsilon: Amount
    delta: Amount
    note: Annotated[str, Meta(min_length=1, max_length=MAX_NOTE)]
    period: Annotated[str, Meta(min_length=2, max_length=20)] | None = None
    periods: Annotated[float, Meta(ge=1, le=100_000, multiple_of=1)] | None = None


class TokenTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a new token may do."""

    scopes: Annotated[
        tuple[Scope, ...],
        Meta(min_length=1, max_length=3, description="Some of read, query and curate; by default read and query."),
    ] = ("read", "query")


class Last(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The number of latest queries that are wanted."""

    last: Annotated[
        float, Meta(ge=1, le=1000, multiple_of=1, description="The number of latest queries to return.")
    ] = 20


def decode_message(body: bytes, kind: type[Message]) -> Message:
    """Return a JSON body as a message; raise `UsageError`, which names the place but none of its values."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        reason = _sentence(error)
    except (msgspec.DecodeError, RecursionError):
        reason = "The body is not JSON in UTF-8."
    raise UsageError("request-malformed", reason, hint="See /api/openapi.json for what may be sent.")


def convert_message(values: Mapping[str, object], kind: type[Message], *, hint: str) -> Message:
    """Return decoded JSON as a message; raise as `decode_message` does, with this hint."""
    try:
        return msgspec.convert(values, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        reason = _sentence(error)
    raise UsageError("request-malformed", reason, hint=hint)


def parse_number(text: str, *, name: str) -> int:
    """Return the number of latest entries that a parameter of an address has; raise `UsageError` for another text."""
    try:
        return msgspec.convert(int(text) if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) else text, LAST)
    except msgspec.ValidationError:
        pass
    hint = "Use a whole number from 1 to 1000."
    raise UsageError("request-malformed", f"The parameter {name} is not such a number.", hint=hint)


def describe_messages(*kinds: object) -> tuple[list[dict[str, object]], dict[str, object]]:
    """Return the JSON Schemas of messages, and the schemas to which these refer by name."""
    schemas, named = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return list(schemas), named


def _sentence(error: Exception) -> str:
    text = str(error)
    return f"{text[:_MAX_REASON]}." if text and text.isprintable() else "The request has an unexpected form."


def list_tables(session: Session) -> list[dict[str, object]]:
    """Return the tables that may be queried, each with its columns, as values that JSON has."""
    return [
        {**row, "columns": encode_rows(columns_table(session.catalog, session.terms, name=str(row["name"])))}
        for row in encode_rows(tables_table(session.catalog, session.terms))
    ]


def encode_rows(table: pa.Table) -> list[dict[str, object]]:
    """Return the rows of a table as values that JSON has."""
    return [{name: encode_value(value) for name, value in row.items()} for row in table.to_pylist()]
