"""Bodies of requests, read within limits of size and time before they are parsed."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import parse_qsl

import anyio
from starlette.requests import Request

from dpsql.errors import Refusal, UsageError
from dpsql.server.messages import decode_message

__all__ = ["LONGEST_BODY", "parse_form", "parse_json", "read_body"]

LONGEST_BODY = 1 << 20  # bytes; a statement has 16 KiB at most, and its parameters are many
_LONGEST_TIME = 10.0  # seconds
_MOST_FIELDS = 20
Message = TypeVar("Message")


async def parse_form(request: Request) -> dict[str, str]:
    """Return the fields of a form; raise `UsageError` for what is none, and `Refusal` for too much."""
    _require(request, "application/x-www-form-urlencoded")
    body = await read_body(request)
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS, encoding="utf-8", errors="strict"
        )
    except ValueError:
        pass
    else:
        return dict(fields)
    hint = "See /api/openapi.json for what may be sent."
    raise UsageError("request-malformed", "The form cannot be read.", hint=hint)


async def parse_json(request: Request, kind: type[Message], *, is_optional: bool = False) -> Message:
    """Return the JSON of a request as a message; raise `UsageError` for what is none.

    An empty body that `is_optional` is the message with all defaults.
    """
    if not is_optional:
        _require(request, "application/json")
    body = await read_body(request)
    if is_optional and not body:
        return kind()
    _require(request, "application/json")
    return decode_message(body, kind)


async def read_body(request: Request) -> bytes:
    """Return the body of a request; raise `Refusal` for one that is too long or too slow."""
    body = bytearray()
    with anyio.move_on_after(_LONGEST_TIME):
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_BODY:
                hint = f"A body has at most {LONGEST_BODY} bytes."
                raise Refusal("request-length", "The body is too long.", hint=hint)
        return bytes(body)
    raise Refusal("request-slow", "The body did not come in time.", hint="Send it again.")


def _require(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != wanted:
        raise UsageError("request-type", "The body has another type.", hint=f"Send Content-Type: {wanted}")
