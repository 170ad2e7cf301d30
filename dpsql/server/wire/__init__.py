"""The server of PostgreSQL's wire protocol: BI tools and drivers ask as they ask PostgreSQL.

Bytes are `stream` and `codec`; who asks is `startup` and `scram`; what a statement is, `control` and `dispatch`;
`connection` is one client's conversation, and what is answered waits in `portals` as Arrow until it is fetched.
"""

from dpsql.server.wire.server import Wire, serve_wire

__all__ = ["Wire", "serve_wire"]
