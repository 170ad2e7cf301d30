"""Lists of tables, without a server."""

from __future__ import annotations

import re
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.server.flight.commands import Catalogs, Keys, Schemas, ServerInfo, Tables, TableTypes, TypeInfo
from dpsql.server.flight.info import SERVER_INFO, TYPE_INFO, server_info, type_info
from dpsql.server.flight.table_listing import Listing, _fits, list_tables, read_schema
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.types import parse_type

COLUMNS = tuple(
    (f"c{at}", parse_type(name)) for at, name in enumerate(("BIGINT", "UUID", "INTEGER[]", "DECIMAL(30,2)"))
)
CATALOG = Catalog(
    (
        Table("reads", ("db", "main", "reads"), COLUMNS, "c0"),
        Table("shop.orders", ("db", "shop", "orders"), COLUMNS, None),
    )
)


@given(st.text("ab%_", max_size=8), st.text("ab", max_size=8))
def test_patterns_are_those_of_like(pattern: str, name: str) -> None:
    expected = re.fullmatch(pattern.replace("%", ".*").replace("_", "."), name) is not None
    assert _fits(name, pattern) == expected


def test_a_pattern_takes_no_longer_than_its_length_allows() -> None:
    began = time.monotonic()
    assert not _fits("a" * 200, "%a" * 5_000 + "b")
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (Tables(None, None, None, (), with_columns=False), ["reads", "orders"]),
        (Tables("", "main", None, (), with_columns=False), ["reads"]),
        (Tables(None, "sh%", "o_ders", ("TABLE", "VIEW"), with_columns=True), ["orders"]),
        (Tables("other", None, None, (), with_columns=False), []),
        (Tables(None, None, None, ("VIEW",), with_columns=True), []),
    ],
)
def test_tables_are_found_by_what_is_asked(asked: Tables, found: list[str]) -> None:
    assert list_tables(asked, CATALOG)["table_name"].to_pylist() == found


@pytest.mark.parametrize(
    "asked",
    [
        Catalogs(),
        TableTypes(),
        Schemas(None, None),
        Schemas("", "s%"),
        Schemas("other", None),
        Tables(None, None, None, (), with_columns=True),
        Keys(is_primary=True),
        Keys(is_primary=False),
    ],
)
def test_lists_have_the_columns_that_they_announce(asked: Listing) -> None:
    table = list_tables(asked, CATALOG)
    assert table.schema == read_schema(asked)
    table.validate(full=True)


def test_columns_have_the_types_in_which_they_are_answered() -> None:
    asked = Tables(None, None, "reads", (), with_columns=True)
    (message,) = list_tables(asked, CATALOG)["table_schema"].to_pylist()
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    assert schema.types == [pa.int64(), pa.string(), pa.string(), pa.string()]
    assert schema.field("c0").metadata[b"dpsql.is_privacy_unit"] == b"1"
    assert schema.field("c1").metadata[b"ARROW:FLIGHT:SQL:TYPE_NAME"] == b"UUID"


def test_what_the_server_says_of_itself_is_well_formed() -> None:
    everything = server_info(ServerInfo(()))
    assert everything.schema == SERVER_INFO
    everything.validate(full=True)
    assert server_info(ServerInfo((0, 3, 99_999))).to_pylist() == [
        {"info_name": 0, "value": "dpsql"},
        {"info_name": 3, "value": True},
    ]
    types = type_info(TypeInfo(None))
    assert types.schema == TYPE_INFO
    assert types["data_type"].to_pylist() == sorted(types["data_type"].to_pylist())
    assert type_info(TypeInfo(12))["type_name"].to_pylist() == ["VARCHAR"]
