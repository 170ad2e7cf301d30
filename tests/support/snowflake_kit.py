"""A Snowflake for tests: fakesnow, in an environment of its own, since its pins are not those of dpsql.

`DPSQL_FAKESNOW` names the Python of that environment; without one, it is looked for where `.ci/run` makes it.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import time
from functools import cache
from pathlib import Path

__all__ = ["PYTHON", "fakesnow_address", "start_fakesnow"]

PYTHON = Path(os.environ.get("DPSQL_FAKESNOW") or Path(__file__).parents[2] / ".fakesnow" / "bin" / "python")
_PATIENCE = 60.0


@cache
def start_fakesnow() -> int:
    """Return the port of a server that ends with this process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [str(PYTHON), "-P", "-W", "ignore", str(Path(__file__).with_name("fakesnow_server.py")), str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(process.wait)
    atexit.register(process.kill)
    end = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < end:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)) == 0:
                return port
        time.sleep(0.05)
    message = "fakesnow did not start"
    raise RuntimeError(message)


def fakesnow_address() -> tuple[str, dict[str, str]]:
    """Return the address of a schema in fakesnow, and the options of the driver."""
    name = "adbc.snowflake.sql.uri."
    options = {f"{name}host": "127.0.0.1", f"{name}port": str(start_fakesnow()), f"{name}protocol": "http"}
    return "snowflake://analyst:secret@fakesnow/SHOP/PUBLIC", options
