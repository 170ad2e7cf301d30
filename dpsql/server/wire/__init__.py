"""Server of PostgreSQL's wire protocol, for BI tools and drivers.

`server` accepts connections and logs users in, and `codec` carries messages. `connection` is the conversation with one
client, and `execution` runs its statements: commands of `command_parser` itself, queries through `query_router`. The
rows of answers wait in `connection_state` until they are fetched.
"""
