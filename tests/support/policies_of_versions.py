"""A policy with every key of each version, and what errors say of it."""

from __future__ import annotations

import re
from pathlib import Path

from dpsql import Policy, PolicyError

__all__ = ["BEFORE", "TODAY", "follow_hints"]

_OF_0_10 = """\
ledger = "spent.ledger"
data_version = 2
prepared = "quick"

[budget]
epsilon = 60.0
delta = 1e-4
items = 1500
queries = 200
period = "30d"
periods = 3
certificate = "zcdp"

[limits]
max_epsilon = 2.0
min_epsilon = 0.001
max_delta = 1e-6
max_k = 100
max_k_bar = 2000
failures_per_day = 5
share_replays = true

[engine]
isolation = "process"
memory_limit = "4GB"
threads = 2
time_limit = 60
answer_grid_ms = 100

[server]
users = "users.toml"
postgres = "127.0.0.1:5434"
web = "off"
flight = "off"
certificate = "cert.pem"
key = "key.pem"
catalog = "minimal"
statements_per_minute = 100
max_connections = 20

[source]
url = "duckdb:events.duckdb"
options = {}

[analysts.ada]
epsilon = 20.0
delta = 1e-5
items = 100
queries = 20
enabled = false

[tables.users]
privacy_unit = "user_id"
columns = ["user_id", "city"]
max_groups_contributed = 6
min_units = 3
population = 400
one_value_per_unit = ["city"]
prepared = [["city"]]

[tables.reads]
link = "user_id -> users.user_id"
source = "reads.parquet"

[tables.countries]
public = true
"""
BEFORE = {
    "0.10.1": _OF_0_10,
    "0.11.0": _OF_0_10.replace("time_limit = 60\n", "time_limit = 60\npublic_time_limit = 20\n"),
}
TODAY = """\
ledger = "spent.ledger"
data_version = 2
materialized = "quick"
sql = { implicit = true }
budget = { epsilon = 60.0, delta = 1e-4 }
limits = { max_k = 100 }
engine = { threads = 2 }
server = { web = "off" }
source = { url = "duckdb:events.duckdb" }
analysts.ada = { epsilon = 20.0 }

[tables.reads]
privacy_unit = "user_id"
bounds = { rows = 4, minutes = { max = 60, each = { min = 0, max = 30 } } }
calendar.day = { first = 2026-01-01, last = 2026-12-31 }

[tables.countries]
public = true
source = "countries.csv"
columns = { country = "VARCHAR" }
csv = { delim = ";" }
"""


def follow_hints(file: Path) -> list[str]:
    """Follow the hints of errors until a policy is read; return the lines that were changed."""
    changed = []
    while True:
        try:
            Policy.from_toml(file)
        except PolicyError as error:
            lines, hint = file.read_text().splitlines(), str(error.hint)
            place = re.search(rf"\({file.name}, line (\d+)\)$", str(error.place))
            assert place is not None
            at = int(place[1]) - 1
            changed.append(lines[at])
            if renamed := re.match(r"Write (\w+) = \.\.\. in place of (\w+) = \.\.\.", hint):
                lines[at] = re.sub(rf"^{renamed[2]}\b", renamed[1], lines[at])
            elif hint.startswith(f"Delete the line {lines[at]}."):
                del lines[at]
            else:
                lines[at] = re.findall(r"^Write (\w+ = \S+)", hint)[0]
            file.write_text("\n".join(lines))
        else:
            return changed
