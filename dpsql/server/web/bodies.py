"""Bodies of requests, read within limits of size and time before they are parsed."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl

import anyio
from starlette.requests import Request

from dpsql.errors import Refusal, UsageError

__all__ = ["LONGEST_BODY", "parse_form", "parse_json"]

LONGEST_BODY = 1 << 20  # bytes; a statement has 16 KiB at most, and its parameters are many
_LONGEST_TIME = 10.0  # seconds
_MOST_FIELDS = 20


async def parse_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; raise `UsageError` for what is none, and `Refusal` for too much."""
    _require(request, "application/x-www-form-urlencoded")
    body = await _body(request)
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, encoding="utf-8", errors="strict"
        )
    except ValueError:
        pass
    else:
        return dict(fields)
    raise _malformed("The form cannot be read.")


async def parse_json(request: Request) -> object:
    """Return the JSON of a request; raise `UsageError` for what is none."""
    _require(request, "application/json")
    body = await _body(request)
    try:
        return json.loads(body.decode(), parse_constant=_no_constant)
    except (ValueError, RecursionError, ArithmeticError):
        pass
    raise _malformed("The body is no JSON that can be read.")


def _require(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != wanted:
        raise UsageError("request-type", "The body has another type.", hint=f"Send Content-Type: {wanted}")


async def _body(request: Request) -> bytes:
    body = bytearray()
    with anyio.move_on_after(_LONGEST_TIME):
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_BODY:
                hint = f"A body has at most {LONGEST_BODY} bytes."
                raise Refusal("request-length", "The body is too long.", hint=hint)
        return bytes(body)
    raise Refusal("request-slow", "The body did not come in time.", hint="Send it again.")


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _malformed(reason: str) -> UsageError:
    return UsageError("request-malformed", reason, hint="See /api/openapi.json for what may be sent.")
