"""Server of PostgreSQL's wire protocol, for BI tools and drivers.

`stream` and `codec` carry messages, and `startup` and `scram` log a user in. `connection` is the conversation with one
client, and `execution` runs its statements: commands of `command_parser` itself, queries through `query_router`. The
rows of answers wait in `portals` until they are fetched.
"""

from dpsql.server.wire.server import Wire, serve_wire

__all__ = ["Wire", "serve_wire"]
