"""What the ledger in PostgreSQL promises beyond the contract: it stays, hosts share it, and a schema is one ledger."""

from __future__ import annotations

import json
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from fractions import Fraction

import psycopg
import pytest
from support.ledger_kit import ALICE, ASK, BUDGET, ITEM, TOTAL, code_of
from support.postgres_kit import fresh_schema, server
from support.postgres_ledger_kit import Place, opened, recipe

from dpsql.accounting import ApproximateDP, BudgetState, BudgetVector, Certificate, CertificateTerms
from dpsql.errors import Error, LedgerError, PolicyError, UsageError
from dpsql.ledger import Division, Request
from dpsql.ledger import postgres_server as tables
from dpsql.ledger.postgres_ledger import PostgresLedger, verify
from dpsql.ledger.postgres_server import because
from dpsql.ledger.record import TableContent
from dpsql.quantities import Delta, Epsilon, Rho

# what stays


def test_everything_of_a_rich_ledger_is_there_after_reopening(rich: Place) -> None:
    with closing(PostgresLedger.open(rich.url)) as ledger:
        assert ledger.durable
        assert (ledger.budget, ledger.total, ledger.data_version) == (BUDGET, TOTAL, 1)
        assert ledger.state("alice") == BudgetState(Fraction("0.5"), Fraction("1e-9"), Fraction(0))
        assert ledger.state() == BudgetState(Fraction("0.5"), Fraction("3e-9"), Fraction(1))
        kinds = "created registered reserved settled reserved bumped settled granted reserved".split()
        events = list(ledger.events())
        assert [event.kind for event in events] == kinds
    verified = verify(rich.url)
    assert (verified.events, verified.head) == (9, events[-1].chain)
    assert rich.rows("SELECT * FROM answers ORDER BY entry") == [(3, b"an answer"), (5, b"another")]
    numbers = {"reserved_rho": "1/1", "spent_delta": "3/1000000000", "spent_rho": "1/2"}
    assert json.loads(dict(rich.rows("SELECT holder, body FROM balances"))['"total"']) == numbers


def test_two_openings_share_the_budget_and_see_a_grant(place: Place) -> None:
    more, total = BudgetVector(60, "2e-6"), ApproximateDP(Epsilon(2), Delta("3e-6"))
    with opened(place.url) as one, opened(place.url) as other:
        one.reserve(Request("a", BudgetVector(30, 0))).settle(Fraction(20), "d")
        other.reserve(Request("b", BudgetVector(30, 0)))
        assert one.state() == other.state() == BudgetState(Fraction(20), Fraction(0), Fraction(30))
        with pytest.raises(Error, match="budget-exceeded"):
            one.reserve(ASK)
        other.grant(more, total, note="more")
        one.reserve(ASK)
        assert (one.budget, one.total) == (more, total)
    assert code_of(lambda: PostgresLedger(place.url, BUDGET, total=TOTAL)) == "ledger-budget"


def test_ledgers_in_two_schemas_of_one_database_do_not_mix(place: Place) -> None:
    other = fresh_schema()
    with opened(place.url) as one, opened(server().url(other)) as two:
        one.reserve(Request("q", BudgetVector(50, 0), key="key")).settle(Fraction(50), "d", answer=b"of one")
        two.reserve(ASK)
        assert two.state().reserved == Fraction(1)
        assert two.stored("key", None) is None
        assert one._terms.data_set != two._terms.data_set
    assert verify(place.url).events == 3
    assert verify(server().url(other)).events == 2


def test_an_address_without_a_schema_names_the_usual_one() -> None:
    url = server().url("").replace("&schema=", "")
    assert code_of(lambda: verify(url)) == "ledger-missing"
    try:
        with opened(url) as ledger:
            ledger.reserve(ASK)
        assert verify(server().url("dpsql_ledger")).events == 2
    finally:
        server().run("DROP SCHEMA IF EXISTS dpsql_ledger CASCADE")


def test_a_ledger_that_is_not_there_is_not_made_without_terms(place: Place) -> None:
    assert code_of(lambda: PostgresLedger.open(place.url)) == "ledger-missing"
    assert code_of(lambda: verify(place.url)) == "ledger-missing"
    assert server().rows(f"SELECT 1 FROM pg_namespace WHERE nspname = '{place.schema}'") == []


def test_threads_that_make_a_ledger_together_make_one(place: Place) -> None:
    together = threading.Barrier(8)

    def make() -> int:
        together.wait()
        with opened(place.url) as ledger:
            ledger.reserve(ASK)
            return len(ledger.entries())

    with ThreadPoolExecutor(8) as threads:
        counts = [threads.submit(make) for _ in range(8)]
        assert max(count.result(timeout=60) for count in counts) == 8
    assert verify(place.url).events == 9


def test_a_number_too_long_to_keep_is_refused_uncharged(place: Place) -> None:
    with opened(place.url) as ledger:
        with pytest.raises(UsageError, match="number-too-long"):
            ledger.reserve(Request("q", BudgetVector(Fraction(1, 10**400), 0)))
        assert ledger.state() == BudgetState()
        assert ledger.entries() == ()


# what is refused


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET at = at",
        "UPDATE events SET at = at WHERE false",
        "DELETE FROM events",
        "TRUNCATE events",
        "INSERT INTO events VALUES (11, '', '', '', '')",
        "INSERT INTO events VALUES (0, '', '', '', '')",
        "INSERT INTO events SELECT * FROM events ON CONFLICT (seq) DO UPDATE SET at = ''",
        "UPDATE answers SET content = ''",
        "DELETE FROM answers",
        "TRUNCATE answers",
        "DELETE FROM terms",
        "DELETE FROM balances",
        "TRUNCATE terms, balances",
    ],
)
def test_events_and_answers_only_grow_even_for_their_owner(rich: Place, statement: str) -> None:
    with pytest.raises(psycopg.errors.RaiseException):
        rich.run(statement)
    assert verify(rich.url).events == 9


CHANGES = {
    "ledger-damaged": [
        "DROP TRIGGER events_stay ON events",
        "ALTER TABLE events DISABLE TRIGGER events_follow",
        "ALTER TABLE answers ENABLE ALWAYS TRIGGER answers_stay",
        "CREATE OR REPLACE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "CREATE TRIGGER more BEFORE INSERT ON balances FOR EACH ROW EXECUTE FUNCTION stay()",
        "CREATE RULE nothing AS ON INSERT TO answers DO INSTEAD NOTHING",
        "ALTER TABLE events SET UNLOGGED",
        "ALTER TABLE events ENABLE ROW LEVEL SECURITY",
        "DROP INDEX settled_once",
        "CREATE TABLE more (i integer)",
        "ALTER TABLE answers ADD more integer",
        "UPDATE terms SET body = '{}'",
        "UPDATE terms SET body = 'no json'",
        "UPDATE balances SET body = '{}'",
        "UPDATE balances SET body = 'no json'",
        "UPDATE balances SET body = replace(body, '1/2', '-1/2')",
    ],
    "ledger-newer": ["UPDATE terms SET version = 6", "UPDATE terms SET version = 6; CREATE TABLE more (i integer)"],
    "not-a-ledger": ["ALTER TABLE terms RENAME TO terms_of_mine", "ALTER TABLE terms RENAME version TO other"],
}


@pytest.mark.parametrize(("code", "change"), [(code, change) for code, some in CHANGES.items() for change in some])
def test_tables_that_are_not_as_they_were_made_are_refused(rich: Place, code: str, change: str) -> None:
    rich.run(change)
    for act in (verify, PostgresLedger.open, lambda url: PostgresLedger(url, BUDGET, total=TOTAL)):
        assert code_of(lambda act=act: act(rich.url)) == code


def test_a_schema_of_something_else_is_left_alone(place: Place) -> None:
    server().run(f"CREATE SCHEMA {place.schema}", f"CREATE TABLE {place.schema}.events (i integer)")
    assert code_of(lambda: PostgresLedger(place.url, BUDGET, total=TOTAL)) == "not-a-ledger"
    assert code_of(lambda: verify(place.url)) == "not-a-ledger"
    assert place.rows("SELECT * FROM events") == []


def test_a_ledger_that_a_newer_dpsql_took_over_while_it_is_open_is_not_written(rich: Place) -> None:
    with closing(PostgresLedger.open(rich.url)) as ledger:
        rich.run("UPDATE terms SET version = 6")
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-newer"


CELLS = ["events.seq", "events.at", "events.kind", "events.body", "events.chain", "answers.entry", "answers.content"]
CELLS += ["terms.body", "balances.holder", "balances.body"]
KEYS = {"events": "seq", "answers": "entry", "terms": "one", "balances": "holder"}
OTHER = {"seq": "seq + 1000", "entry": "entry + 1000", "content": "content || '\\x00'"}
FOUND = {"ledger-tampered", "ledger-damaged"}


def other_cell(column: str) -> str:
    """Return SQL that changes a cell into something that looks as right as it can."""
    if column != "body":
        return OTHER.get(column, f"{column} || ' '")
    body = r"regexp_replace(replace(replace(body, 'monday', 'sunday'), 'user_id', 'user'), '\m1/', '2/', 'g')"
    return f"CASE WHEN {body} <> body THEN {body} ELSE replace(body, 'd', 'e') END"


@pytest.mark.parametrize("cell", CELLS)
def test_every_cell_that_is_changed_is_found(rich: Place, cell: str) -> None:
    table, _, column = cell.partition(".")
    rows = rich.rows(f"SELECT * FROM {table}")
    assert rows
    rich.run(f"CREATE TABLE public.kept AS SELECT * FROM {table}")
    try:
        for number in range(len(rows)):
            which = f"{KEYS[table]} = (SELECT {KEYS[table]} FROM public.kept ORDER BY 1 LIMIT 1 OFFSET {number})"
            rich.tamper(f"UPDATE {table} SET {column} = {other_cell(column)} WHERE {which}")
            with pytest.raises(LedgerError) as caught:
                verify(rich.url)
            assert caught.value.code in FOUND
            if table == "events":
                assert f"event {number + 1} does not follow" in caught.value.reason
            if table != "answers":
                assert code_of(lambda: PostgresLedger.open(rich.url)) in FOUND
            rich.tamper(f"DELETE FROM {table}", f"INSERT INTO {table} SELECT * FROM public.kept")
    finally:
        server().run("DROP TABLE public.kept")
    assert verify(rich.url).events == 9


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM events WHERE seq = 9",
        "DELETE FROM events WHERE seq = 4",
        "DELETE FROM events",
        "DELETE FROM balances WHERE holder LIKE '%alice%'",
        "DELETE FROM balances",
        "INSERT INTO balances SELECT '\"account bob\"', body FROM balances LIMIT 1",
        "INSERT INTO events SELECT 10, at, kind, body, chain FROM events WHERE seq = 9",
        "DELETE FROM terms",
    ],
)
def test_a_row_too_few_or_too_many_is_found(rich: Place, change: str) -> None:
    rich.tamper(change)
    assert code_of(lambda: verify(rich.url)) in FOUND
    assert code_of(lambda: PostgresLedger.open(rich.url)) in FOUND


def test_a_changed_answer_is_never_given_out(rich: Place) -> None:
    with closing(PostgresLedger.open(rich.url)) as ledger:
        ledger.reserve(Request("q", ITEM, key="new")).settle(Fraction(0), "d", answer=b"what was released")
        for change in ("UPDATE answers SET content = ''", "DELETE FROM answers"):
            rich.tamper(change)
            assert code_of(lambda: ledger.stored("new", None)) == "ledger-tampered"
            assert code_of(lambda: verify(rich.url)) == "ledger-tampered"


def test_a_ledger_that_falls_behind_what_was_seen_is_written_no_more(place: Place) -> None:
    """As after the restore of a backup: only those who saw what is missing know."""
    with opened(place.url) as ledger:
        ledger.reserve(ASK)
        place.run("CREATE TABLE public.copy_of_balances AS SELECT * FROM balances")
        held = ledger.reserve(ASK)
        place.tamper(
            "DELETE FROM events WHERE seq > 2",
            "DELETE FROM balances",
            "INSERT INTO balances SELECT * FROM public.copy_of_balances",
            "DROP TABLE public.copy_of_balances",
        )
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-rolled-back"
        assert code_of(lambda: held.settle(Fraction(0), "d")) == "ledger-rolled-back"
    assert verify(place.url).events == 2


def test_another_ledger_in_its_place_is_not_written(place: Place) -> None:
    other = fresh_schema()
    with opened(place.url) as ledger, opened(server().url(other)):
        ledger.reserve(ASK)
        server().run(f"DROP SCHEMA {place.schema} CASCADE")
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-missing"
        server().run(f"ALTER SCHEMA {other} RENAME TO {place.schema}")
        assert code_of(lambda: ledger.reserve(ASK)) == "ledger-rolled-back"


# rights


def test_the_role_of_the_documentation_may_serve_analysts_and_no_more(rich: Place, role: str) -> None:
    server().run(*recipe(rich.schema, role))
    url = server().url(rich.schema, role)
    with opened(url) as ledger:
        ledger.register({"likes": "user_id"})
        held = ledger.reserve(Request("q", ITEM, ALICE, "mine"))
        held.settle(Fraction("0.25"), "d", answer=b"mine")
        assert ledger.stored("mine", "alice") == b"mine"
        assert ledger.state("alice").spent == Fraction("0.75")
        assert code_of(lambda: ledger.grant(BudgetVector(60, "1e-6"), TOTAL, note="n")) == "ledger-read-only"
        assert code_of(lambda: ledger.bump("n")) == "ledger-read-only"
        assert ledger.budget == BUDGET
    assert verify(url).events == 12
    forbidden = [
        "UPDATE events SET at = ''",
        "DELETE FROM events",
        "TRUNCATE events",
        "DELETE FROM answers",
        "UPDATE answers SET content = ''",
        "DELETE FROM balances",
        "UPDATE balances SET holder = ''",
        "UPDATE terms SET body = ''",
        "INSERT INTO terms VALUES (1, 1, '')",
        "DELETE FROM terms",
        "DROP TRIGGER events_stay ON events",
        "CREATE TABLE more (i integer)",
        "SET session_replication_role = replica",
    ]
    for statement in forbidden:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            server().run(f"SET ROLE {role}", f"SET search_path = {rich.schema}", statement)


def test_a_role_that_may_change_the_terms_need_own_nothing(rich: Place, role: str) -> None:
    server().run(*recipe(rich.schema, role), f"GRANT UPDATE (body) ON {rich.schema}.terms TO {role}")
    url = server().url(rich.schema, role)
    with opened(url) as ledger:
        ledger.grant(BudgetVector(60, "1e-6"), TOTAL, note="more")
        assert ledger.bump("tuesday") == 2
        assert ledger.budget.rho == Rho(60)
    assert verify(url).events == 11


def test_the_owner_takes_a_ledger_over_for_stored_tables_and_roles_use_them(rich: Place, role: str) -> None:
    server().run(*recipe(rich.schema, role))
    url, content = server().url(rich.schema, role), TableContent("SELECT 1", b"rows", "a question")
    with closing(PostgresLedger.open(url)) as ledger:
        assert code_of(lambda: ledger.name_answer("weekly", content, account="ana")) == "ledger-older"
    with closing(PostgresLedger.open(rich.url)) as ledger:
        ledger.publish("monthly", content, account=None)
    assert rich.rows("SELECT version FROM terms") == [(tables.VERSION,)]
    with closing(PostgresLedger.open(url)) as ledger:
        ledger.name_answer("weekly", content, account="ana")
        assert [ledger.read_table(each.number) for each in ledger.tables()[1]] == [content, content]
    verify(rich.url)


def test_the_owner_takes_a_ledger_over_for_budgets_of_values_and_roles_use_them(rich: Place, role: str) -> None:
    server().run(*recipe(rich.schema, role))
    url, division = server().url(rich.schema, role), Division("rule", "data")
    with closing(PostgresLedger.open(url)) as ledger:
        assert code_of(lambda: ledger.divide(division)) == "ledger-older"
    with closing(PostgresLedger.open(rich.url)) as ledger:
        ledger.divide(division)
    assert rich.rows("SELECT version FROM terms") == [(tables.DIVISIONS,)]
    with closing(PostgresLedger.open(url)) as ledger:
        ledger.divide(division)
        ledger.reserve(replace(ASK, values=("a",), division=division))
        assert list(ledger.states()) == ["a"]
    verify(rich.url)


def test_a_role_that_only_reads_may_verify_and_not_open(rich: Place, role: str) -> None:
    url = server().url(rich.schema, role)
    assert code_of(lambda: verify(url)) == "ledger-missing"
    assert code_of(lambda: PostgresLedger.open(url)) == "ledger-missing"
    server().run(f"GRANT USAGE ON SCHEMA {rich.schema} TO {role}")
    assert code_of(lambda: verify(url)) == "ledger-read-only"
    server().run(f"GRANT SELECT ON ALL TABLES IN SCHEMA {rich.schema} TO {role}")
    assert verify(url).events == 9
    assert code_of(lambda: PostgresLedger.open(url)) == "ledger-read-only"
    assert code_of(lambda: PostgresLedger(url, BUDGET, total=TOTAL)) == "ledger-read-only"


def test_a_role_that_may_make_no_schema_uses_one_that_was_made_for_it(place: Place, role: str) -> None:
    url = server().url(place.schema, role)
    assert code_of(lambda: PostgresLedger(url, BUDGET, total=TOTAL)) == "ledger-read-only"
    server().run(f"CREATE SCHEMA {place.schema} AUTHORIZATION {role}")
    with opened(url) as ledger:
        ledger.reserve(ASK)
    assert verify(url).events == 2


def test_transactions_that_are_read_only_by_default_are_refused(rich: Place) -> None:
    url = server().url(rich.schema, options="-c%20default_transaction_read_only%3Don")
    assert code_of(lambda: PostgresLedger.open(url)) == "ledger-read-only"
    assert verify(url).events == 9


def test_every_commit_is_flushed_whatever_the_role_prefers(place: Place) -> None:
    with (
        opened(server().url(place.schema, options="-c%20synchronous_commit%3Doff")) as ledger,
        ledger._writing() as book,
    ):
        connection = book._connection
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("read committed",)


# what is not told

SECRET = "pa55word"
ADDRESSES = [
    f"postgresql://tester:{SECRET}@/postgres?host=/nowhere",
    f"postgresql://tester@/postgres?host=/nowhere&password={SECRET}",
    f"postgresql://tester:%zz{SECRET}@/postgres?host=/nowhere",
    f"postgresql://tester@/postgres?host=/nowhere&nonsense={SECRET}",
    f"postgresql://localhost:1/postgres?password={SECRET}",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_is_in_no_error(address: str) -> None:
    for act in (verify, PostgresLedger.open, lambda url: PostgresLedger(url, BUDGET, total=TOTAL)):
        with pytest.raises(LedgerError) as caught:
            act(address)
        assert caught.value.code == "ledger-unreachable"
        assert SECRET not in "".join(traceback.format_exception(caught.value)).replace(repr(address), "")


@pytest.mark.parametrize("address", ["postgresql://a:b@c@d/e", "mysql://h/d", "postgresql://h/d?schema=A"])
def test_an_address_that_cannot_be_read_is_refused(address: str) -> None:
    for act in (verify, PostgresLedger.open):
        with pytest.raises(PolicyError, match="policy-url"):
            act(address)


def test_a_ledger_tells_no_password(rich: Place) -> None:
    url = rich.url.replace("tester@", f"tester:{SECRET}@")
    with closing(PostgresLedger.open(url)) as ledger:
        ledger.reserve(ASK)
        assert SECRET not in repr(ledger) + repr(vars(ledger))


@pytest.mark.parametrize(
    ("state", "code"),
    [
        ("53100", "ledger-disk-full"),
        ("53300", "ledger-unreachable"),
        ("57P01", "ledger-unreachable"),
        ("40P01", "ledger-busy"),
        ("XX001", "ledger-damaged"),
        ("22012", "ledger-failed"),
        ("53200", "ledger-failed"),
    ],
)
def test_errors_of_the_server_have_codes_of_ours(state: str, code: str) -> None:
    def fail() -> None:
        raise because(psycopg.errors.lookup(state)(SECRET))

    assert code_of(fail) == code


FIXED = CertificateTerms(Certificate.optimal, Epsilon("0.03"))


@pytest.mark.parametrize(("certified", "version"), [(CertificateTerms(), 1), (FIXED, 2)])
def test_a_ledger_of_an_earlier_version_is_raised_by_a_role_that_may(
    place: Place, monkeypatch: pytest.MonkeyPatch, certified: CertificateTerms, version: int
) -> None:
    budget = replace(BUDGET, certificate=certified.certificate)
    PostgresLedger(place.url, budget, total=TOTAL, certified=certified).close()
    assert place.rows("SELECT version FROM terms") == [(tables.REPEATS,)]
    place.run(f"UPDATE terms SET version = {version}")
    PostgresLedger.open(place.url).close()
    assert place.rows("SELECT version FROM terms") == [(tables.REPEATS,)]
    monkeypatch.setattr(tables, "VERSION", 2)  # what an earlier dpsql knows
    assert code_of(lambda: PostgresLedger.open(place.url)) == "ledger-newer"


@pytest.mark.parametrize(
    "change", ["UPDATE terms SET version = 1", "UPDATE terms SET body = replace(body, 'optimal', 'pure')"]
)
def test_terms_that_hide_their_certificate_are_found(place: Place, change: str) -> None:
    PostgresLedger(place.url, replace(BUDGET, certificate=Certificate.optimal), total=TOTAL, certified=FIXED).close()
    place.tamper(change)
    assert code_of(lambda: PostgresLedger.open(place.url)) == "ledger-damaged"
    assert code_of(lambda: verify(place.url)) == "ledger-damaged"
