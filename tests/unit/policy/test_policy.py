from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.errors import PolicyError, Refusal, UsageError
from dpsql.policy import (
    Analyst,
    Budget,
    DataSource,
    EngineSettings,
    Limits,
    Policy,
    PrivateTable,
    PublicTable,
    ServerSettings,
)
from dpsql.policy.tables import find_owner
from dpsql.quantities import Delta, Epsilon


def refused(act: Callable[[], object]) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        act()
    error = caught.value
    assert error.code.startswith("policy-")
    assert error.reason.endswith(".")
    assert error.hint
    assert error.place
    return error


def test_where_without_a_file_is_the_key_path() -> None:
    policy = Policy(Budget(1, 0.1), {"reads": PrivateTable("u")})
    assert policy.where("tables.reads.privacy_unit") == "tables.reads.privacy_unit"


def test_numbers_are_exact() -> None:
    assert Budget(0.1, 1e-6).epsilon.value == Fraction(1, 10)
    assert Budget("0.1", Decimal("1e-6")).delta.value == Fraction(1, 10**6)
    assert Budget(Epsilon(2), Delta("0.5")) == Budget(Fraction(2), Fraction(1, 2))


def test_a_policy_does_not_change() -> None:
    given_tables = {"reads": PrivateTable("user_id")}
    policy = Policy(Budget(1, 1e-6), given_tables)
    given_tables["more"] = PrivateTable("user_id")
    assert list(policy.tables) == ["reads"]
    with pytest.raises(TypeError):
        policy.tables["more"] = PublicTable()  # type: ignore[index]
    for value in (policy, policy.budget, policy.limits, policy.tables["reads"]):
        with pytest.raises((FrozenInstanceError, AttributeError, TypeError)):
            value.epsilon = 2  # type: ignore[union-attr]


# --- values that mean nothing


NO_NUMBERS = [float("nan"), float("inf"), "nan", "-inf", "", "one", True, None, [1], Decimal("NaN"), 1j]


@pytest.mark.parametrize("value", NO_NUMBERS)
def test_what_is_no_number_is_refused(value: object) -> None:
    for act, place in (
        (lambda: Budget(value, 1e-6), "budget.epsilon"),
        (lambda: Budget(1, value), "budget.delta"),
        (lambda: Limits(max_epsilon=value), "limits.max_epsilon"),
        (lambda: Limits(min_epsilon=value), "limits.min_epsilon"),
    ):
        error = refused(act)
        assert (error.code, error.place) == ("policy-number", place)


@pytest.mark.parametrize(
    ("act", "place"),
    [
        (lambda: Budget(0, 1e-6), "budget.epsilon"),
        (lambda: Budget(-1, 1e-6), "budget.epsilon"),
        (lambda: Budget("100.001", 1e-6), "budget.epsilon"),
        (lambda: Budget(Epsilon(101), 1e-6), "budget.epsilon"),
        (lambda: Budget(1, 0), "budget.delta"),
        (lambda: Budget(1, 1), "budget.delta"),
        (lambda: Budget(1, -1e-6), "budget.delta"),
        (lambda: Budget(1, Delta(0)), "budget.delta"),
        (lambda: Budget(1, 1e-6, items=0), "budget.items"),
        (lambda: Budget(1, 1e-6, items=10**6 + 1), "budget.items"),
        (lambda: Budget(1, 1e-6, queries=-1), "budget.queries"),
        (lambda: Limits(max_k=0), "limits.max_k"),
        (lambda: Limits(max_k_bar=10**7), "limits.max_k_bar"),
        (lambda: PrivateTable("u", max_groups_contributed=0), "max_groups_contributed"),
        (lambda: PrivateTable("u", max_groups_contributed=10**6 + 1), "max_groups_contributed"),
        (lambda: PrivateTable("u", min_units=0), "min_units"),
        (lambda: PrivateTable("u", min_units=10**6 + 1), "min_units"),
        (lambda: PrivateTable("u", population=0), "population"),
        (lambda: PrivateTable("u", population=10**12 + 1), "population"),
        (lambda: Limits(max_delta=1), "limits.max_delta"),
        (lambda: Limits(max_epsilon=101), "limits.max_epsilon"),
        (lambda: Limits(max_epsilon=0.1, min_epsilon=0.2), "limits"),
        (lambda: Limits(max_k=100, max_k_bar=99), "limits"),
    ],
)
def test_what_is_out_of_range_is_refused(act: Callable[[], object], place: str) -> None:
    error = refused(act)
    assert (error.code, error.place) == ("policy-range", place)


def test_the_ends_of_the_ranges_are_in() -> None:
    Budget(100, Fraction(10**12 - 1, 10**12), items=1, queries=10**6)
    Limits(max_epsilon=0.2, min_epsilon=0.2, max_k=7, max_k_bar=7)
    for end in (1, 10**6):
        table = PrivateTable("u", max_groups_contributed=end, min_units=end)
        assert (table.max_groups_contributed, table.min_units) == (end, end)
    assert [PrivateTable("u", population=end).population for end in (None, 1, 10**12)] == [None, 1, 10**12]


@pytest.mark.parametrize(
    ("act", "place"),
    [
        (lambda: Budget(1, 1e-6, items=1.5), "budget.items"),  # type: ignore[arg-type]
        (lambda: Budget(1, 1e-6, queries=True), "budget.queries"),
        (lambda: Limits(max_k="10"), "limits.max_k"),  # type: ignore[arg-type]
        (lambda: PrivateTable(3), "privacy_unit"),  # type: ignore[arg-type]
        (lambda: PrivateTable("u", "u"), "columns"),
        (lambda: PublicTable({"u"}), "columns"),  # type: ignore[arg-type]
        (lambda: PublicTable(["a", 1]), "columns"),  # type: ignore[list-item]
        (lambda: PublicTable(source=3), "source"),  # type: ignore[arg-type]
        (lambda: PublicTable({"a": 3}, source="a.csv"), "columns.a"),  # type: ignore[dict-item]
        (lambda: PublicTable({3: "DATE"}, source="a.csv"), "columns"),  # type: ignore[dict-item]
        (lambda: PrivateTable("u", max_groups_contributed=True), "max_groups_contributed"),
        (lambda: PrivateTable("u", max_groups_contributed=2.0), "max_groups_contributed"),  # type: ignore[arg-type]
        (lambda: PrivateTable("u", min_units="50"), "min_units"),  # type: ignore[arg-type]
        (lambda: PrivateTable("u", population=5e6), "population"),  # type: ignore[arg-type]
        (lambda: Policy(1, {"a": PublicTable()}), "budget"),  # type: ignore[arg-type]
        (lambda: Policy(Budget(1, 0.1), ["a"]), "tables"),  # type: ignore[arg-type]
        (lambda: Policy(Budget(1, 0.1), {"a": "user_id"}), "tables.a"),  # type: ignore[dict-item]
        (lambda: Policy(Budget(1, 0.1), {3: PublicTable()}), "tables"),  # type: ignore[dict-item]
        (lambda: Policy(Budget(1, 0.1), {"a": PublicTable()}, ledger=3), "ledger"),  # type: ignore[arg-type]
        (lambda: Policy(Budget(1, 0.1), {"a": PublicTable()}, limits=3), "limits"),  # type: ignore[arg-type]
        (lambda: Policy.from_toml(3), "policy"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_type_is_refused(act: Callable[[], object], place: str) -> None:
    error = refused(act)
    assert (error.code, error.place) == ("policy-type", place)


@pytest.mark.parametrize(
    ("act", "code", "place"),
    [
        (lambda: PrivateTable(""), "policy-name", "privacy_unit"),
        (lambda: PrivateTable("u\0"), "policy-name", "privacy_unit"),
        (lambda: PrivateTable("u", ["u", ""]), "policy-name", "columns"),
        (lambda: PrivateTable("u", []), "policy-columns", "columns"),
        (lambda: PrivateTable("u", ["a"]), "policy-columns", "columns"),
        (lambda: PrivateTable("u", ["u", "a", "A"]), "policy-columns", "columns"),
        (lambda: PublicTable([]), "policy-columns", "columns"),
        (lambda: PublicTable(source="data.json"), "policy-source", "source"),
        (lambda: PublicTable(source="data.csv.bz2"), "policy-source", "source"),
        (lambda: PublicTable(source="data.csv.gz"), "policy-types", "source"),
        (lambda: PublicTable(source="data.csv"), "policy-types", "source"),
        (lambda: PublicTable(["a"], source="data.csv"), "policy-types", "columns"),
        (lambda: PublicTable({"a": "BIGINT"}), "policy-types", "columns"),
        (lambda: PublicTable({"a": "BIGINT"}, source="data.parquet"), "policy-types", "columns"),
        (lambda: PublicTable({}, source="data.csv"), "policy-columns", "columns"),
        (lambda: PublicTable({"a": "DATE", "A": "DATE"}, source="data.csv"), "policy-columns", "columns"),
        (lambda: PublicTable({"": "DATE"}, source="data.csv"), "policy-name", "columns"),
        (lambda: PrivateTable("u", {"a": "DATE"}, source="data.csv"), "policy-columns", "columns"),
        (lambda: PrivateTable("u", {"u": "INT"}, source="data.csv"), "policy-types", "columns.u"),
        (lambda: PublicTable(source=""), "policy-path", "source"),
        (lambda: PublicTable(source="a\0.parquet"), "policy-path", "source"),
        (lambda: Policy(Budget(1, 0.1), {}), "policy-tables", "tables"),
        (lambda: Policy(Budget(1, 0.1), {"": PublicTable()}), "policy-name", "tables"),
    ],
)
def test_a_table_that_cannot_be_meant_is_refused(act: Callable[[], object], code: str, place: str) -> None:
    error = refused(act)
    assert (error.code, error.place) == (code, place)


def test_names_are_compared_by_ascii_case_alone() -> None:
    assert PrivateTable("User_ID", ["user_id"]).privacy_unit == "User_ID"
    PublicTable(["ä", "Ä", "\u017f", "s"])
    Policy(Budget(1, 0.1), {"ä": PublicTable(), "Ä": PublicTable()})


@pytest.mark.parametrize(
    "tables",
    [
        {"reads": PrivateTable("u"), "READS": PublicTable()},
        {"reads": PrivateTable("u"), "Main.Reads": PublicTable()},
        {"a": PrivateTable("u", source="x.parquet"), "b": PublicTable(source=Path("./x.parquet"))},
        {"main.a": PrivateTable("u", source="x.parquet"), "a": PublicTable()},
    ],
)
def test_no_data_is_declared_twice(tables: dict[str, PrivateTable | PublicTable]) -> None:
    error = refused(lambda: Policy(Budget(1, 0.1), tables))
    assert (error.code, error.place) == ("policy-duplicate-table", f"tables.{list(tables)[1]}")


# --- bounds of a table, and the types of a CSV file


def test_a_table_has_no_bounds_unless_it_says_so() -> None:
    table = PrivateTable("u")
    assert (table.max_groups_contributed, table.min_units) == (None, None)
    assert table != PrivateTable("u", max_groups_contributed=20)
    assert table != PrivateTable("u", min_units=50)
    assert PrivateTable("u", min_units=50) == PrivateTable("u", min_units=50)


def test_a_public_table_has_no_units_to_bound() -> None:
    for name in ("max_groups_contributed", "min_units", "population"):
        with pytest.raises(TypeError):
            PublicTable(**{name: 20})  # type: ignore[arg-type]


TYPES = {
    "BOOLEAN": "BOOLEAN",
    "tinyint": "TINYINT",
    "SmallInt": "SMALLINT",
    "INTEGER": "INTEGER",
    "bigint": "BIGINT",
    "UTINYINT": "UTINYINT",
    "USMALLINT": "USMALLINT",
    "UINTEGER": "UINTEGER",
    "Double": "DOUBLE",
    "DECIMAL(1,0)": "DECIMAL(1,0)",
    "decimal(18, 18)": "DECIMAL(18,18)",
    " Decimal ( 09 , 2 ) ": "DECIMAL(9,2)",
    "varchar": "VARCHAR",
    "DATE": "DATE",
    "timestamp": "TIMESTAMP",
    "uuid": "UUID",
}


@pytest.mark.parametrize(("written", "type_"), TYPES.items())
def test_the_types_of_a_csv_file(written: str, type_: str) -> None:
    for table in (PrivateTable("u", {"u": written}, source="x.CSV"), PublicTable({"u": written}, source="x.csv")):
        assert (table.columns, table.types) == (("u",), (type_,))


NO_TYPES = ["", "INT", "TEXT", "FLOAT", "UBIGINT", "HUGEINT", "BLOB", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE"]
NO_TYPES += ["BIGINT[]", "BIGINT; DROP TABLE reads", "B\u0131GINT", "DECIMAL", "DECIMAL(19,2)", "DECIMAL(0,0)"]
NO_TYPES += ["DECIMAL(3,4)", "DECIMAL(3)", "DECIMAL(3,-1)", "DECIMAL(\u0663,1)", "STRUCT(a INTEGER)"]


@pytest.mark.parametrize("written", NO_TYPES)
def test_the_list_of_types_is_closed(written: str) -> None:
    error = refused(lambda: PublicTable({"day": "DATE", "a b": written}, source="x.csv"))
    assert (error.code, error.place) == ("policy-types", "columns.a b")
    assert "UUID, or DECIMAL(width, scale)" in error.hint


@pytest.mark.parametrize(
    ("options", "code", "key"),
    [
        ({"dleim": ";"}, "policy-unknown-key", "dleim"),
        ({"delim": ";;"}, "policy-csv", "delim"),
        ({"delim": ""}, "policy-csv", "delim"),
        ({"delim": 1}, "policy-type", "delim"),
        ({"delim": "\n"}, "policy-csv", "delim"),
        ({"delim": "é"}, "policy-csv", "delim"),
        ({"quote": ","}, "policy-csv", "delim"),
        ({"comment": '"'}, "policy-csv", "delim"),
        ({"escape": ","}, "policy-csv", "delim"),
        ({"escape": "\\", "quote": ""}, "policy-csv", "escape"),
        ({"skip": -1}, "policy-csv", "skip"),
        ({"skip": True}, "policy-type", "skip"),
        ({"header": "no"}, "policy-type", "header"),
        ({"header": False}, "policy-csv", "header"),
        ({"new_line": "|"}, "policy-csv", "new_line"),
        ({"names": ["u", "a", "A"]}, "policy-columns", "names"),
        ({"names": ["u", ""]}, "policy-name", "names"),
        ({"names": "u"}, "policy-type", "names"),
        ({"names": ["a", "b"]}, "policy-csv", "names"),
        ({"nullstr": ["", 3]}, "policy-type", "nullstr"),
        ({"encoding": "windows-1252"}, "policy-csv", "encoding"),
        ({"dateformat": "dd/mm/yyyy"}, "policy-csv", "dateformat"),
        ({"timestampformat": "%d/%q"}, "policy-csv", "timestampformat"),
        ({"decimal_separator": ";"}, "policy-csv", "decimal_separator"),
        ({"thousands": "."}, "policy-csv", "thousands"),
        ({"thousands": ",", "decimal_separator": ","}, "policy-csv", "thousands"),
    ],
)
def test_a_format_of_a_csv_file_that_cannot_be_meant(options: dict[str, object], code: str, key: str) -> None:
    for act in (
        lambda: PrivateTable("u", {"u": "BIGINT"}, source="x.csv", csv=options),
        lambda: PublicTable({"u": "BIGINT"}, source="x.tsv.gz", csv=options),
    ):
        error = refused(act)
        assert (error.code, error.place) == (code, f"csv.{key}")
        assert error.hint


def test_a_format_is_of_csv_files_alone_and_has_the_defaults_of_rfc_4180() -> None:
    for source in ("x.parquet", None):
        assert refused(lambda source=source: PublicTable(source=source, csv={"delim": ";"})).place == "csv"
    given = {"delim": ";", "quote": "'", "escape": "'", "nullstr": "NA", "names": ["u", "v"]}
    form = PrivateTable("u", {"U": "BIGINT"}, source="x.csv", csv=given).csv
    assert form is not None
    assert form.written() == {"delim": ";", "quote": "'", "names": ("u", "v"), "nullstr": ("NA",)}
    empty = PublicTable({"u": "BIGINT"}, source="x.csv", csv={}).csv
    assert empty is not None
    assert empty.written() == {}
    assert PublicTable({"u": "BIGINT"}, source="x.csv").csv is None


def test_only_a_csv_file_has_types() -> None:
    for table in (PublicTable(["a"]), PublicTable(["a"], source="x.parquet"), PrivateTable("u"), PublicTable()):
        assert table.types is None


def test_a_csv_file_without_types_is_told_how_to_write_them() -> None:
    for columns in (None, ["user_id"]):
        error = refused(lambda columns=columns: PrivateTable("user_id", columns, source="visits.csv"))
        assert "sniffed types change with one row" in error.reason
        assert 'columns = { user_id = "BIGINT"' in error.hint


def test_tables_with_types_and_bounds_are_values() -> None:
    types = {"u": "BIGINT", "page": "varchar"}
    table = PrivateTable("u", types, source="x.csv", max_groups_contributed=20, min_units=50)
    types["day"] = "DATE"
    assert table.columns == ("u", "page")
    policy = Policy(Budget(1, 0.1), {"visits": table, "pages": PublicTable({"page": "VARCHAR"}, source="pages.csv")})
    for twin in (copy.copy(table), copy.deepcopy(table), pickle.loads(pickle.dumps(table))):
        assert twin == table
        assert hash(twin) == hash(table)
    for twin in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert twin == policy
    assert table != PrivateTable("u", {"u": "BIGINT", "page": "DATE"}, source="x.csv")
    assert replace(PrivateTable("u", min_units=5), max_groups_contributed=3).min_units == 5
    assert replace(table, columns={"u": "UUID"}, min_units=7).types == ("UUID",)
    for name in ("types", "min_units", "max_groups_contributed"):
        with pytest.raises((FrozenInstanceError, AttributeError)):
            setattr(table, name, None)


# --- analysts, and the version of the data


TABLES = {"reads": PrivateTable("user_id")}


def policy_for(**analysts: Analyst) -> Policy:
    return Policy(Budget(1, 1e-6), TABLES, analysts=analysts)


def test_without_analysts_everybody_has_the_total() -> None:
    policy = Policy(Budget(1, 1e-6), TABLES)
    assert dict(policy.analysts) == {}
    for name in (None, "alice", "a b", "ä" * 100):
        assert policy.analyst(name) is None


def test_an_analyst_has_her_own_limit_or_that_of_the_unlisted() -> None:
    alice, rest = Analyst(0.5), Analyst("0.2", 1e-7, items=10, queries=3)
    policy = policy_for(alice=alice, default=rest)
    assert policy.analyst("alice") == alice
    assert policy.analyst("Alice") == policy.analyst("bob") == policy.analyst(None) == rest
    assert (rest.epsilon, rest.delta, rest.items, rest.queries) == (Epsilon("0.2"), Delta("1e-7"), 10, 3)
    assert (alice.delta, alice.items, alice.queries, alice.enabled) == (None, None, None, True)
    assert policy_for(alice=alice).analyst("bob") is policy_for(alice=alice).analyst(None) is None


def test_a_disabled_analyst_may_ask_nothing() -> None:
    policy = policy_for(bob=Analyst(enabled=False), eve=Analyst(0.5, enabled=False), alice=Analyst(1))
    for name in ("bob", "eve"):
        with pytest.raises(Refusal) as caught:
            policy.analyst(name)
        assert caught.value.code == "analyst-disabled"
        assert caught.value.hint
    assert policy.analyst("alice") == Analyst(1)
    assert policy.analyst("carol") is None


def test_the_unlisted_may_be_disabled() -> None:
    policy = policy_for(default=Analyst(enabled=False), alice=Analyst(1))
    assert policy.analyst("alice") == Analyst(1)
    for name in (None, "bob"):
        with pytest.raises(Refusal):
            policy.analyst(name)


NO_NAMES = ["", "x" * 101, "a\nb", "a\0", "\u202e", "\ud800", "a\u00a0b", "\x7f"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_name_is_short_and_printable(name: str) -> None:
    error = refused(lambda: policy_for(**{name: Analyst(1)}))
    assert (error.code, error.place) == ("policy-name", "analysts")
    with pytest.raises(UsageError) as caught:
        policy_for().analyst(name)
    assert caught.value.code == "analyst-name"


@pytest.mark.parametrize("name", ["default", 3, b"alice", True])
def test_nobody_is_called_so(name: object) -> None:
    for policy in (policy_for(), policy_for(default=Analyst(0.1))):
        with pytest.raises(UsageError) as caught:
            policy.analyst(name)  # type: ignore[arg-type]
        assert caught.value.code == "analyst-name"
        assert caught.value.hint


@pytest.mark.parametrize(
    ("act", "code", "place"),
    [
        (Analyst, "policy-missing-key", "epsilon"),
        (lambda: Analyst(delta=1e-7), "policy-missing-key", "epsilon"),
        (lambda: Analyst(-1), "policy-range", "epsilon"),
        (lambda: Analyst(False), "policy-number", "epsilon"),
        (lambda: Analyst("nan"), "policy-number", "epsilon"),
        (lambda: Analyst(1, 0), "policy-range", "delta"),
        (lambda: Analyst(1, items=0), "policy-range", "items"),
        (lambda: Analyst(1, queries=1.0), "policy-type", "queries"),  # type: ignore[arg-type]
        (lambda: Analyst(1, enabled=1), "policy-type", "enabled"),  # type: ignore[arg-type]
        (lambda: Analyst(0, enabled=False), "policy-range", "epsilon"),
        (lambda: policy_for(alice=Analyst("1.0000001")), "policy-range", "analysts.alice.epsilon"),
        (lambda: policy_for(alice=Analyst(2, enabled=False)), "policy-range", "analysts.alice.epsilon"),
        (lambda: policy_for(default=Analyst(1, "1.1e-6")), "policy-range", "analysts.default.delta"),
        (lambda: policy_for(alice=0.5), "policy-type", "analysts.alice"),  # type: ignore[arg-type]
        (lambda: policy_for(alice=None), "policy-type", "analysts.alice"),  # type: ignore[arg-type]
        (lambda: Policy(Budget(1, 0.1), TABLES, analysts=["alice"]), "policy-type", "analysts"),  # type: ignore[arg-type]
        (lambda: Policy(Budget(1, 0.1), TABLES, analysts={3: Analyst(1)}), "policy-type", "analysts"),  # type: ignore[dict-item]
        (lambda: Policy(Budget(1, 0.1), TABLES, data_version=-1), "policy-range", "data_version"),
        (lambda: Policy(Budget(1, 0.1), TABLES, data_version=2**62), "policy-range", "data_version"),
        (lambda: Policy(Budget(1, 0.1), TABLES, data_version=True), "policy-type", "data_version"),
        (lambda: Policy(Budget(1, 0.1), TABLES, data_version="3"), "policy-type", "data_version"),  # type: ignore[arg-type]
    ],
)
def test_an_analyst_that_cannot_be_meant_is_refused(act: Callable[[], object], code: str, place: str) -> None:
    error = refused(act)
    assert (error.code, error.place) == (code, place)


def test_a_limit_may_be_the_whole_total() -> None:
    assert policy_for(alice=Analyst(1, 1e-6)).analyst("alice") == Analyst("1", "1e-6")


def test_analysts_and_the_version_are_values() -> None:
    given_analysts = {"alice": Analyst(0.5, items=3), "bob": Analyst(enabled=False)}
    policy = Policy(Budget(1, 1e-6), TABLES, analysts=given_analysts, data_version=0)
    given_analysts["eve"] = Analyst(1)
    assert list(policy.analysts) == ["alice", "bob"]
    with pytest.raises(TypeError):
        policy.analysts["eve"] = Analyst(1)  # type: ignore[index]
    with pytest.raises((FrozenInstanceError, AttributeError)):
        policy.analysts["alice"].epsilon = None  # type: ignore[misc]
    for twin in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert twin == policy
        assert (dict(twin.analysts), twin.data_version) == (dict(policy.analysts), 0)
    assert policy != replace(policy, data_version=1)
    assert policy != replace(policy, data_version=None)
    assert policy != replace(policy, analysts={"alice": Analyst(0.5)})
    assert hash(Analyst(0.5)) == hash(Analyst("0.5")) != hash(Analyst(0.25))


def test_a_copy_and_a_part_of_a_policy_keep_all_else() -> None:
    tables = {**TABLES, "countries": PublicTable()}
    policy = Policy(
        Budget(1, 1e-6),
        tables,
        ledger="x",
        analysts={"alice": Analyst(1)},
        data_version=3,
        source=DataSource("sc://h", options={"a": "b"}),
        engine=EngineSettings(time_limit=3),
        server=ServerSettings(users="users.toml", mcp="127.0.0.1:0"),
    )
    for twin in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert twin == policy
    for name in ("source", "engine", "server"):
        assert policy != replace(policy, **{name: getattr(Policy(Budget(1, 1e-6), tables), name)})
    part = policy.only(["reads"])
    assert dict(part.tables) == TABLES
    assert part == replace(policy, tables=TABLES)


LINK = "customer_id -> customers.id"
CUSTOMERS = {"customers": PrivateTable("household_id"), "countries": PublicTable()}


def test_a_link_is_read_once_and_spelled_again() -> None:
    table = PrivateTable(link="  customer_id->main.customers.id ")
    assert (table.privacy_unit, str(table.link)) == (None, "customer_id -> main.customers.id")
    assert PrivateTable(link=table.link) == table


@pytest.mark.parametrize(
    "link", ["", "customer_id", "a -> b", "a -> .b", "-> b.c", "a -> b.", "a -> b.c -> d.e", "a\0 -> b.c"]
)
def test_a_link_that_cannot_be_read(link: str) -> None:
    with pytest.raises(PolicyError) as caught:
        PrivateTable(link=link)
    assert caught.value.code in {"policy-link", "policy-name"}
    assert caught.value.place == "link"


@pytest.mark.parametrize("given", [{}, {"privacy_unit": "id", "link": LINK}])
def test_a_private_table_has_a_unit_or_a_link(given: dict[str, str]) -> None:
    with pytest.raises(PolicyError) as caught:
        PrivateTable(**given)  # type: ignore[arg-type]
    assert caught.value.code == "policy-table"


@pytest.mark.parametrize(
    ("tables", "code", "place"),
    [
        ({"orders": PrivateTable(link="c -> nobody.id")}, "policy-link", "tables.orders.link"),
        ({"orders": PrivateTable(link="c -> countries.id")}, "policy-link", "tables.orders.link"),
        ({"orders": PrivateTable(link="c -> orders.id")}, "policy-link", "tables.orders.link"),
        (
            {"orders": PrivateTable(link="c -> items.id"), "items": PrivateTable(link="o -> orders.id")},
            "policy-link",
            "tables.orders.link",
        ),
        (
            {
                "a": PrivateTable(link="o -> b.id"),
                "b": PrivateTable(link="o -> c.id"),
                "c": PrivateTable(link="o -> b.x"),
            },
            "policy-link",
            "tables.b.link",
        ),
        ({"orders": PrivateTable(None, ["Household_ID"], link=LINK)}, "policy-link", "tables.orders.columns"),
        (
            {"orders": PrivateTable(None, ["product"], link="customer_id -> customers.household_id")},
            "policy-columns",
            "tables.orders.columns",
        ),
        (
            {"orders": PrivateTable(link=LINK, one_value_per_unit=["household_id"])},
            "policy-columns",
            "tables.orders.one_value_per_unit",
        ),
    ],
)
def test_links_lead_to_a_privacy_unit_of_another_name(tables: dict[str, PrivateTable], code: str, place: str) -> None:
    with pytest.raises(PolicyError) as caught:
        Policy(Budget(1, 1e-6), {**tables, **CUSTOMERS})
    assert (caught.value.code, caught.value.place) == (code, place)
    assert caught.value.hint


def test_whose_rows_a_table_holds() -> None:
    tables = {
        "items": PrivateTable(link="order_id -> orders.order_id"),
        "orders": PrivateTable(link="customer_id -> MAIN.Customers.id"),
        "visits": PrivateTable(link="house -> customers.HOUSEHOLD_ID"),
        **CUSTOMERS,
    }
    policy = Policy(Budget(1, 1e-6), tables)
    assert pickle.loads(pickle.dumps(policy)) == policy
    owners = {name: str(find_owner(policy.tables, name)) for name in ("items", "orders", "visits", "customers")}
    assert owners == {
        "items": "customers.household_id via order_id -> orders.order_id, customer_id -> MAIN.Customers.id",
        "orders": "customers.household_id via customer_id -> MAIN.Customers.id",
        "visits": "house",
        "customers": "household_id",
    }


def test_columns_that_are_never_null_are_checked() -> None:
    assert PrivateTable("u", ["u", "Land"], not_null=["land", "u"]).not_null == ("land", "u")
    for given, code in [(["town"], "policy-columns"), (["u", "U"], "policy-columns"), ("land", "policy-type")]:
        with pytest.raises(PolicyError) as caught:
            PrivateTable("u", ["u", "land"], not_null=given)
        assert (caught.value.code, caught.value.place) == (code, "not_null")


def test_columns_of_one_value_per_unit_are_checked() -> None:
    assert PrivateTable("u").one_value_per_unit == ()
    assert PrivateTable("u", ["u", "Land"], one_value_per_unit=["land"]).one_value_per_unit == ("land",)
    assert PrivateTable("u", one_value_per_unit=("a", "b")).one_value_per_unit == ("a", "b")
    wrong: list[tuple[object, str]] = [
        (["u"], "policy-columns"),
        (["U"], "policy-columns"),
        (["town"], "policy-columns"),
        (["land", "LAND"], "policy-columns"),
        ([""], "policy-name"),
        ([3], "policy-type"),
        ("land", "policy-type"),
        ({"land": "VARCHAR"}, "policy-type"),
    ]
    for given, code in wrong:
        with pytest.raises(PolicyError) as caught:
            PrivateTable("u", ["u", "land"], one_value_per_unit=given)  # type: ignore[arg-type]
        assert caught.value.code == code
        assert caught.value.place == "one_value_per_unit"
        assert caught.value.hint
