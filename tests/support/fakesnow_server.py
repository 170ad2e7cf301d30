"""fakesnow as a server, with two things that it has not; run in its own environment.

It takes parameters of the session, without any effect, and a NULL of a time stamp is NULL in the Arrow that it sends.
"""

from __future__ import annotations

import sys

import fakesnow.arrow
import fakesnow.server
import pyarrow as pa
import uvicorn

server = sys.modules["fakesnow.server"]  # the package has a function of this name
_TAKEN = [r"ALTER SESSION SET \w+ = ('UTC'|''|\d+|TRUE|FALSE)$"]
_connect, _send = server.shared_fs.connect, fakesnow.arrow.timestamp_to_sf_struct


def connect(*arguments: object, **named: object) -> object:
    return _connect(*arguments, **{**named, "nop_regexes": _TAKEN})


def send(column: pa.ChunkedArray) -> pa.Array:
    sent = _send(column)
    return pa.StructArray.from_arrays(sent.flatten(), fields=[*sent.type], mask=column.combine_chunks().is_null())


server.shared_fs.connect = connect
fakesnow.arrow.timestamp_to_sf_struct = send
uvicorn.run(server.app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error")
