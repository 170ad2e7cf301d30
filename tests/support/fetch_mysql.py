"""Fetch the MySQL of Debian unstable with its libraries into a folder, and print the program that starts it there.

    python tests/support/fetch_mysql.py [FOLDER]

The folder is `.mysql` of the repository, where tests look for it, or another, for DPSQL_MYSQLD. It needs Linux on amd64
and `dpkg-deb`, and installs nothing: the packages are unpacked, and the server runs with the C library that is among
them. A folder that has a server is left as it is.
"""

from __future__ import annotations

import hashlib
import lzma
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

MIRROR = "https://deb.debian.org/debian"
SERVER = "mysql-server-core"
FOLDER = Path(__file__).parents[2] / ".mysql"
UNUSED = frozenset(["debconf", "debconf-2.0", "perl"])  # of scripts that only an installation runs
SECONDS = 60.0  # that the mirror may be silent
Packages = Mapping[str, Mapping[str, str]]
# the program is named by its path, from which it finds its messages, character sets and plugins
START = """#!/bin/sh
exec '{loader}' --library-path '{libraries}' --argv0 '{server}' '{server}' "$@"
"""


def read_index() -> Packages:
    """Return the packages of Debian unstable by their names, each with its fields."""
    with urlopen(f"{MIRROR}/dists/sid/main/binary-amd64/Packages.xz", timeout=SECONDS) as answer:
        text = lzma.decompress(answer.read()).decode()
    stanzas = (dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE)) for stanza in text.split("\n\n"))
    return {stanza["Package"]: stanza for stanza in stanzas if stanza}


def list_needed(name: str, packages: Packages) -> Iterator[str]:
    """Yield a package and all that it depends on, the first of alternatives that there is."""
    found, waiting = {*UNUSED}, [name]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        if name not in packages:
            sys.exit(f"Debian unstable has no {name} for this machine today; another day it may.")
        found.add(name)
        yield name
        fields = packages[name]
        wanted = ", ".join(fields[field] for field in ("Pre-Depends", "Depends") if field in fields)
        for clause in filter(None, wanted.split(", ")):
            names = [re.split(r"[ :(]", each.strip())[0] for each in clause.split("|")]
            waiting.append(next((each for each in names if each in packages or each in UNUSED), names[0]))


def unpack(fields: Mapping[str, str], folder: Path) -> None:
    """Fetch a package, compare its digest, and unpack it."""
    with urlopen(f"{MIRROR}/{fields['Filename']}", timeout=SECONDS) as answer:
        content = answer.read()
    if hashlib.sha256(content).hexdigest() != fields["SHA256"]:
        sys.exit(f"{fields['Filename']} is not what the index of {MIRROR} says.")
    with tempfile.NamedTemporaryFile(suffix=".deb") as file:
        file.write(content)
        file.flush()
        subprocess.run(["dpkg-deb", "--extract", file.name, str(folder)], check=True)


def write_program(folder: Path) -> Path:
    """Write the program that starts the server with the loader and the libraries of the folder."""
    (loader,) = {each.resolve() for each in folder.glob("usr/lib/*/ld-linux-*.so.*")}
    server, libraries = folder / "usr" / "sbin" / "mysqld", loader.parent
    if not server.exists():
        sys.exit(f"{SERVER} has no usr/sbin/mysqld any more.")
    program = folder / "mysqld"
    program.write_text(START.format(loader=loader, libraries=libraries, server=server))
    program.chmod(0o755)
    version = subprocess.run([program, "--no-defaults", "--version"], check=False, capture_output=True, text=True)
    if version.returncode:
        program.unlink()
        sys.exit(f"MySQL of Debian unstable does not run here: {version.stderr.strip()}")
    return program


def fetch(folder: Path, name: str) -> None:
    """Unpack a package of Debian unstable into a folder, with all that it depends on."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64") or shutil.which("dpkg-deb") is None:
        sys.exit("This needs Linux on amd64, and dpkg-deb: apt install dpkg")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        packages = read_index()
        needed = [packages[each] for each in list_needed(name, packages)]
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(partial(unpack, folder=folder), needed))
    except (OSError, HTTPException, lzma.LZMAError, subprocess.CalledProcessError) as error:
        sys.exit(f"{name} could not be fetched from {MIRROR}: {error}")


def fetch_mysql(folder: Path) -> Path:
    """Return the program of a folder, with which it is filled if it has none."""
    program = folder / "mysqld"
    if program.exists():
        return program
    fetch(folder, SERVER)
    return write_program(folder)


if __name__ == "__main__":
    found = fetch_mysql(Path(sys.argv[1]).resolve() if sys.argv[1:] else FOLDER)
    sys.stdout.write(f"{found}\n")
