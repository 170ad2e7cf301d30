"""Tables whose rows belong to a privacy unit through another table: sessions, from the policy to the ledger."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import pytest
from support.session_kit import filled, session_on, shared

import dpsql

CUSTOMERS = "CREATE TABLE customers AS SELECT i AS id, i // 3 AS household_id FROM range(9000) t(i)"
ORDERS = """
    CREATE TABLE orders AS SELECT i AS order_id, i % 9000 AS customer_id, 'p' || i % 2 AS product FROM range(18000) t(i)
"""
ITEMS = "CREATE TABLE items AS SELECT i AS order_id, 'x' || i % 3 AS what FROM range(18000) t(i)"
CUSTOMER = dpsql.PrivateTable("household_id")
ORDER = dpsql.PrivateTable(link="customer_id -> customers.id")
ITEM = dpsql.PrivateTable(link="order_id -> orders.order_id")
TOP = "SELECT product, COUNT(DISTINCT household_id) AS n FROM orders GROUP BY product TOP 2 PRIVATE WITH (fresh = true)"


def policy(**tables: dpsql.PrivateTable | dpsql.PublicTable) -> dpsql.Policy:
    return dpsql.Policy(dpsql.Budget(5, "1e-6"), tables)


def refused(connection: duckdb.DuckDBPyConnection, asked: dpsql.Policy) -> dpsql.PolicyError:
    with pytest.raises(dpsql.PolicyError) as caught:
        session_on(connection, asked)
    return caught.value


def test_orders_count_the_households_of_their_customers() -> None:
    session = session_on(shared(CUSTOMERS, ORDERS), policy(customers=CUSTOMER, orders=ORDER))
    answer = session.sql(TOP)
    assert {product for product, _ in answer.fetchall()} == {"p0", "p1"}
    assert all(abs(count - 3000) < 300 for _, count in answer.fetchall())
    assert "household_id of orders" in answer.statement()


def test_links_form_chains() -> None:
    session = session_on(shared(CUSTOMERS, ORDERS, ITEMS), policy(items=ITEM, customers=CUSTOMER, orders=ORDER))
    answer = session.sql("SELECT what, COUNT(DISTINCT household_id) AS n FROM items GROUP BY what TOP 3 PRIVATE")
    assert {what for what, _ in answer.fetchall()} == {"x0", "x1", "x2"}


def test_a_link_to_the_unit_itself_needs_no_unique_key() -> None:
    twice = filled(CUSTOMERS, "INSERT INTO customers FROM customers", ORDERS)
    tables = policy(customers=dpsql.PrivateTable("id"), orders=ORDER)
    session = session_on(twice, tables)
    by_the_customer = TOP.replace("household_id", "customer_id")
    assert "customers" not in session.explain(by_the_customer).engine_sql
    leaders = session.explain(by_the_customer.replace("WITH (", "WITH (mechanism = limited_domain, "))
    assert "JOIN" not in leaders.engine_sql
    with pytest.raises(dpsql.Refusal):
        session.sql(TOP)


@pytest.mark.parametrize("more", ["(7, 1)", "(7, 2)"])
def test_a_key_that_stands_twice_is_refused_and_not_told(more: str, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(
        "[budget]\nepsilon = 1\ndelta = 1e-6\n[tables.customers]\nprivacy_unit = 'household_id'\n"
        "[tables.orders]\nlink = 'customer_id -> customers.id'\n"
    )
    error = refused(filled(CUSTOMERS, f"INSERT INTO customers VALUES {more}", ORDERS), dpsql.Policy.from_toml(file))
    assert (error.code, error.place) == ("policy-link", "tables.orders.link (policy.toml, line 7)")
    assert "7" not in str(error).replace("line 7", "")


def test_keys_that_are_null_are_no_duplicates_and_own_nothing() -> None:
    connection = filled(
        CUSTOMERS,
        "INSERT INTO customers VALUES (NULL, 1), (NULL, 2)",
        ORDERS,
        "UPDATE orders SET customer_id = NULL WHERE product = 'p1'",
    )
    session = session_on(connection, policy(customers=CUSTOMER, orders=ORDER))
    answer = session.sql(TOP.replace("WITH (", "WITH (mechanism = limited_domain, "))
    assert [product for product, _ in answer.fetchall()] == ["p0"]


def test_text_keys_are_compared_by_their_bytes() -> None:
    connection = filled(
        "CREATE TABLE customers (id VARCHAR COLLATE NOCASE, household_id BIGINT)",
        "INSERT INTO customers VALUES ('a', 1), ('A', 2)",
        "CREATE TABLE orders (customer_id VARCHAR, product VARCHAR)",
    )
    session_on(connection, policy(customers=CUSTOMER, orders=ORDER)).close()


@pytest.mark.parametrize(
    ("tables", "code", "place"),
    [
        ({"orders": dpsql.PrivateTable(link="customer -> customers.id")}, "policy-no-column", "tables.orders.link"),
        ({"orders": dpsql.PrivateTable(link="customer_id -> customers.no")}, "policy-no-column", "tables.orders.link"),
        ({"orders": dpsql.PrivateTable(link="product -> customers.id")}, "policy-link", "tables.orders.link"),
        ({"items": dpsql.PrivateTable(link="order_id -> wide.order_id")}, "policy-link", "tables.wide.link"),
    ],
)
def test_what_the_columns_say_against_a_link(tables: dict[str, dpsql.PrivateTable], code: str, place: str) -> None:
    wide = "CREATE TABLE wide AS SELECT *, 1 AS Household_ID FROM orders"
    named = {"customers": CUSTOMER, **tables}
    if "items" in tables:
        named["wide"] = ORDER
    error = refused(filled(CUSTOMERS, ORDERS, ITEMS, wide), policy(**named))
    assert (error.code, error.place) == (code, place)


def test_a_column_of_the_units_name_can_be_left_out() -> None:
    connection = filled(CUSTOMERS, ORDERS, "ALTER TABLE orders ADD COLUMN household_id BIGINT DEFAULT 5")
    order = dpsql.PrivateTable(link="customer_id -> customers.id", columns=["product"])
    answer = session_on(connection, policy(customers=CUSTOMER, orders=order)).sql(TOP)
    assert all(count > 2000 for _, count in answer.fetchall())


def test_bounds_and_the_names_of_units_are_those_of_the_linked_table() -> None:
    order = dpsql.PrivateTable(link="customer_id -> customers.id", max_groups_contributed=1, min_units=10)
    session = session_on(shared(CUSTOMERS, ORDERS), policy(customers=CUSTOMER, orders=order))
    facts = dict(session.sql(f"EXPLAIN {TOP}").fetchall())
    assert facts["privacy unit"] == "household_id of orders"
    assert facts["groups per unit"] == "at most 1"
    shown = {row[0]: row[2] for row in session.sql("SHOW TABLES").fetchall()}
    assert shown == {"customers": "household_id", "orders": "household_id"}
    assert [row[0] for row in session.sql("DESCRIBE orders").fetchall() if row[2]] == ["household_id"]


def test_the_ledger_records_whose_rows_a_linked_table_holds(tmp_path: Path) -> None:
    connection, ledger = filled(CUSTOMERS, ORDERS, ITEMS), tmp_path / "ledger.sqlite"
    for unit in ("household_id", "id"):
        tables = policy(customers=dpsql.PrivateTable(unit), orders=ORDER, items=ITEM)
        dpsql.connect(connection, policy=tables, ledger=ledger).close()
    from dpsql.curator import read_history

    told = [event.body for event in read_history(ledger) if event.kind == "registered"]
    assert "customers.household_id via customer_id -> customers.id" in told[0]
    assert "customers.household_id via order_id -> orders.order_id, customer_id -> customers.id" in told[0]
    assert '"orders":"customer_id"' in told[1].replace(" ", "")


def test_a_key_that_comes_to_stand_twice_still_gives_a_row_to_one_unit() -> None:
    connection = filled(CUSTOMERS, ORDERS)
    session = session_on(connection, policy(customers=CUSTOMER, orders=ORDER))
    connection.execute("INSERT INTO customers SELECT id, 100000 + id FROM customers")
    answer = session.sql(TOP)
    assert all(abs(count - 3000) < 300 for _, count in answer.fetchall())


def test_check_says_by_which_link_rows_belong_to_their_unit(tmp_path: Path) -> None:
    from dpsql.curator import check_policy
    from dpsql.report.policy_text import describe_policy

    with closing(duckdb.connect(tmp_path / "shop.duckdb")) as connection:
        connection.execute(CUSTOMERS)
        connection.execute(ORDERS)
    asked = policy(customers=CUSTOMER, orders=ORDER)
    found = check_policy(asked, database=tmp_path / "shop.duckdb")
    told = " ".join(" ".join(describe_policy(found)).split())
    assert "all rows of the same household_id (customers.household_id via customer_id -> customers.id) together" in told
    assert [column.name for column in found.tables[1].columns or ()][-2:] == ["product", "household_id"]
    assert check_policy(asked).tables[1].link == "customers.household_id via customer_id -> customers.id"
    with closing(duckdb.connect(tmp_path / "shop.duckdb")) as connection:
        connection.execute("INSERT INTO customers VALUES (7, 1)")
    with pytest.raises(dpsql.PolicyError):
        check_policy(asked, database=tmp_path / "shop.duckdb")


def test_check_without_a_database_leaves_out_links_to_its_tables(tmp_path: Path) -> None:
    from dpsql.curator import check_policy

    (tmp_path / "orders.csv").write_text("customer_id,product\n1,a\n")
    columns = {"customer_id": "BIGINT", "product": "VARCHAR"}
    order = dpsql.PrivateTable(None, columns, link="customer_id -> customers.id", source=tmp_path / "orders.csv")
    assert [table.checked for table in check_policy(policy(customers=CUSTOMER, orders=order)).tables] == [False, False]


def test_tables_are_joined_by_the_key_of_a_link() -> None:
    tables = {"customers": CUSTOMER, "orders": ORDER, "items": ITEM}
    limits = dpsql.Limits(max_epsilon=20)
    session = session_on(
        shared(CUSTOMERS, ORDERS, ITEMS), dpsql.Policy(dpsql.Budget(50, "1e-2"), tables, limits=limits)
    )
    both = "SELECT what, COUNT(DISTINCT o.household_id) AS n FROM orders o JOIN items i {} GROUP BY what TOP 3 PRIVATE"
    rows = session.sql(both.format("USING (order_id)")).fetchall()
    assert {what for what, _ in rows} == {"x0", "x1", "x2"}
    assert all(abs(count - 3000) < 200 for _, count in rows)  # each household has 18 orders, of all kinds


@pytest.mark.parametrize(
    ("join", "hint"),
    [
        ("ON o.product = i.what", "ON o.order_id = i.order_id AND o.product = i.what,"),
        ("ON o.order_id + 0 = i.order_id", "ON o.order_id = i.order_id,"),
        ("ON o.order_id = i.order_id OR TRUE", "ON o.order_id = i.order_id,"),
    ],
)
def test_the_hint_of_another_join_names_the_key(join: str, hint: str) -> None:
    session = session_on(shared(CUSTOMERS, ORDERS, ITEMS), policy(items=ITEM, customers=CUSTOMER, orders=ORDER))
    with pytest.raises(dpsql.Refusal, match="join-private") as caught:
        session.sql(f"SELECT what FROM orders o JOIN items i {join} GROUP BY what TOP 3 PRIVATE")
    assert hint in str(caught.value.hint)


def test_the_hint_of_a_join_of_other_tables_keeps_its_condition() -> None:
    tables = policy(customers=CUSTOMER, likes=dpsql.PrivateTable("household_id"))
    likes = "CREATE TABLE likes AS SELECT i AS household_id, i % 7 AS id FROM range(3000) t(i)"
    session = session_on(shared(CUSTOMERS, likes), tables)
    with pytest.raises(dpsql.Refusal) as caught:
        session.sql("SELECT l.id FROM customers c JOIN likes l ON c.id = l.id GROUP BY l.id TOP 3 PRIVATE")
    assert "ON c.household_id = l.household_id AND c.id = l.id," in str(caught.value.hint)
