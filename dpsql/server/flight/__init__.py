"""Arrow Flight SQL: columnar clients such as ADBC, pandas and polars, on pyarrow and nothing else."""

from dpsql.server.flight.lifecycle import Flight, serve_flight
from dpsql.server.flight.server import FlightSQLServer

__all__ = ["Flight", "FlightSQLServer", "serve_flight"]
