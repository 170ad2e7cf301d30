"""What the shell knows of a statement before it is asked: where it ends, and what may stand next."""

from __future__ import annotations

import pytest

from dpsql.cli.shell import COMMANDS as SHELL_COMMANDS
from dpsql.cli.shell import _read_command
from dpsql.completion import KEYWORDS, find_completions, is_complete, items, split
from dpsql.errors import UsageError
from dpsql.plan.mechanisms.choice import list_mechanism_names
from dpsql.sql.ir.catalog import Catalog, Table
from dpsql.sql.ir.tree import parse_type
from dpsql.sql.syntax import grammar
from dpsql.sql.syntax.clause import OPTIONS

CATALOG = Catalog(
    (
        Table(
            "reads",
            ("db", "reads"),
            (("user_id", parse_type("BIGINT")), ("article", parse_type("VARCHAR"))),
            "user_id",
        ),
        Table(
            "my table",
            ("db", "my table"),
            (("a column", parse_type("VARCHAR")), ("land", parse_type("VARCHAR"))),
            None,
        ),
    )
)
COMMANDS: dict[str, tuple[str, ...]] = {"mode": ("table", "csv"), "describe": ("<table>",), "explain": (), "help": ()}
HALF = "SELECT 'x;"


@pytest.mark.parametrize(
    ("text", "statements", "rest"),
    [
        ("a; b ;c", ("a", "b"), "c"),
        ("';'; \";\"; $$;$$; $t$;$$;$t$; x", ("';'", '";"', "$$;$$", "$t$;$$;$t$"), " x"),
        ("'it''s;'; E'\\';'; e'x'';'; note'\\'; b", ("'it''s;'", "E'\\';'", "e'x'';'", "note'\\'"), " b"),
        ("a -- ;\n; b /* ; */; -- ; c", ("a -- ;", "b /* ; */"), " -- ; c"),
        (";; -- nothing\n;", (), ""),
        ("'open; \n;", (), "'open; \n;"),
        ("/* open ;", (), "/* open ;"),
        ("/*/ ;", (), "/*/ ;"),
    ],
)
def test_statements_end_at_semicolons_outside_of_texts(text: str, statements: tuple[str, ...], rest: str) -> None:
    found = split(text)
    assert (found.statements, found.rest) == (statements, rest)


@pytest.mark.parametrize(
    "text", ["", "  \n", "a;", "a; -- b\n", "a; /* b */", ".help", "quit", "EXIT;", "'a';", "$$;$$;"]
)
def test_what_can_be_acted_on(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text", ["a", "a; b", HALF, '"', "/* ;", "a; /* b", "a; 'b;", "$t$;", "quit it", "E'\\';", "/*/"]
)
def test_what_goes_on(text: str) -> None:
    assert not is_complete(text)


def test_commands_are_lines_of_their_own() -> None:
    script = [".mode csv\n", "SELECT\n", ".5;b\n", ";\n", "  .help  \n", "-- x\n", ".tables\n", "c"]
    assert list(items(script)) == [".mode csv", "SELECT\n.5", "b", ".help", ".tables", "c"]


def names(before: str) -> list[str]:
    return find_completions(before, CATALOG, commands=COMMANDS)[1]


@pytest.mark.parametrize(
    ("before", "begun", "known"),
    [
        ("SELECT art", "art", ["article"]),
        ("sel", "sel", ["SELECT"]),
        ("SELECT article FROM ", "", ['"my table"', "reads"]),
        ("SELECT article FROM re", "re", ["reads"]),
        ("SELECT article FROM my", "my", ['"my table"']),
        ('SELECT "my table".', "", ['"a column"', "land"]),
        ("SELECT article FROM reads r WHERE r.", "", ["article", "user_id"]),
        ("SELECT x FROM reads AS r WHERE R.u", "u", ["user_id"]),
        ("SELECT a FROM reads GROUP BY a TOP 3 PRIVATE WITH (f", "f", ["fresh"]),
        ("SELECT a FROM reads GROUP BY a TOP 3 PRIVATE WITH (epsilon = 0.1, k_", "k_", ["k_bar"]),
        ("SELECT a FROM reads GROUP BY a TOP 3 PRIVATE WITH (mechanism = peel", "peel", ["peeling"]),
        ("DESCRIBE ", "", ['"my table"', "reads"]),
        ("x; SELECT date_tr", "date_tr", ["date_trunc"]),
        ("WHERE a = 'sel", "", []),
        ("SELECT 1 -- sel", "", []),
        (".m", ".m", [".mode"]),
        (".mode ", "", ["csv", "table"]),
        (".describe r", "r", ["reads"]),
        (".explain SELECT arti", "arti", ["article"]),
        (".help ", "", []),
        (".nothing ", "", []),
        (". ", "", []),
        (".describe reads ", "", []),
    ],
)
def test_what_may_stand_next(before: str, begun: str, known: list[str]) -> None:
    assert find_completions(before, CATALOG, commands=COMMANDS) == (begun, known)


def test_every_option_mechanism_and_keyword_is_known() -> None:
    clause = "SELECT a FROM reads GROUP BY a TOP 3 PRIVATE WITH ("
    assert set(names(clause)) == OPTIONS
    assert set(names(f"{clause}mechanism = ")) == set(list_mechanism_names())
    words = {word for name in grammar._KEYWORDS | grammar._OF_WINDOWS for word in name.split("_")}
    assert words - {"ALIAS"} - set(KEYWORDS) == set()


@pytest.mark.parametrize("name", sorted(SHELL_COMMANDS))
def test_a_misspelt_command_is_proposed(name: str) -> None:
    if len(name) > 4:
        with pytest.raises(UsageError) as refused:
            _read_command(f".{name[:-2]}{name[-1]}{name[-2]}")
        assert (refused.value.hint or "").startswith(f"Did you mean .{name}? ")
    with pytest.raises(UsageError) as refused:
        _read_command(".zzzzzz")
    assert refused.value.hint == "Write .help to list the commands."
