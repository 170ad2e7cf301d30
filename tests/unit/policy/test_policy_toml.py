from __future__ import annotations

import copy
import pickle
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import PolicyError
from dpsql.policy import Analyst, Budget, Limits, Policy, PrivateTable, PublicTable
from dpsql.policy.toml import _key_lines, write_bounds
from dpsql.quantities import Delta, Epsilon

EXAMPLE = """\
ledger = "ledger.sqlite"   # none: memory, and a warning once
[budget]
epsilon = 1.0
delta = 1e-6
items = 100
queries = 20

[tables.reads]
privacy_unit = "user_id"
columns = ["user_id", "article", "country", "ts"]    # optional: only these exist for analysts
[tables.visits]
source = "visits.parquet"
privacy_unit = "user_id"
[tables.countries]
public = true
"""
BUDGET = "[budget]\nepsilon = 1\ndelta = 1e-6\n"
TABLE = '[tables.reads]\nprivacy_unit = "user_id"\n'
GROUPS = "tables.reads.max_groups_contributed (policy.toml, line 6)"
SINGLE = "tables.reads.one_value_per_unit (policy.toml, line 6)"
READS_COLUMNS = "tables.reads.columns (policy.toml, line 7)"
USER_ID = "tables.reads.columns.user_id (policy.toml, line 7)"


def read(folder: Path, text: str) -> Policy:
    file = folder / "policy.toml"
    file.write_text(text, encoding="utf-8")
    return Policy.from_toml(file)


def refused(act: Callable[[], object]) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        act()
    error = caught.value
    assert error.code.startswith("policy-")
    assert error.reason.endswith(".")
    assert error.hint
    assert error.place
    return error


def test_the_example_of_the_readme(tmp_path: Path) -> None:
    policy = read(tmp_path, EXAMPLE)
    assert policy.budget == Budget(1, "1e-6", items=100, queries=20)
    assert policy.ledger == tmp_path / "ledger.sqlite"
    assert policy.limits == Limits()
    assert dict(policy.tables) == {
        "reads": PrivateTable("user_id", ("user_id", "article", "country", "ts")),
        "visits": PrivateTable("user_id", source=tmp_path / "visits.parquet"),
        "countries": PublicTable(),
    }


def test_what_is_left_out_has_the_documented_default(tmp_path: Path) -> None:
    policy = read(tmp_path, BUDGET + TABLE)
    assert policy == Policy(Budget(1, 1e-6), {"reads": PrivateTable("user_id")})
    assert (policy.budget.items, policy.budget.queries, policy.ledger) == (100, 20, None)
    limits = policy.limits
    assert (limits.max_epsilon, limits.min_epsilon) == (Epsilon(1), Epsilon(Fraction(1, 10_000)))
    assert (limits.max_delta, limits.max_k, limits.max_k_bar) == (None, 1000, 10_000)


def test_limits_of_a_file(tmp_path: Path) -> None:
    text = "[limits]\nmax_epsilon = 0.5\nmin_epsilon = 0.01\nmax_delta = 1e-9\nmax_k = 10\nmax_k_bar = 20\n"
    expected = Limits(max_epsilon=0.5, min_epsilon=0.01, max_delta=1e-9, max_k=10, max_k_bar=20)
    assert read(tmp_path, BUDGET + TABLE + text).limits == expected
    assert expected.max_delta == Delta("1e-9")


def test_bounds_of_a_table(tmp_path: Path) -> None:
    policy = read(tmp_path, BUDGET + TABLE + "max_groups_contributed = 20\nmin_units = 50\npopulation = 2_000_000\n")
    table = PrivateTable("user_id", max_groups_contributed=20, min_units=50, population=2_000_000)
    assert policy.tables["reads"] == table
    assert policy != read(tmp_path, BUDGET + TABLE)
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_the_calendar_of_a_table(tmp_path: Path) -> None:
    text = BUDGET + TABLE + "[tables.reads.calendar]\nts = {first = 2025-01-01, last = 2026-12-31}\n"
    policy = read(tmp_path, text)
    days = {"first": date(2025, 1, 1), "last": date(2026, 12, 31)}
    table = PrivateTable("user_id", calendar={"ts": days})
    assert policy.tables["reads"] == table
    assert list(map(str, table.calendar)) == ["ts = {first = 2025-01-01, last = 2026-12-31}"]
    assert replace(table, min_units=5).calendar == table.calendar
    assert pickle.loads(pickle.dumps(policy)) == policy
    wrong = {
        "ts = {first = 2025-01-01}": "policy-missing-key",
        "ts = {first = 2025-01-01, last = 2024-01-01}": "policy-calendar",
        "ts = {first = 2025-01-01, last = 2026-01-01T00:00:00}": "policy-type",
        "ts = {first = 2025-01-01, last = '2026-01-01'}": "policy-type",
        "ts = {first = 2025-01-01, last = 2026-01-01, step = 1}": "policy-unknown-key",
        "ts = 2025-01-01": "policy-type",
        "ts = {first = 2025-01-01, last = 2026-01-01}\nTS = {first = 2025-01-01, last = 2026-01-01}": "policy-columns",
    }
    for line, code in wrong.items():
        with pytest.raises(PolicyError) as refused:
            read(tmp_path, BUDGET + TABLE + f"[tables.reads.calendar]\n{line}\n")
        assert refused.value.code == code
        assert "calendar" in str(refused.value.place)
    public = BUDGET + TABLE + "[tables.days]\npublic = true\ncalendar = {}\n"
    with pytest.raises(PolicyError, match="policy-public"):
        read(tmp_path, public)
    for value in ({"ts": {"first": date(2025, 1, 1)}}, {"ts": 5}, "ts", [days]):
        with pytest.raises(PolicyError):
            PrivateTable("user_id", calendar=value)  # type: ignore[arg-type]


ANALYSTS = """\
[analysts.default]
epsilon = 0.2
[analysts.alice]
epsilon = 0.5
delta = 1e-7
items = 10
queries = 3
[analysts.bob]
enabled = false
[analysts."c. d"]
enabled = true
epsilon = 1
[analysts.dashboard]
epsilon = 0
"""


def test_analysts_of_a_file(tmp_path: Path) -> None:
    policy = read(tmp_path, "data_version = 7\n" + BUDGET + TABLE + ANALYSTS + "[limits]\nshare_replays = true")
    expected = {
        "default": Analyst(0.2),
        "alice": Analyst(0.5, 1e-7, items=10, queries=3),
        "bob": Analyst(enabled=False),
        "c. d": Analyst(1),
        "dashboard": Analyst(0),
    }
    shares = {"default": True, "alice": True, "bob": False, "c. d": True, "dashboard": False}
    assert {name: analyst.has_share for name, analyst in policy.analysts.items()} == shares
    assert dict(policy.analysts) == expected
    assert policy.limits.share_replays
    assert not read(tmp_path, BUDGET + TABLE).limits.share_replays
    assert policy.data_version == 7
    assert policy == Policy(
        Budget(1, 1e-6),
        {"reads": PrivateTable("user_id")},
        limits=Limits(share_replays=True),
        analysts=expected,
        data_version=7,
    )
    for twin in (copy.deepcopy(policy), pickle.loads(pickle.dumps(policy)), policy.only(["reads"])):
        assert twin == policy
        assert twin.where("analysts.alice.items") == "analysts.alice.items (policy.toml, line 12)"
    plain = read(tmp_path, BUDGET + TABLE)
    assert (dict(plain.analysts), plain.data_version) == ({}, None)


@pytest.mark.parametrize(
    "columns",
    [
        'columns = { user_id = "BIGINT", page = "varchar", ts = "Timestamp", price = "DECIMAL(9, 2)" }',
        "columns.user_id='BIGINT'\ncolumns.page='VARCHAR'\ncolumns.ts='TIMESTAMP'\ncolumns.price='DECIMAL(9,2)'",
        '[tables.reads.columns]\nuser_id = "bigint"\npage = "VARCHAR"\nts = "TIMESTAMP"\n"price" = "decimal(9,2)"',
    ],
)
def test_a_csv_file_of_a_policy(tmp_path: Path, columns: str) -> None:
    policy = read(tmp_path, BUDGET + TABLE + 'source = "reads.csv"\n' + columns)
    types = {"user_id": "BIGINT", "page": "VARCHAR", "ts": "TIMESTAMP", "price": "DECIMAL(9,2)"}
    (table,) = policy.tables.values()
    assert table == PrivateTable("user_id", types, source=tmp_path / "reads.csv")
    assert (table.columns, table.types) == (tuple(types), tuple(types.values()))
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_a_public_csv_file_of_a_policy(tmp_path: Path) -> None:
    text = '[tables.countries]\npublic = true\nsource = "c.csv"\ncolumns = { country = "VARCHAR" }\n'
    table = read(tmp_path, BUDGET + text).tables["countries"]
    assert table == PublicTable({"country": "VARCHAR"}, source=tmp_path / "c.csv")


def test_a_bound_on_a_public_table_says_why_not(tmp_path: Path) -> None:
    error = refused(lambda: read(tmp_path, BUDGET + "[tables.c]\npublic = true\npopulation = 50"))
    assert "population means nothing in it" in str(error)
    error = refused(lambda: read(tmp_path, BUDGET + "[tables.c]\npublic = true\nmin_units = 50"))
    assert "no privacy units" in error.reason


def test_a_policy_is_copied_pickled_and_replaced(tmp_path: Path) -> None:
    policy = read(tmp_path, EXAMPLE)
    for twin in (copy.copy(policy), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert twin == policy
        assert twin.where("budget.delta") == "budget.delta (policy.toml, line 4)"
    assert replace(policy, ledger=None).ledger is None
    assert replace(policy.budget, items=5).items == 5


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        (TABLE, "policy-missing-key", "budget (policy.toml)"),
        (BUDGET, "policy-missing-key", "tables (policy.toml)"),
        ("[budget]\nepsilon = 1\n" + TABLE, "policy-missing-key", "budget.delta (policy.toml, below line 1)"),
        ("ledgr = 'x'\n" + BUDGET + TABLE, "policy-unknown-key", "ledgr (policy.toml, line 1)"),
        (BUDGET + "item = 3\n" + TABLE, "policy-unknown-key", "budget.item (policy.toml, line 4)"),
        (BUDGET + TABLE + "unit = 3\n", "policy-unknown-key", "tables.reads.unit (policy.toml, line 6)"),
        (BUDGET + TABLE + "[limits]\n\nk = 3\n", "policy-unknown-key", "limits.k (policy.toml, line 8)"),
        ("ledger = 3\n" + BUDGET + TABLE, "policy-type", "ledger (policy.toml, line 1)"),
        ("ledger = ''\n" + BUDGET + TABLE, "policy-path", "ledger (policy.toml, line 1)"),
        ("budget = 3\n" + TABLE, "policy-type", "budget (policy.toml, line 1)"),
        ("tables = []\n" + BUDGET, "policy-type", "tables (policy.toml, line 1)"),
        (BUDGET + "[tables]\n", "policy-tables", "tables (policy.toml, line 4)"),
        (BUDGET + "[tables]\nreads = 3", "policy-type", "tables.reads (policy.toml, line 5)"),
        (BUDGET + "[[tables.reads]]\n", "policy-type", "tables.reads (policy.toml, line 4)"),
        ("[budget]\nepsilon = '1'\ndelta = 0.1\n" + TABLE, "policy-type", "budget.epsilon (policy.toml, line 2)"),
        ("[budget]\nepsilon = nan\ndelta = 0.1\n" + TABLE, "policy-number", "budget.epsilon (policy.toml, line 2)"),
        ("[budget]\ndelta = 1.0\nepsilon = 1\n" + TABLE, "policy-range", "budget.delta (policy.toml, line 2)"),
        (BUDGET + "items = 1.0\n" + TABLE, "policy-type", "budget.items (policy.toml, line 4)"),
        (BUDGET + TABLE + "[limits]\nmax_k = 99999\n", "policy-range", "limits (policy.toml, line 6)"),
        (BUDGET + TABLE + "public = true\n", "policy-table", "tables.reads.public (policy.toml, line 6)"),
        (BUDGET + "[tables.reads]\n", "policy-table", "tables.reads (policy.toml, line 4)"),
        (BUDGET + "[tables.reads]\npublic = false", "policy-table", "tables.reads.public (policy.toml, line 5)"),
        (BUDGET + "[tables.reads]\npublic = 'yes'", "policy-type", "tables.reads.public (policy.toml, line 5)"),
        (BUDGET + "[tables.reads]\nprivacy_unit = 3", "policy-type", "tables.reads.privacy_unit (policy.toml, line 5)"),
        (BUDGET + TABLE + "columns = 'a'", "policy-type", "tables.reads.columns (policy.toml, line 6)"),
        (BUDGET + TABLE + "columns = ['a']", "policy-columns", "tables.reads.columns (policy.toml, line 6)"),
        (BUDGET + TABLE + "source = 2026-01-01", "policy-type", "tables.reads.source (policy.toml, line 6)"),
        (BUDGET + TABLE + "source = 'x.csv'", "policy-types", "tables.reads.source (policy.toml, line 6)"),
        (
            BUDGET + TABLE + "source = 'x.csv'\ncolumns = { user_id = 'INT' }",
            "policy-types",
            "tables.reads.columns.user_id (policy.toml, line 7)",
        ),
        (
            BUDGET + TABLE + "source = 'x.csv'\n[tables.reads.columns]\nuser_id = 'BIGINT'\n'a b' = 'TEXT'",
            "policy-types",
            "tables.reads.columns.a b (policy.toml, line 9)",
        ),
        (
            BUDGET + TABLE + "source = 'x.csv'\n[tables.reads.columns]\nuser_id = 'BIGINT'\n'a b' = 3",
            "policy-type",
            'tables.reads.columns."a b" (policy.toml, line 9)',
        ),
        (
            BUDGET + TABLE + "source = 'x.csv'\ncolumns = { user_id = 'DATE' }\n[tables.reads.csv]\ndleim = ';'",
            "policy-unknown-key",
            "tables.reads.csv.dleim (policy.toml, line 9)",
        ),
        (
            BUDGET + TABLE + "source = 'x.csv'\ncolumns = { user_id = 'DATE' }\ncsv = { delim = ';;' }",
            "policy-csv",
            "tables.reads.csv.delim (policy.toml, line 8)",
        ),
        (BUDGET + TABLE + "source = 'x.csv'\n[tables.reads.columns]", "policy-columns", READS_COLUMNS),
        (BUDGET + TABLE + "source = 'x.csv'\ncolumns = { user_id.x = 'DATE' }", "policy-type", USER_ID),
        (BUDGET + TABLE + "min_units = 0", "policy-range", "tables.reads.min_units (policy.toml, line 6)"),
        (BUDGET + TABLE + "max_groups_contributed = '20'", "policy-type", GROUPS),
        (
            BUDGET + "[tables.reads]\npublic = true\nmax_groups_contributed = 20",
            "policy-public",
            GROUPS,
        ),
        (BUDGET + TABLE + "one_value_per_unit = 'country'", "policy-type", SINGLE),
        (BUDGET + TABLE + "link = 'a -> b.c'", "policy-table", "tables.reads (policy.toml, line 4)"),
        (BUDGET + "[tables.reads]\nlink = 3", "policy-type", "tables.reads.link (policy.toml, line 5)"),
        (BUDGET + "[tables.reads]\nlink = 'a -> b'", "policy-link", "tables.reads.link (policy.toml, line 5)"),
        (BUDGET + "[tables.reads]\nlink = 'a -> b.c'", "policy-link", "tables.reads.link (policy.toml, line 5)"),
        (BUDGET + "[tables.reads]\npublic = true\none_value_per_unit = []", "policy-public", SINGLE),
        (
            BUDGET + TABLE + "[tables.READS]\npublic = true",
            "policy-duplicate-table",
            "tables.READS (policy.toml, line 6)",
        ),
        (BUDGET + "[tables.'we.b']\npublic = 1", "policy-type", 'tables."we.b".public (policy.toml, line 5)'),
        (
            BUDGET + "[tables.'we.b']\nprivacy_unit = ''",
            "policy-name",
            'tables."we.b".privacy_unit (policy.toml, line 5)',
        ),
        (BUDGET + "[tables]\nr = { public = 3 }", "policy-type", "tables.r.public (policy.toml, line 5)"),
        ("analysts = 3\n" + BUDGET + TABLE, "policy-type", "analysts (policy.toml, line 1)"),
        (BUDGET + TABLE + "[analysts]\nbob = 3", "policy-type", "analysts.bob (policy.toml, line 7)"),
        (BUDGET + TABLE + "[analysts.bob]", "policy-missing-key", "analysts.bob.epsilon"),
        (BUDGET + TABLE + "[analysts.bob]\nenabled = 0", "policy-type", "analysts.bob.enabled (policy.toml, line 7)"),
        (BUDGET + TABLE + "[analysts.bob]\nepsilon = 2", "policy-range", "analysts.bob.epsilon (policy.toml, line 7)"),
        (
            BUDGET + TABLE + "[analysts.'b.c']\nepsilon = -1",
            "policy-range",
            'analysts."b.c".epsilon (policy.toml, line 7)',
        ),
        (
            BUDGET + TABLE + "[analysts.'b.c']\nepsilon = 2",
            "policy-range",
            "analysts.b.c.epsilon (policy.toml, line 7)",
        ),
        (
            BUDGET + TABLE + "[analysts.bob]\nepsilon = 1\nquery = 3",
            "policy-unknown-key",
            "analysts.bob.query (policy.toml, line 8)",
        ),
        (BUDGET + TABLE + "[analysts.'']\nepsilon = 1", "policy-name", "analysts (policy.toml, line 6)"),
        ("data_version = -1\n" + BUDGET + TABLE, "policy-range", "data_version (policy.toml, line 1)"),
        (BUDGET + TABLE + "[limits]\nshare_replays = 1", "policy-type", "limits.share_replays (policy.toml, line 7)"),
        ("[budget]\nepsilon = \n", "policy-syntax", "policy.toml, line 2"),
        ("[budget]\n[budget]\n", "policy-syntax", "policy.toml, line 2"),
        ('x = """', "policy-syntax", "policy.toml, at its end"),
    ],
)
def test_an_error_of_a_file_names_key_path_and_line(tmp_path: Path, text: str, code: str, place: str) -> None:
    error = refused(lambda: read(tmp_path, text))
    assert (error.code, error.place) == (code, place)
    assert error.__cause__ is None


def test_a_slip_of_the_pen_gets_a_suggestion(tmp_path: Path) -> None:
    assert "Did you mean" in refused(lambda: read(tmp_path, BUDGET + "epsilonn = 1\n" + TABLE)).hint
    assert "ledger, budget" in refused(lambda: read(tmp_path, "zzz = 1\n")).hint


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    error = refused(lambda: Policy.from_toml(str(file)))
    assert (error.code, error.place) == ("policy-missing", str(file))
    assert refused(lambda: Policy.from_toml(tmp_path)).code == "policy-unreadable"
    assert refused(lambda: Policy.from_toml("a\0b")).code == "policy-path"
    file.write_bytes(b"\xff\xfe\x00")
    assert refused(lambda: Policy.from_toml(file)).code == "policy-unreadable"
    for text in ("x = " + "[" * 20_000, "x = " + "9" * 5000):
        file.write_text(text)
        assert refused(lambda: Policy.from_toml(file)).code == "policy-syntax"


def test_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "policy.toml").write_text(
        "ledger = '../spent.sqlite'\n" + BUDGET + TABLE + "source = '/data/x.parquet'\n"
    )
    monkeypatch.chdir(tmp_path)
    policy = Policy.from_toml("below/policy.toml")
    assert policy.ledger == tmp_path / "below" / "../spent.sqlite"
    assert policy.tables["reads"].source == Path("/data/x.parquet")


def test_where_finds_every_way_to_write_a_key(tmp_path: Path) -> None:
    text = """\
# tables.reads = 1
budget.epsilon = 1.0
"budget" . 'delta' = 1e-6   # [x]
ledger = '''
[tables.visits]
privacy_unit = "no"
'''
[ tables . "reads" ]   # [tables.visits]
columns = [
  "user_id",  # ]
  "[tables.visits]", "a#b", 'c"', "\\\\", "\\"]",
]
privacy_unit = "user_id"
[tables]
visits = { privacy_unit = "user_id", columns = ["user_id", "}"] }
"web.clicks".public = true
[tables."caf\\u00e9"]
public = true\r
"""
    policy = read(tmp_path, text)
    expected = {
        "budget.epsilon": 2,
        "budget": 2,
        "budget.delta": 3,
        "ledger": 4,
        "tables": 8,
        "tables.reads": 8,
        "tables.reads.columns": 9,
        "tables.reads.privacy_unit": 13,
        "tables.visits": 15,
        "tables.visits.privacy_unit": 15,
        "tables.web.clicks.public": 16,
        'tables."web.clicks".public': 16,
        'tables."café".public': 18,
        "tables.café": 17,
    }
    for key_path, line in expected.items():
        assert policy.where(key_path) == f"{key_path} (policy.toml, line {line})"
    for key_path in ("limits.max_k", "tables.reads.source", "tables.reads.unit", ""):
        assert policy.where(key_path) == key_path


KEYS = st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True) | st.sampled_from(['"a b"', "'x.y'", '"q\\"#["', '""'])
VALUES = st.sampled_from(
    [
        "1",
        "true",
        "[]",
        "1979-05-27T07:32:00Z",
        '"text # [no]"',
        "'\"'",
        "'''\n[a]\nb = 1\n'''",
        '"""\n""\\""""',
        '"""a"""""',
        '["[a]", # ]\n "b"\n]',
        "[[1], [2, [3]],\n\n]",
        "{ k = 1, l = {m = '}'} }",
    ]
)


@given(
    st.lists(
        st.tuples(
            st.lists(KEYS, max_size=3), st.lists(st.tuples(KEYS, VALUES, st.sampled_from(["", " # c [d]\n", "\n\n"])))
        ),
        max_size=5,
    )
)
def test_lines_agree_with_the_reader_on_any_toml(sections: list[tuple[list[str], list[tuple[str, str, str]]]]) -> None:
    text = ""
    for header, pairs in sections:
        text += f"[{' . '.join(header)}]\n" if header else ""
        text += "".join(f"{key} = {value}{tail}\n" for key, value, tail in pairs)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    found = _key_lines(text)
    assert () not in found
    lines = text.split("\n")
    for path, line in found.items():
        assert _reaches(data, path)
        assert _spelling(path[-1]) in lines[line - 1]
    assert {path for path in _paths(data) if len(path) == 1} == {path for path in found if len(path) == 1}


def _reaches(data: object, path: tuple[str, ...]) -> bool:
    for key in path:
        if not isinstance(data, dict) or key not in data:
            return False
        data = data[key]
    return True


def _paths(data: object, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(data, dict):
        return []
    return [path for key in data for path in ((*above, key), *_paths(data[key], (*above, key)))]


def _spelling(key: str) -> str:
    return key.replace('"', '\\"')


def test_columns_of_one_value_per_unit_are_read(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(BUDGET + TABLE + 'one_value_per_unit = ["country"]\n[tables.likes]\nprivacy_unit = "user_id"\n')
    policy = Policy.from_toml(path)
    assert policy.tables["reads"] == PrivateTable("user_id", one_value_per_unit=["country"])
    assert policy.tables["likes"] == PrivateTable("user_id")
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_consent_is_a_limit(tmp_path: Path) -> None:
    assert not read(tmp_path, BUDGET + TABLE).limits.consent
    assert read(tmp_path, BUDGET + TABLE + "[limits]\nconsent = true").limits.consent
    policy = read(tmp_path, BUDGET + TABLE)
    assert policy.with_consent(consent=True).limits == Limits(consent=True)
    assert policy.with_consent(consent=False).limits == policy.limits
    with pytest.raises(PolicyError) as caught:
        read(tmp_path, BUDGET + TABLE + "[limits]\nconsent = 1")
    assert caught.value.code == "policy-type"
    assert str(caught.value.place).startswith("limits.consent (policy.toml, line ")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("epsilon = 1,0", "Write a decimal point in place of the comma: epsilon = 1.0"),
        ("certificate = \u201czcdp\u201d", "Write straight quotes, \" and ', in place of curly ones."),
    ],
)
def test_what_word_processors_write_is_explained(tmp_path: Path, line: str, hint: str) -> None:
    (tmp_path / "policy.toml").write_text(f"[budget]\r\ndelta = 1e-6\r\n{line}\r\n", encoding="utf-8")
    with pytest.raises(PolicyError) as refused:
        Policy.from_toml(tmp_path / "policy.toml")
    assert (refused.value.hint, refused.value.place) == (hint, "policy.toml, line 3")


def test_a_byte_order_mark_is_no_part_of_the_policy(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text("\ufeff" + BUDGET + TABLE, encoding="utf-8")
    policy = Policy.from_toml(tmp_path / "policy.toml")
    write_bounds(tmp_path / "policy.toml", "reads", bounds={"rows": 3})
    assert Policy.from_toml(tmp_path / "policy.toml") != policy


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        ('privacy_unit = "userid"', "policy-columns", 'Did you mean "user_id"? If not, add it to the list'),
        ('privacy_unit = "user_id"\nnot_null = ["pgae"]', "policy-columns", 'Did you mean "page"?'),
        ('privacy_unit = "user_id"\none_value_per_unit = ["pgae"]', "policy-columns", 'Did you mean "page"?'),
        ('privacy_unit = "user_id"\nmaterialized = [["page"], ["pgae"]]', "policy-prepared", 'Did you mean "page"?'),
        ('privacy_unit = "user_id"\nmaterialized = [["user_id"]]', "policy-prepared", '"user_id" is the privacy unit'),
    ],
)
def test_a_misspelt_column_is_named_with_the_one_that_is_meant(
    tmp_path: Path, lines: str, code: str, words: str
) -> None:
    text = f'materialized = "m"\n{BUDGET}[tables.reads]\ncolumns = ["user_id", "page"]\n{lines}\n'
    (tmp_path / "policy.toml").write_text(text)
    with pytest.raises(PolicyError) as refused:
        Policy.from_toml(tmp_path / "policy.toml")
    assert (refused.value.code, words in str(refused.value)) == (code, True)
