"""A dashboard of eight tiles over MSWeb, in plain SQL: eight charges, then none.

`eight_tiles.sql` has no clause of dpsql. The policy reads it as private, so that tools can send it. Here it is sent
from Python and from SQLAlchemy, which shares the ledger: what one has paid for is free for the other.
"""

import re
import tempfile
from importlib.resources import files
from pathlib import Path

import sqlalchemy as sa

import dpsql

TILES = {
    title: sql.strip()
    for title, sql in re.findall(
        r"^-- ([\w ]+): .*\n([^;]+);", Path(__file__).with_name("eight_tiles.sql").read_text(), re.MULTILINE
    )
}
POLICY = """\
ledger = "ledger.sqlite"

[sql]
implicit = true

[budget]
epsilon = 3.0
delta = 1e-6
items = 100
queries = 20

[tables.visits]
privacy_unit = "user_id"
source = "{source}"

[tables.visits.bounds]
rows = 20         # page views of one visitor that count, as dpsql bounds finds: about 3 / epsilon have more
"""


def write_policy(folder: Path) -> Path:
    """Write the policy of the bundled data and return its path."""
    policy = folder / "policy.toml"
    policy.write_text(POLICY.format(source=files("dpsql.cli") / "data" / "msweb.parquet"))
    return policy


def show_by_python(policy: Path) -> None:
    """Show every tile with its receipt."""
    with dpsql.connect(policy=policy) as session:
        for title, sql in TILES.items():
            print(f"{title}\n{session.sql(sql)}\n")
        print(f"charges: {session.history.num_rows}\n{session.budget}\n")


def show_by_sqlalchemy(policy: Path) -> None:
    """Read every tile again, as BI tools do, and show that nothing more was charged."""
    engine = sa.create_engine(f"dpsql://?policy={policy}")
    with engine.connect() as connection:
        rows = {title: len(connection.execute(sa.text(sql)).all()) for title, sql in TILES.items()}
    engine.dispose()
    print(f"SQLAlchemy read {rows}")
    with dpsql.connect(policy=policy) as session:
        print(f"charges: {session.history.num_rows}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        policy = write_policy(Path(folder))
        show_by_python(policy)
        show_by_sqlalchemy(policy)
