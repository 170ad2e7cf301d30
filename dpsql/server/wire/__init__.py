"""Server of PostgreSQL's wire protocol, for BI tools and drivers.

`server` accepts connections and converses with clients, whose messages `codec` reads and `channel` carries; `channel`
also logs users in. `execution` runs statements: commands of `command_parser` itself, queries through `query_router`.
The rows of answers wait in `connection_state` until they are fetched.
"""
