"""Names of types, without labels, fields and tags, and the collations of columns, as engines hand them out."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.dialects import strip_type_details
from dpsql.engines.duckdb.catalog import describe_schema
from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.engines.sources import Column

LABELS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("BIGINT", "BIGINT"),
        ("DECIMAL(9,2)[]", "DECIMAL(9,2)[]"),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH TIME ZONE"),
        ("ENUM('HIV positive', 'a''), (b[')[]", "ENUM[]"),
        ("ENUM('HIV')[2]", "ENUM[2]"),
        ("MAP(ENUM('HIV'), STRUCT(\"x y\" INTEGER)[])", "MAP(ENUM, STRUCT[])"),
        ("MAP(VARCHAR, MAP(INTEGER, UNION(hiv ENUM('x'), n INTEGER)))", "MAP(VARCHAR, MAP(INTEGER, UNION))"),
        ("STRUCT(\"q'(\" ENUM('HIV positive'), positive INTEGER)[][3]", "STRUCT[][3]"),
        ("map<string,array<struct<hiv:int,b:array<int>>>>", "map<string,array<struct>>"),
        ("string collate UNICODE_CI", "string collate UNICODE_CI"),
        ("LowCardinality(Nullable(String))", "LowCardinality(Nullable(String))"),
        ("Enum8('HIV' = 1)", "Enum8"),
        ("character varying(10)[]", "character varying(10)[]"),
        ('clinic."UUID"', 'clinic."UUID"'),
        ('"HIV positive"', "USER-DEFINED"),
        ("ENUM('HIV", "ENUM"),
        ("STRUCT(HIV", "STRUCT"),
        ("", "USER-DEFINED"),
    ],
)
def test_a_type_has_a_name_without_labels_fields_and_tags(name: str, plain: str) -> None:
    assert strip_type_details(name) == plain
    assert strip_type_details(plain) == plain
    assert Column("c", name).type == plain


@given(LABELS)
def test_no_label_is_in_the_name_whatever_it_is(labels: list[str]) -> None:
    texts = ", ".join("'" + label.replace("'", "''") + "'" for label in labels)
    names = ['"' + label.replace('"', '""') + '"' for label in labels]
    fields = ", ".join(f"{name} ENUM({texts})[]" for name in names)
    assert strip_type_details(f"MAP(ENUM({texts}), ENUM({texts})[])") == "MAP(ENUM, ENUM[])"
    assert strip_type_details(f"STRUCT({fields})[2]") == "STRUCT[2]"


def test_no_engine_and_no_schema_of_duckdb_tells_labels(tmp_path: Path) -> None:
    place = tmp_path / "data.duckdb"
    with duckdb.connect(str(place)) as connection:
        connection.execute(
            "CREATE TYPE mood AS ENUM ('HIV'); CREATE TABLE t(a mood, b mood[], c STRUCT(hiv mood), d INT)"
        )
        connection.execute("CREATE VIEW v AS SELECT a, {'hiv': d} AS s FROM t")
        borrowed = DuckDBEngine.borrow(connection, {"t": None, "v": None})
        kinds = {name: [column.type for column in borrowed.columns(name)] for name in ("t", "v")}
        borrowed.close()
    assert kinds == {"t": ["ENUM", "ENUM[]", "STRUCT", "INTEGER"], "v": ["ENUM", "STRUCT"]}
    assert {table.name: [column.type for column in table.columns] for table in describe_schema(place).tables} == kinds
    opened = DuckDBEngine.open(place, {"t": None, "v": None})
    assert {name: [column.type for column in opened.columns(name)] for name in ("t", "v")} == kinds
    opened.close()


def test_collations_of_tables_and_views_are_found() -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t(p VARCHAR, n VARCHAR COLLATE NOCASE, k VARCHAR COLLATE nocase, i INTEGER)")
        connection.execute("CREATE TABLE odd(o VARCHAR COLLATE NFC.NOACCENT.NOCASE)")
        connection.execute("CREATE VIEW v AS SELECT lower(n) AS n, p || 'x' AS p FROM t")
        engine = DuckDBEngine.borrow(connection, dict.fromkeys(("t", "v", "odd")))
        found = {name: [column.collation for column in engine.columns(name)] for name in ("t", "v", "odd")}
        engine.close()
    assert found == {"t": ["", "NOCASE", "nocase", ""], "v": ["NOCASE", ""], "odd": ["that of memory.main.odd.o"]}
