"""What names and keys say of a privacy unit: decided only where one column is clear."""

from __future__ import annotations

import pytest

from dpsql.policy.name_evidence import find_identifier, find_people, judge_name
from dpsql.policy.starter import Decision, FoundColumn, FoundTable, decide, quote


def table(name: str, columns: str, *, key: str = "", unique: str = "", **leads: str) -> FoundTable:
    found = []
    for column in columns.split(", "):
        spelled, _, type_ = column.partition(" ")
        may_be_unit = type_ not in {"DOUBLE", "VARCHAR[]"}
        found.append(FoundColumn(spelled, type_ or "BIGINT", type_ != "VARCHAR[]", may_be_unit))
    return FoundTable(
        name, tuple(found), primary_key=tuple(key.split()), unique=frozenset(unique.split()), leads_to=leads
    )


def decided(*tables: FoundTable) -> Decision:
    """Return the decision for the last table."""
    return decide(tables)[-1]


USERS = table("users", "id, email VARCHAR", key="id")
CUSTOMERS = table("customers", "customer_id", key="customer_id")
STAFF = table("employees", "employee_id", key="employee_id")


@pytest.mark.parametrize(
    ("last", "unit"),
    [
        (table("reads", "user_id, article VARCHAR"), "user_id"),
        (table("reads", "UserID UUID, article VARCHAR"), "UserID"),
        (table("visits", "visitorId VARCHAR, device_id, session_id"), "visitorId"),
        (table("reads", "u, article VARCHAR", u="users"), "u"),
        (table("users", "id, email VARCHAR", key="id"), "id"),
        (table("people", "code, city VARCHAR", key="code"), "code"),
        (table("employees", "id, manager_id", key="id", manager_id="employees"), "id"),
        (table("patients", "patient_id, doctor_id", key="patient_id", doctor_id="doctors"), "patient_id"),
        (table("orders", "order_id, customer_id", key="order_id"), "customer_id"),
        (table("orders", "customer_id, seller_id"), "customer_id"),
        (table("t", "cust_no, id", key="id"), "cust_no"),
        (table("t", "user_id, member BOOLEAN, customer DATE"), "user_id"),
    ],
)
def test_one_clear_column_is_the_unit(last: FoundTable, unit: str) -> None:
    decision = decided(USERS, STAFF, table("doctors", "id", key="id"), last)
    assert decision.unit is not None, decision
    assert decision.unit.column.name == unit
    assert decision.unit.reasons
    assert all(other.column.name != unit for other in decision.others)


@pytest.mark.parametrize(
    ("last", "others", "question"),
    [
        (table("t", "user_id, customer_id"), {"user_id", "customer_id"}, "2 columns could be"),
        (table("t", "user_id_1, user_id_2"), {"user_id_1", "user_id_2"}, "2 columns could be"),
        (table("t", "a, b", a="users", b="users"), {"a", "b"}, "2 columns could be"),
        (table("users", "id, user_id", key="id"), {"id", "user_id"}, "2 columns could be"),
        (table("customers", "id, user_id", key="id", user_id="users"), {"id", "user_id"}, "2 columns could be"),
        (table("accounts", "id, owner", key="id", owner="users"), {"id", "owner"}, "2 columns could be"),
        (table("t", "sender_id, recipient_id"), {"sender_id", "recipient_id"}, "Only weak candidates"),
        (table("t", "author_id"), {"author_id"}, "Only weak candidates"),
        (table("t", "referrer_user_id"), {"referrer_user_id"}, "Only weak candidates"),
        (table("t", "session_id, device_id"), {"session_id", "device_id"}, "Only weak candidates"),
        (table("t", "email VARCHAR"), {"email"}, "Only weak candidates"),
        (table("t", "created_by VARCHAR"), {"created_by"}, "Only weak candidates"),
        (table("users", "id, name VARCHAR"), {"id"}, "Only weak candidates"),
        (table("t", "user_id DOUBLE"), {"user_id"}, "a type that cannot be one"),
        (table("t", "user VARCHAR[]"), {"user"}, "a type that cannot be one"),
        (table("t", "user_id DOUBLE, customer_id"), {"user_id", "customer_id"}, "2 columns could be"),
        (table("t", "id, order_id, created_at TIMESTAMP", key="id"), set(), "No column looks like"),
        (table("user_events", "id", key="id"), set(), "No column looks like"),
        (table("t", "is_member BOOLEAN, member BOOLEAN, n_users, active_users, user DATE"), set(), "No column looks"),
        (table("users", "id, tenant", key="id tenant"), {"id"}, "Only weak candidates"),
    ],
)
def test_what_is_not_clear_is_left_to_the_curator(last: FoundTable, others: set[str], question: str) -> None:
    decision = decided(table("users", "id", key="id"), last) if last.name != "users" else decided(last)
    assert decision.unit is None
    assert {candidate.column.name for candidate in decision.others} == others
    assert question in decision.open_question
    assert all(candidate.reasons for candidate in decision.others)


@pytest.mark.parametrize(
    ("column", "reason"),
    [("user_id DOUBLE", "but a DOUBLE cannot be a unit"), ("user_id VARCHAR[]", "but dpsql does not read VARCHAR[]")],
)
def test_a_type_that_cannot_be_a_unit_is_named(column: str, reason: str) -> None:
    (candidate,) = decided(table("t", column)).others
    assert reason in candidate.reasons


def test_rows_that_belong_to_somebody_through_other_tables() -> None:
    orders = table("orders", "order_id, customer_id", key="order_id", customer_id="customers")
    items = table("items", "item_id, order_id", key="item_id", order_id="orders")
    refunds = table("refunds", "item_id", item_id="items")
    *_, of_items, of_refunds = decide((CUSTOMERS, orders, items, refunds))
    for decision, way in ((of_items, "order_id"), (of_refunds, "item_id")):
        assert (decision.unit, decision.others, decision.through) == (None, (), way)
        assert "units of another table" in decision.open_question


def test_a_long_chain_of_tables_is_followed() -> None:
    chain = [table(f"t{number}", "x", x=f"t{number + 1}") for number in range(1200)]
    *linked, last = decide([*chain, table("t1200", "user_id")])
    assert last.unit is not None
    assert {decision.through for decision in linked} == {"x"}


def test_tables_that_lead_to_each_other_or_nowhere_end() -> None:
    first, second = table("a", "x", x="b"), table("b", "y", y="a")
    assert decided(first, second, table("c", "z", z="nowhere")).through is None
    assert decide((first, second))[0].through is None


def test_keys_and_shared_names_are_reasons() -> None:
    decision = decided(CUSTOMERS, table("cards", "customer_id", unique="customer_id", customer_id="customers"))
    assert decision.unit is not None
    assert decision.unit.reasons == (
        "named like the id of a customer",
        "foreign key to customers, a table of people",
        "unique: one row for each unit",
        "the same name in 1 other table",
    )


@pytest.mark.parametrize(
    "column", "id uuid order_id created_at user_agent username_count user_type is_user page".split()
)
def test_names_that_name_nobody(column: str) -> None:
    assert judge_name(column) is None


@pytest.mark.parametrize("column", ["", "_", "___", "1", "é", "\n", "漢字", "id_id", "ID", "no"])
def test_odd_names_say_nothing(column: str) -> None:
    assert judge_name(column) is None
    assert find_identifier(column) is None
    assert find_people(column) is None


@pytest.mark.parametrize(
    ("column", "looks"),
    [
        ("email", "an e-mail address"),
        ("E-Mail", "an e-mail address"),
        ("first_name", "a name"),
        ("ipAddress", "an address"),
        ("client_ip", "an internet address"),
        ("mobile_phone", "a phone number"),
        ("ssn", "an official number"),
        ("date_of_birth", "a date of birth"),
        ("comments", "free text"),
        ("product_name", None),
        ("shipping", None),
        ("zipper", None),
    ],
)
def test_direct_identifiers(column: str, looks: str | None) -> None:
    assert find_identifier(column) == looks


def test_quoting_leaves_one_printable_line() -> None:
    every = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x11000), 0x1F600, 0xE0001, 0x10FFFF)))
    assert quote(every).isprintable()
