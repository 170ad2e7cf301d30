"""BigQueries for tests: a recorded one in this process, and ZetaSQL in an environment of its own.

`DPSQL_ZETASQL` names the Python of that environment, which has the package zetasql.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

__all__ = ["start_zetasql", "write_credentials"]


@cache
def start_zetasql() -> int:
    """Return the port of a server that ends with this process."""
    program = str(Path(__file__).with_name("zetasql_server.py"))
    command = [os.environ["DPSQL_ZETASQL"], "-P", "-W", "ignore", program]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(process.wait)
    atexit.register(process.kill)
    assert process.stdout is not None
    return int(process.stdout.readline())


def write_credentials(folder: Path, port: int) -> Path:
    """Write the credentials of a service account whose tokens the server at a port gives."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {"type": "service_account", "client_email": "dpsql@shop", "token_uri": f"http://127.0.0.1:{port}/token"}
    file = folder / f"credentials_{port}.json"
    file.write_text(json.dumps({**account, "private_key": text}))
    return file
