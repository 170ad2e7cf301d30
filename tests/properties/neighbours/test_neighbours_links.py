"""Drop one privacy unit from random tables that are linked to it: counts move by 1 at most, and in its groups only.

All rows of a unit are those that carry it, and those of linked tables that belong to it: whose key names a row of it.
Where a key stands twice, which a session refuses to begin with, its rows belong to the least of its units.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.fuzzing import examples
from support.sql_reference import Row, counts, find_moves, private, same

from dpsql.engines.duckdb.engine import DuckDBEngine
from dpsql.policy import Budget, Policy, PrivateTable, PublicTable
from dpsql.registration import build_catalog
from dpsql.sql.analysis.from_clause import find_owned_rows
from dpsql.sql.ir.catalog import Link
from dpsql.sql.ir.tree import Call, Derived, Expression, Joined, Relation, Scan
from dpsql.sql.rewrite.engine_query import Bound

CON = duckdb.connect()
CON.execute("""
    CREATE TABLE customers(id VARCHAR COLLATE NOCASE, household VARCHAR COLLATE NOCASE);
    CREATE TABLE orders(order_id BIGINT, customer_id VARCHAR, product VARCHAR);
    CREATE TABLE items(order_id BIGINT, what VARCHAR);
    CREATE TABLE kinds(product VARCHAR, kind VARCHAR);
    INSERT INTO kinds VALUES ('p', 'x'), ('p', 'y'), ('q', 'x'), (NULL, 'z');
""")
POLICY = Policy(
    Budget(1, "1e-6"),
    {
        "customers": PrivateTable("household"),
        "orders": PrivateTable(link="customer_id -> customers.id"),
        "items": PrivateTable(link="order_id -> orders.order_id"),
        "kinds": PublicTable(),
    },
)
with closing(DuckDBEngine.borrow(CON, dict.fromkeys(POLICY.tables))) as ENGINE:
    CATALOG = build_catalog(ENGINE, POLICY)
KEYS = [None, "a", "A", "b", "c"]
UNITS = [None, "h", "H", "i", "j"]
STATEMENTS = [
    "SELECT product FROM orders GROUP BY product TOP 9 PRIVATE",
    "SELECT customer_id FROM orders WHERE product <> 'q' GROUP BY customer_id TOP 9 PRIVATE",
    "SELECT kind FROM orders LEFT JOIN kinds USING (product) GROUP BY kind TOP 9 PRIVATE",
    "SELECT kind FROM kinds AS k JOIN orders AS o ON k.product = o.product GROUP BY kind TOP 9 PRIVATE",
    (
        "WITH o AS (SELECT household AS who, upper(product) AS p FROM orders) "
        "SELECT p, COUNT(DISTINCT who) AS n FROM o GROUP BY p TOP 9 PRIVATE"
    ),
    "SELECT what FROM items GROUP BY what TOP 9 PRIVATE",
    "SELECT what, COUNT(DISTINCT i.household) AS n FROM (SELECT * FROM items) AS i GROUP BY what TOP 9 PRIVATE",
    "SELECT product, what FROM orders AS o JOIN items AS i ON o.household = i.household GROUP BY ALL TOP 9 PRIVATE",
    "SELECT what, id FROM items AS i FULL JOIN customers AS c USING (household) GROUP BY ALL TOP 9 PRIVATE",
    "SELECT id FROM customers WHERE household NOT IN (SELECT household FROM items) GROUP BY id TOP 9 PRIVATE",
    (
        "SELECT what FROM items AS i WHERE NOT EXISTS (SELECT 1 FROM orders AS o WHERE o.household = i.household "
        "AND o.product = 'p' AND o.order_id <> i.order_id) GROUP BY what TOP 9 PRIVATE"
    ),
    (
        "SELECT n FROM (SELECT household, COUNT(*) AS n FROM (SELECT household, product AS k FROM orders EXCEPT "
        "SELECT household, what FROM items) AS e GROUP BY household) AS g GROUP BY n TOP 9 PRIVATE"
    ),
    (
        "SELECT k FROM (SELECT household, row_number() OVER (PARTITION BY household ORDER BY order_id) AS k "
        "FROM items) AS w GROUP BY k TOP 9 PRIVATE"
    ),
]
BY_KEY = [  # joined by the key of a link alone
    f"SELECT {keys} FROM {tables} GROUP BY ALL TOP 9 PRIVATE"
    for keys, tables in [
        ("product, what", "orders AS o JOIN items AS i ON o.order_id = i.order_id"),
        ("product, what", "orders JOIN items USING (order_id)"),
        ("product, what", "items AS i, orders AS o WHERE what = 'v' AND i.order_id = o.order_id"),
        ("product, what", "orders AS o LEFT JOIN items AS i ON o.order_id = i.order_id AND what = 'v'"),
        ("product, what", "items AS i RIGHT JOIN orders AS o ON i.order_id = o.order_id"),
        ("product, what", "items FULL JOIN orders USING (order_id)"),
        ("id, product", "customers AS c JOIN orders AS o ON c.id = o.customer_id"),
        ("id, product", "customers AS c FULL JOIN orders AS o ON c.id = o.customer_id"),
        (
            "id, product, what",
            "customers AS c LEFT JOIN orders AS o ON c.id = o.customer_id LEFT JOIN items AS i USING (order_id)",
        ),
        (
            "id, product, what",
            "customers AS c LEFT JOIN orders AS o ON c.id = o.customer_id JOIN items AS i USING (order_id)",
        ),
        (
            "id, product, what",
            "items AS i JOIN orders AS o USING (order_id) RIGHT JOIN customers AS c ON c.id = o.customer_id",
        ),
        ("i.what AS x, j.what AS y", "items AS i JOIN items AS j ON i.order_id = j.order_id"),
        ("o.product AS x, p.product AS y", "orders AS o LEFT JOIN orders AS p ON o.customer_id = p.customer_id"),
        ("product", "orders SEMI JOIN items USING (order_id)"),
        ("product", "orders AS o ANTI JOIN items AS i ON i.order_id = o.order_id AND what = 'v'"),
        ("product", "orders WHERE order_id IN (SELECT order_id FROM items WHERE what = 'v')"),
        ("product", "orders WHERE order_id NOT IN (SELECT order_id FROM items)"),
        ("what", "items WHERE order_id NOT IN (SELECT order_id FROM orders WHERE product = 'p')"),
        ("product", "orders AS o WHERE NOT EXISTS (SELECT 1 FROM items AS i WHERE i.order_id = o.order_id)"),
        (
            "id",
            (
                "customers AS c WHERE EXISTS (SELECT 1 FROM orders AS o JOIN items AS i USING (order_id) "
                "WHERE o.customer_id = c.id AND what = 'v')"
            ),
        ),
        (
            "product, n",
            "orders JOIN (SELECT household, order_id, COUNT(*) AS n FROM items GROUP BY ALL) AS i USING (order_id)",
        ),
        (
            "id, n",
            (
                "customers AS c JOIN (SELECT o.household, i.household AS other, o.customer_id, what AS n "
                "FROM orders AS o LEFT JOIN items AS i ON o.order_id = i.order_id) AS x ON c.household = x.household "
                "AND c.id = x.customer_id"
            ),
        ),
    ]
]
LEFT_OUT = [text for text in BY_KEY if " ANTI " in text or " NOT " in text]
STATEMENTS += BY_KEY
Tables = tuple[list[Row], list[Row], list[Row]]
CUSTOMERS = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(UNITS)), max_size=7)
ORDERS = st.lists(
    st.tuples(st.sampled_from([None, 1, 2, 3, 4]), st.sampled_from(KEYS), st.sampled_from([None, "p", "q"])), max_size=9
)
ITEMS = st.lists(st.tuples(st.sampled_from([None, 1, 2, 3, 4]), st.sampled_from(["v", "w"])), max_size=9)
TABLES = st.tuples(CUSTOMERS, ORDERS, ITEMS)
EXAMPLES = settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def least(rows: list[tuple[object, object]]) -> dict[object, object]:
    """Return the unit of every key: the least, by its bytes, that a row with this key has."""
    return {
        key: min((str(unit) for other, unit in rows if other == key and unit is not None), default=None)
        for key, _ in rows
        if key is not None
    }


def without(tables: Tables, unit: str, *, linked: bool = True) -> Tables:
    """Return the tables without all rows of a unit, or without those alone that carry it."""
    customers, orders, items = tables
    of_customer = least([(row[0], row[1]) for row in customers])
    of_order = least([(row[0], of_customer.get(row[1])) for row in orders])
    kept = [row for row in customers if row[1] != unit]
    if not linked:
        return kept, orders, items
    return (
        kept,
        [row for row in orders if of_customer.get(row[1]) != unit],
        [row for row in items if of_order.get(row[0]) != unit],
    )


def unique(tables: Tables) -> Tables:
    """Return the tables with the first row alone of those with one key."""
    customers, orders, items = tables
    once = [row for at, row in enumerate(customers) if row[0] not in [before[0] for before in customers[:at]]]
    single = [row for at, row in enumerate(orders) if row[0] not in [before[0] for before in orders[:at]]]
    return once, single, items


def counted(text: str, tables: Tables, bound: Bound | None = None) -> dict[Row, int]:
    for name, rows in zip(("customers", "orders", "items"), tables, strict=True):
        CON.execute(f"DELETE FROM {name}")
        for row in rows:
            CON.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", list(row))
    query = private(text, CATALOG)
    return counts(CON, query) if bound is None else counts(CON, query, bound)


@EXAMPLES
@given(st.sampled_from(STATEMENTS), TABLES, st.sampled_from(UNITS[1:]))
def test_dropping_a_unit_everywhere_moves_no_count_by_more_than_one(text: str, tables: Tables, unit: str) -> None:
    """Also where keys stand twice, which data that changes under a session may bring."""
    changes = find_moves(counted(text, tables), counted(text, without(tables, unit)))
    assert set(changes.values()) <= {0, 1}


@EXAMPLES
@given(st.sampled_from(STATEMENTS), TABLES, st.sampled_from(UNITS[1:]))
def test_what_a_unit_takes_with_it_are_its_own_groups(text: str, tables: Tables, unit: str) -> None:
    tables = unique(tables)
    customers, orders, items = tables
    alone = counted(text, ([row for row in customers if row[1] == unit], orders, items))
    changes = find_moves(counted(text, tables), counted(text, without(tables, unit)))
    assert {key for key, change in changes.items() if change} == set(alone)


@EXAMPLES
@given(st.sampled_from(STATEMENTS), TABLES, st.sampled_from(UNITS[1:]))
def test_rows_left_behind_by_their_unit_count_for_nobody(text: str, tables: Tables, unit: str) -> None:
    tables = unique(tables)
    assert counted(text, without(tables, unit, linked=False)) == counted(text, without(tables, unit))


@settings(EXAMPLES, max_examples=examples(60))
@given(st.sampled_from(STATEMENTS), TABLES, st.sampled_from(UNITS[1:]), st.integers(1, 2))
def test_under_a_bound_nobody_else_moves(text: str, tables: Tables, unit: str, groups: int) -> None:
    bound = Bound(groups, (5, 9))
    changes = find_moves(counted(text, tables, bound), counted(text, without(tables, unit), bound))
    assert set(changes.values()) <= {0, 1}
    assert sum(changes.values()) <= groups


@pytest.mark.parametrize("text", [text for text in STATEMENTS if "customers" not in text and text not in LEFT_OUT])
def test_of_keys_that_stand_twice_each_row_has_one_unit(text: str) -> None:
    """Many units share the one key: had each of them the row, dropping one with its rows would move all of them."""
    customers: list[Row] = [("a", unit) for unit in ("i", "H", "h", "j")]
    tables: Tables = (customers, [(1, "a", "p"), (1, "a", "q")], [(1, "v")])
    before, after = counted(text, tables), counted(text, without(tables, "H"))
    assert set(before.values()) == {1}
    assert after == {}


@pytest.mark.mutant
def test_a_row_that_each_unit_of_its_key_has_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join with all units of a key: one unit that leaves with its rows takes those of the others away."""

    def join(scan: Scan, link: Link, *, number: Callable[[], int]) -> tuple[Relation, Expression]:
        found, unit = find_owned_rows(scan, link, number=number)
        assert isinstance(found, Joined)
        assert isinstance(found.right, Derived)
        key, least = found.right.outputs
        assert isinstance(least, Call)
        return replace(found, right=replace(found.right, outputs=(key, *least.arguments), grouping="")), unit

    monkeypatch.setattr("dpsql.sql.analysis.from_clause.find_owned_rows", join)
    customers: list[Row] = [("a", unit) for unit in ("i", "H", "h", "j")]
    tables: Tables = (customers, [(1, "a", "p")], [])
    before, after = (counted(STATEMENTS[0], each) for each in (tables, without(tables, "H")))
    assert (set(before.values()), after) == ({4}, {})


@pytest.mark.parametrize("text", BY_KEY)
def test_a_join_by_the_key_of_a_link_is_what_its_sql_says(text: str) -> None:
    """Where keys are unique, and each row has a unit, the units of the groups are those of plain SQL."""
    customers: list[Row] = [("a", "h"), ("b", "h"), ("c", "i"), ("d", "j")]
    orders: list[Row] = [(1, "a", "p"), (2, "a", "q"), (3, "b", "p"), (4, "c", "p"), (5, "c", "q")]
    items: list[Row] = [(1, "v"), (1, "w"), (2, "v"), (4, "v"), (4, "w")]
    found = counted(text, (customers, orders, items))
    CON.execute(
        "CREATE OR REPLACE TEMP VIEW owned_orders AS SELECT o.*, household FROM orders o "
        "JOIN customers c ON c.id = o.customer_id"
    )
    CON.execute(
        "CREATE OR REPLACE TEMP VIEW owned_items AS SELECT i.*, household FROM items i "
        "JOIN owned_orders o USING (order_id)"
    )
    plain = re.sub(
        r"(FROM|JOIN|,) (orders|items)( AS \w)?\b", r"\1 (FROM owned_\2)\3", text.replace("TOP 9 PRIVATE", "")
    )
    plain = re.sub(r"\(FROM owned_(\w+)\)(?! AS)", r"(FROM owned_\1) AS \1", plain)
    assert set(found) == {same(row) for row in CON.execute(plain).fetchall()}


def test_keys_and_units_that_a_collation_confuses_are_two() -> None:
    text = STATEMENTS[0]
    tables: Tables = ([("a", "h"), ("A", "H")], [(1, "a", "p"), (2, "A", "q")], [])
    before = counted(text, tables)
    assert [set(before), set(before.values())] == [{same(["p"]), same(["q"])}, {1}]
    assert set(counted(text, without(tables, "h"))) == {same(["q"])}
    assert set(counted(text, without(tables, "H"))) == {same(["p"])}
    owners = "SELECT household FROM orders GROUP BY household TOP 9 PRIVATE"
    for customers in ([("a", "h"), ("a", "H")], [("a", "H"), ("a", "h")]):  # of two units, the least by its bytes
        assert set(counted(owners, (customers, [(1, "a", "p")], []))) == {same(["H"])}


def test_a_linking_column_of_another_collation_is_compared_by_its_bytes() -> None:
    con = duckdb.connect()
    con.execute("CREATE TABLE customers(id VARCHAR, household BIGINT); INSERT INTO customers VALUES ('a', 1), ('A', 2)")
    con.execute("CREATE TABLE orders(customer_id VARCHAR COLLATE NOCASE, product VARCHAR)")
    con.execute("INSERT INTO orders VALUES ('A', 'p')")
    linked = {"customers": PrivateTable("household"), "orders": PrivateTable(link="customer_id -> customers.id")}
    with closing(DuckDBEngine.borrow(con, dict.fromkeys(linked))) as engine:
        catalog = build_catalog(engine, Policy(Budget(1, "1e-6"), linked))
    query = private("SELECT product, household FROM orders GROUP BY ALL TOP 9 PRIVATE", catalog)
    assert counts(con, query) == {same(["p", 2]): 1}
