"""Labels, fields and tags of types come from rows: no surface shows them, and no free answer depends on them.

Two databases differ in one unit, whose row has labels of its own in every type that DuckDB makes from data. Whatever
is free is the same for both, to the byte.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
import sqlalchemy as sa
from support.command_kit import dpsql_command
from support.web_kit import PASSWORD, opened

import dpsql
from dpsql.completion import find_completions
from dpsql.curator import check_policy, write_starter
from dpsql.errors import Error
from dpsql.integrations.sqlalchemy import DPSQLDialect
from dpsql.report.policy_text import describe_policy
from dpsql.server.catalog import open_catalog
from dpsql.server.catalog.cluster import create_definitions
from dpsql.server.users import User, add_user
from dpsql.session import Session

sa.dialects.registry.register("dpsql", DPSQLDialect.__module__, DPSQLDialect.__name__)
MARK = "HIV"  # of all that the one unit's row adds
POLICY = """\
ledger = "ledger.sqlite"
materialized = "materialized"
[budget]
epsilon = 4.0
delta = 1e-6
[tables.visits]
privacy_unit = "person"
materialized = [["mood"]]
[tables.lines]
privacy_unit = "person"
[tables.known]
public = true
"""
COLUMNS = ("mood", "moods", "by_mood", "three", "seen", "seens", "tagged", "deep")
ASKED = "SELECT mood, COUNT(DISTINCT person) AS n FROM visits GROUP BY mood TOP 3 PRIVATE WITH (epsilon = 0.5)"
FREE = [
    "DESCRIBE visits",
    "DESCRIBE known",
    "SHOW TABLES",
    "SELECT * FROM visits LIMIT 0",
    "SELECT mood, person FROM visits WHERE 1 = 0",
    "SELECT * FROM known LIMIT 0",
    "SELECT mood, MIN(mood) AS least, MAX(mood) AS greatest, COUNT(*) AS n FROM known GROUP BY mood",
    "SELECT mood FROM known ORDER BY mood",
]
REFUSED = [
    *(f"SELECT {column} FROM visits GROUP BY 1 TOP 3 PRIVATE" for column in COLUMNS[1:]),
    *(f"SELECT DISTINCT person, {column} AS k FROM visits" for column in COLUMNS[1:]),
    *(
        f"SELECT k FROM (SELECT DISTINCT person, {each} AS k FROM visits) AS x GROUP BY 1 TOP 3 PRIVATE"
        for each in COLUMNS[1:]
    ),
    *(f"SELECT {column} = mood FROM known" for column in COLUMNS[1:]),
    *(f"SELECT {column} + 1 FROM known" for column in COLUMNS),
    *(f"SELECT CASE WHEN true THEN {column} ELSE 1 END FROM known" for column in COLUMNS),
    *(f"SELECT CAST({column} AS INTEGER[]) FROM known" for column in COLUMNS),
    *(f"SELECT sqrt({column}), lower({column}) FROM known" for column in COLUMNS),
    *(
        f"SELECT a.mood FROM visits a JOIN lines b USING (person, {column}) GROUP BY 1 TOP 3 PRIVATE"
        for column in COLUMNS[1:]
    ),
    *(f"SELECT {column} FROM known UNION SELECT mood FROM known" for column in COLUMNS[1:]),
    *(f"SELECT article FROM visits GROUP BY mood TOP 3 PRIVATE WITH (domain = 'known.{column}')" for column in COLUMNS),
    "SELECT mood FROM visits GROUP BY mood TOP 3 PRIVATE WITH (domain = 'known.by_mood')",
    "SELECT mood FROM visits GROUP BY mood TOP 3 PRIVATE WITH (assume = 'known.mood')",
    "SELECT nothing FROM visits GROUP BY 1 TOP 3 PRIVATE",
    "SELECT mood FROM visits",
]


def make(folder: Path, *, marked: bool) -> Path:
    """Write a database whose types are made from its rows; the one unit is in it only if it is marked."""
    people = [f"p{at:03}" for at in range(60)]
    moods = {person: ["flu", "cold", "well"][at % 3] for at, person in enumerate(people)}
    if marked:
        moods["HIV patient"] = "HIV positive"
    mood, person = (
        f"ENUM ({', '.join(repr(each) for each in sorted(set(labels)))})" for labels in (moods.values(), moods)
    )
    fields = ", ".join(f'"{each}" VARCHAR' for each in sorted(set(moods.values())))
    folder.mkdir()
    with duckdb.connect(str(folder / "events.duckdb")) as connection:
        connection.execute(f"CREATE TYPE mood AS {mood}; CREATE TYPE person AS {person}")
        columns = (
            f"mood mood, moods mood[], by_mood MAP(mood, VARCHAR), three mood[3], seen STRUCT({fields}), "
            f"seens STRUCT({fields})[], tagged UNION({fields}), deep STRUCT(a mood)[]"
        )
        connection.execute(
            f"CREATE TABLE visits(person person, {columns}); CREATE TABLE lines(person VARCHAR, {columns})"
        )
        connection.execute(f"CREATE TABLE known({columns})")
        connection.executemany("INSERT INTO visits(person, mood) VALUES (?, ?)", list(moods.items()))
        connection.executemany("INSERT INTO known(mood) VALUES (?)", [["flu"], ["cold"]])
    (folder / "policy.toml").write_text(POLICY)
    add_user(folder / "users.toml", User("alice", is_curator=False), password=PASSWORD)
    return folder


def session(folder: Path, **options: object) -> Session:
    return dpsql.connect(folder / "events.duckdb", policy=folder / "policy.toml", ledger=":memory:", **options)  # type: ignore[arg-type]


def shown(answer: dpsql.Answer) -> str:
    """Return all that an answer shows: Arrow with its schema, text, HTML and the receipt."""
    table = answer.arrow()
    assert not any(pa.types.is_dictionary(field.type) for field in table.schema)
    return f"{table.schema}{table.to_pylist()}{answer!r}{answer._repr_html_()}"


def free_answers(folder: Path) -> str:
    with session(folder) as opened_:
        return "".join(shown(opened_.sql(text)) for text in FREE)


def catalog(folder: Path) -> str:
    with session(folder) as opened_:
        found = opened_.catalog
        return f"{found!r}{found}{found.tables}"


def described(folder: Path) -> str:
    with session(folder) as opened_:
        parts = [f"{opened_.describe(text)}{opened_.prepare(text)}" for text in (*FREE, ASKED)]
        parts += [f"{opened_.prepare('SELECT mood FROM visits WHERE mood = ? GROUP BY 1 TOP 3 PRIVATE')}"]
        return "".join(parts)


def explained(folder: Path) -> str:
    with session(folder) as opened_:
        plan = opened_.explain(ASKED)
        return f"{plan!r}{plan}{plan._repr_html_()}{shown(opened_.sql('EXPLAIN ' + ASKED))}"


def errors(folder: Path) -> str:
    found = []
    with session(folder) as opened_:
        for text in REFUSED:
            for act in (opened_.describe, opened_.explain, opened_.sql):
                try:
                    answer = act(text)  # DuckDB's own SQL over public rows
                    assert "FROM known" in text
                    found.append(str(answer))
                except Error as refused:
                    found.append(f"{refused!r}{refused}")
    return "".join(found)


def policy_errors(folder: Path) -> str:
    found = []
    for column in COLUMNS[1:]:
        wrong = [
            POLICY.replace('"person"', f'"{column}"', 1),
            POLICY.replace("[tables.known]\npublic = true", f'[tables.known]\nlink = "{column} -> visits.person"'),
            POLICY.replace('[["mood"]]', f'[["{column}"]]'),
            POLICY.replace("[tables.known]\npublic = true", f'[tables.known]\nlink = "mood -> lines.{column}"'),
            POLICY.replace("[tables.known]\npublic = true", '[tables.known]\nlink = "mood -> lines.person"'),
        ]
        for at, text in enumerate(wrong):
            (folder / f"wrong{at}.toml").write_text(text)
            with pytest.raises(Error) as refused:
                dpsql.connect(folder / "events.duckdb", policy=folder / f"wrong{at}.toml", ledger=":memory:").close()
            found.append(str(refused.value))
    return "".join(found)


def checked(folder: Path) -> str:
    check = check_policy(folder / "policy.toml", database=folder / "events.duckdb")
    found = "\n".join(describe_policy(check))
    assert "the labels of" in found
    return found + repr(check)


def started(folder: Path) -> str:
    return str(write_starter(folder / "events.duckdb")).replace(str(folder), "")


def commands(folder: Path) -> str:
    asked = "\n".join(
        [".tables", ".describe visits", *(f"{text};" for text in (*FREE, *REFUSED[:3])), f".explain {ASKED};"]
    )
    lines = [
        ("init", "events.duckdb", "--output", "-"),
        ("check", "--policy", "policy.toml", "--db", "events.duckdb"),
        ("check", "--policy", "policy.toml", "--db", "events.duckdb", "--format", "json"),
        ("shell", "events.duckdb", "--policy", "policy.toml", "--ledger", ":memory:"),
    ]
    return "".join(map(str, (dpsql_command(*line, cwd=folder, stdin=asked.encode()) for line in lines)))


def inspected(folder: Path) -> str:
    engine = sa.create_engine(f"dpsql:///{folder}/events.duckdb?policy={folder}/policy.toml&ledger=:memory:")
    inspector = sa.inspect(engine)
    found = [
        f"{inspector.get_columns(table)}{sa.Table(table, sa.MetaData(), autoload_with=engine)!r}"
        for table in ("visits", "known")
    ]
    engine.dispose()
    return "".join(found)


def postgres(folder: Path) -> str:
    with session(folder) as opened_:
        tables = opened_.catalog
    shadow = open_catalog("auto", tables)
    asked = (
        "SELECT * FROM pg_catalog.pg_enum",
        "SELECT typname, oid FROM pg_catalog.pg_type",
        "SELECT attname, format_type(atttypid, atttypmod) AS t FROM pg_catalog.pg_attribute",
        "SELECT table_name, column_name, data_type, udt_name FROM information_schema.columns",
    )
    found = [repr(list(shadow.execute(text, [], user="alice").rows)) for text in asked]
    shadow.close()
    return "".join([*create_definitions(tables), *found])


def web(folder: Path) -> str:
    with opened(folder) as world:
        page, found = world.login().get("/tables").text, []
        token = base64.b64encode(f"alice:{PASSWORD}".encode()).decode()
        client, headers = world.client(), {"Authorization": f"Basic {token}"}
        found.append(client.get("/api/v1/tables", headers=headers).text)
        for path in ("query", "describe", "explain"):
            asked = ({"sql": text} for text in (*FREE, *REFUSED[:20]))
            found += [client.post(f"/api/v1/{path}", headers=headers, json=each).text for each in asked]
        log = world.log.getvalue()
    return "".join(found) + page[page.index("<main") :] + "".join(part for part in (log,) if MARK in part)


def completed(folder: Path) -> str:
    with session(folder) as opened_:
        texts = ("SELECT ", "SELECT mood FROM visits WHERE ", "SELECT m")
        return repr([find_completions(text, opened_.catalog, commands={}) for text in texts])


def worked(folder: Path) -> str:
    with session(folder, isolation="process") as opened_:
        return "".join(f"{shown(opened_.sql(text))}{opened_.describe(text)}" for text in FREE) + repr(opened_.catalog)


def materialized(folder: Path) -> str:
    dpsql_command("materialize", "--policy", "policy.toml", "--db", "events.duckdb", cwd=folder)
    (file,) = (folder / "materialized").glob("*.duckdb")
    with duckdb.connect(str(file), read_only=True) as connection:
        types = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
        return repr(connection.execute(types).fetchall()) + repr(
            sorted(json.loads((folder / "materialized/state.json").read_text()))
        )


SURFACES: list[Callable[[Path], str | bytes]] = [free_answers, catalog, described, explained, errors, policy_errors]
SURFACES += [checked, started, commands, inspected, postgres, web, completed, worked, materialized]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    base = tmp_path_factory.mktemp("labels")
    return make(base / "a", marked=False), make(base / "b", marked=True)


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.__name__)
def test_no_surface_tells_labels_of_types(folders: tuple[Path, Path], surface: Callable[[Path], str | bytes]) -> None:
    without, with_ = (str(surface(folder)).replace(str(folder), "") for folder in folders)
    assert MARK not in with_
    assert with_ == without
    assert len(without) > 50


def test_what_is_released_carries_no_other_labels(folders: tuple[Path, Path]) -> None:
    with session(folders[1]) as opened_:
        answer = opened_.sql(ASKED)
        assert MARK not in shown(answer) + str(answer.receipt) + str(opened_.history.to_pylist())
        assert answer.arrow().schema.field("mood").type == pa.string()
